package change

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/session"
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

// writes is the number of writes of a VIP.
func writes(vip *weirv1.VIP) int { return 1 + len(vip.GetEndpoints()) }

// beside is the number of writes of what is no VIP.
func beside(r *weirv1.ApplyVIPsRequest) int {
	return len(r.GetPools()) + len(r.GetPrefixLists()) + len(r.GetNetworks()) + len(r.GetOverlays())
}

// parts splits a request into changes; into one, if it fits.
func parts(whole *weirv1.ApplyVIPsRequest) []*weirv1.ApplyVIPsRequest {
	all := beside(whole)
	for _, vip := range whole.GetVips() {
		all += writes(vip)
	}
	if all <= wholeMost {
		return []*weirv1.ApplyVIPsRequest{whole}
	}
	part := &weirv1.ApplyVIPsRequest{
		Strict: whole.GetStrict(),
		Pools:  whole.GetPools(), PrefixLists: whole.GetPrefixLists(), Networks: whole.GetNetworks(), Overlays: whole.GetOverlays(),
	}
	n := beside(part)
	list := []*weirv1.ApplyVIPsRequest{part}
	for _, vip := range whole.GetVips() {
		if n += writes(vip); n > partMost && len(part.GetVips()) > 0 {
			part, n = &weirv1.ApplyVIPsRequest{Strict: whole.GetStrict()}, writes(vip)
			list = append(list, part)
		}
		part.Vips = append(part.Vips, vip)
	}
	return list
}

// applyVIPs applies the request, in parts if it is too large for one change, after a dry run of all of it.
func applyVIPs(
	s *session.Session, cmd *cobra.Command, whole *weirv1.ApplyVIPsRequest, resources []manifest.Resource,
) (*weirv1.ApplyVIPsResponse, error) {
	list := parts(whole)
	if whole.GetDryRun() || len(list) == 1 {
		return applyPart(cmd.Context(), s, whole, resources)
	}
	return applyParts(whole, list, func(part *weirv1.ApplyVIPsRequest, before int) (*weirv1.ApplyVIPsResponse, error) {
		return applyPart(cmd.Context(), s, part, resources[before:])
	}, func(applied int) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d VIPs\n", applied, len(whole.GetVips()))
	})
}

// applyParts has a dry run made of all, then has each part applied, which begins after so many resources. It tells how
// many VIPs are, and returns all responses as one.
func applyParts(
	whole *weirv1.ApplyVIPsRequest, list []*weirv1.ApplyVIPsRequest,
	apply func(part *weirv1.ApplyVIPsRequest, before int) (*weirv1.ApplyVIPsResponse, error), tell func(applied int),
) (*weirv1.ApplyVIPsResponse, error) {
	whole.DryRun = true
	_, err := apply(whole, 0)
	if whole.DryRun = false; err != nil {
		return nil, err
	}
	all := &weirv1.ApplyVIPsResponse{}
	before := 0
	for _, part := range list {
		done, err := apply(part, before)
		if err != nil {
			return nil, partError(err, len(all.GetVips()))
		}
		before += beside(part) + len(part.GetVips())
		proto.Merge(all, done)
		tell(len(all.GetVips()))
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
