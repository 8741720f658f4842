package change

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	// wholeMost is the largest number of writes in one change; a manager takes a few more. A VIP counts as one, and each
	// of its endpoints.
	wholeMost = 8000
	// partMost bounds the writes of each part when there are more, so that other clients' changes get in between.
	partMost = 2000
	// applyTime is the time that an apply may take beyond other calls, for each VIP.
	applyTime = 5 * time.Millisecond
)

// size is what bounds a request: writes in the store, and what managers take of one.
type size struct{ writes, vips, messages, texts, bytes int }

var applyMessages = limits.Requests[weirv1connect.WeirServiceApplyVIPsProcedure].Messages

// requestMost is what a manager takes of a request of any number of writes, with room for what is around the VIPs.
var requestMost = size{
	writes:   math.MaxInt,
	vips:     limits.Fields["ApplyVIPsRequest.vips"].List,
	messages: applyMessages - 1024,
	texts:    limits.TextsEach * applyMessages,
	bytes:    limits.Requests[weirv1connect.WeirServiceApplyVIPsProcedure].Bytes - 1<<16,
}

// withWrites is s with another bound of writes.
func (s size) withWrites(n int) size {
	s.writes = n
	return s
}

func (s size) plus(t size) size {
	return size{s.writes + t.writes, s.vips + t.vips, s.messages + t.messages, s.texts + t.texts, s.bytes + t.bytes}
}

func (s size) within(most size) bool {
	return s.writes <= most.writes && s.vips <= most.vips && s.messages <= most.messages && s.texts <= most.texts && s.bytes <= most.bytes
}

// sizeOf is what a message takes of a request, with so many writes.
func sizeOf(m proto.Message, writes, vips int) size {
	data, err := proto.Marshal(m)
	if err != nil { // the call says so
		return size{writes: writes, vips: vips}
	}
	messages, texts, _ := limits.Size(data, m.ProtoReflect().Descriptor())
	return size{writes, vips, 1 + messages, texts, len(data) + 8}
}

// sizes are those of a request's VIPs, and of all that is beside them.
func sizes(whole *weirv1.ApplyVIPsRequest) (vips []size, beside size) {
	for _, vip := range whole.GetVips() {
		vips = append(vips, sizeOf(vip, writes(vip), 1))
	}
	return vips, sizeOf(besideOf(whole), besides(whole), 0)
}

// writes is the number of writes of a VIP.
func writes(vip *weirv1.VIP) int { return 1 + len(vip.GetEndpoints()) }

// besides is the number of writes of what is no VIP.
func besides(r *weirv1.ApplyVIPsRequest) int {
	return len(r.GetPools()) + len(r.GetPrefixLists()) + len(r.GetNetworks()) + len(r.GetOverlays())
}

// besideOf is a request without its VIPs.
func besideOf(whole *weirv1.ApplyVIPsRequest) *weirv1.ApplyVIPsRequest {
	return &weirv1.ApplyVIPsRequest{
		Strict: whole.GetStrict(), DryRun: whole.GetDryRun(),
		Pools: whole.GetPools(), PrefixLists: whole.GetPrefixLists(), Networks: whole.GetNetworks(), Overlays: whole.GetOverlays(),
	}
}

// split splits a request into such of at most a size, in its order. What is no VIP is in the first, or in each; where that
// alone is beyond what a manager takes, the whole is one, for it to refuse.
func split(whole *weirv1.ApplyVIPsRequest, vips []size, beside, most size, each bool) []*weirv1.ApplyVIPsRequest {
	if !beside.within(requestMost) {
		return []*weirv1.ApplyVIPsRequest{whole}
	}
	part, n := besideOf(whole), beside
	list := []*weirv1.ApplyVIPsRequest{part}
	for i, vip := range whole.GetVips() {
		if !n.plus(vips[i]).within(most) && len(part.GetVips()) > 0 {
			part, n = &weirv1.ApplyVIPsRequest{Strict: whole.GetStrict(), DryRun: whole.GetDryRun()}, size{}
			if each {
				part, n = besideOf(whole), beside
			}
			list = append(list, part)
		}
		part.Vips, n = append(part.Vips, vip), n.plus(vips[i])
	}
	return list
}

// parts splits a request into changes; into one, if it fits.
func parts(whole *weirv1.ApplyVIPsRequest) []*weirv1.ApplyVIPsRequest {
	vips, beside := sizes(whole)
	if list := split(whole, vips, beside, requestMost.withWrites(wholeMost), false); len(list) == 1 {
		return []*weirv1.ApplyVIPsRequest{whole}
	}
	return split(whole, vips, beside, requestMost.withWrites(partMost), false)
}

// dryRuns splits a request into dry runs; into one, if a manager takes so much at once. Each has what is beside VIPs, which
// these may need.
func dryRuns(whole *weirv1.ApplyVIPsRequest) []*weirv1.ApplyVIPsRequest {
	dry := besideOf(whole)
	dry.DryRun, dry.Vips = true, whole.GetVips()
	vips, beside := sizes(dry)
	return split(dry, vips, beside, requestMost, true)
}

// applyVIPs applies the request, in parts if it is too large for one change, after a dry run of all of it.
func applyVIPs(
	s *session.Session, cmd *cobra.Command, whole *weirv1.ApplyVIPsRequest, resources []manifest.Resource,
) (*weirv1.ApplyVIPsResponse, error) {
	apply := func(part *weirv1.ApplyVIPsRequest, of []manifest.Resource) (*weirv1.ApplyVIPsResponse, error) {
		return applyPart(cmd.Context(), s, part, of)
	}
	if whole.GetDryRun() {
		return dryRun(whole, resources, apply)
	}
	list := parts(whole)
	if len(list) == 1 {
		return apply(whole, resources)
	}
	return applyParts(whole, resources, list, apply, func(applied int) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d VIPs\n", applied, len(whole.GetVips()))
	})
}

// applying applies a request, which is of these resources.
type applying func(part *weirv1.ApplyVIPsRequest, of []manifest.Resource) (*weirv1.ApplyVIPsResponse, error)

// applyParts has a dry run made of all, then has each part applied. It tells how many VIPs are, and returns all responses
// as one.
func applyParts(
	whole *weirv1.ApplyVIPsRequest, resources []manifest.Resource, list []*weirv1.ApplyVIPsRequest, apply applying, tell func(applied int),
) (*weirv1.ApplyVIPsResponse, error) {
	if _, err := dryRun(whole, resources, apply); err != nil {
		return nil, err
	}
	all := &weirv1.ApplyVIPsResponse{}
	before := 0
	for _, part := range list {
		done, err := apply(part, resources[before:])
		if err != nil {
			return nil, partError(err, len(all.GetVips()))
		}
		before += besides(part) + len(part.GetVips())
		proto.Merge(all, done)
		tell(len(all.GetVips()))
	}
	return all, nil
}

// dryRun makes a dry run of all: at once, or in parts if a manager does not take so much. What VIPs of different parts have
// against each other, as one address, the manager can't find then: it is looked for here.
func dryRun(whole *weirv1.ApplyVIPsRequest, resources []manifest.Resource, apply applying) (*weirv1.ApplyVIPsResponse, error) {
	list := dryRuns(whole)
	if len(list) > 1 {
		if err := manifestfile.Wrong("check the manifests", conflicts(whole.GetVips()), resources); err != nil {
			return nil, err
		}
	}
	all := &weirv1.ApplyVIPsResponse{}
	beside := resources[:besides(whole)]
	rest := resources[besides(whole):]
	for i, part := range list {
		n := len(part.GetVips())
		done, err := apply(part, slices.Concat(beside, rest[:n]))
		if err != nil {
			return nil, err
		}
		if rest = rest[n:]; i > 0 {
			done.Pools, done.PrefixLists, done.Networks, done.Overlays = nil, nil, nil, nil
		}
		proto.Merge(all, done)
	}
	return all, nil
}

func applyPart(
	ctx context.Context, s *session.Session, part *weirv1.ApplyVIPsRequest, resources []manifest.Resource,
) (response *weirv1.ApplyVIPsResponse, err error) {
	limit := session.CallTime + time.Duration(len(part.GetVips()))*applyTime
	for _, list := range part.GetPrefixLists() {
		limit += time.Duration(len(list.GetPrefixes())) * prefixTime
	}
	err = s.CallWithin(ctx, limit, func(ctx context.Context, client *rpc.Client) error {
		response, err = client.ApplyVIPs(ctx, part)
		return manifestfile.Locate(err, resources)
	})
	return response, err
}

// partError adds to err how far the apply came.
func partError(err error, applied int) error {
	var problem *manifestfile.ProblemError
	if errors.As(err, &problem) {
		problem.Applied = applied
		return problem
	}
	return fmt.Errorf("%w: the first %d VIPs are applied: apply again to go on", err, applied)
}
