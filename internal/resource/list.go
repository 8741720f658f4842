package resource

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/selector"
	"github.com/weirlb/weir/internal/store"
)

// Results of a page.
const maxPage = 1000

// anyNode holds for all nodes: tenants see that they are there.
func anyNode(model.Node) bool { return true }

// filter chooses resources.
type filter struct {
	tenant string
	labels selector.Selector
	prefix string // of the name
}

func newFilter(tenant, labels, prefix string) (filter, error) {
	s, err := selector.Parse(labels)
	if err != nil {
		return filter{}, &model.FieldError{Field: "labelSelector", Reason: err.Error()}
	}
	return filter{tenant, s, prefix}, nil
}

// from is the first name that may fit and is not before after.
func (f filter) from(after string) string { return max(f.prefix, after) }

// inRange says whether names from this one on may fit, if this one is not before from.
func (f filter) inRange(name string) bool { return strings.HasPrefix(name, f.prefix) }

// fits says whether the caller asked for the VIP and may see it.
func (f filter) fits(ctx context.Context, vip model.VIP) bool {
	return (f.tenant == "" || f.tenant == vip.Tenant) && f.inRange(vip.Name) && f.labels.Matches(vip.Labels) && authz.CanView(ctx, vip.Tenant)
}

// page is where a page of a list begins, and how large it is. A list goes on behind a name, so it is
// stable: what was there all the time is listed once, whatever comes and goes meanwhile.
type page struct {
	After string `json:"after"`
	size  int
}

func newPage(size uint32, token string) (page, error) {
	p := page{size: maxPage}
	if size > 0 {
		p.size = int(min(size, maxPage))
	}
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("must be the nextPageToken of the page before, is %.80q", token)}
	}
	return p, nil
}

// token is what goes on after a name.
func (p page) token(after string) string {
	text, err := json.Marshal(page{After: after})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// maxAddresses bounds the addresses that VIPs are listed by.
const maxAddresses = 256

// candidates are the VIPs to choose from, by name, from a name on: all of them, or those that an index finds.
func candidates(s *store.State, r *weirv1.ListVIPsRequest, from string) (iter.Seq[model.VIP], error) {
	switch {
	case len(r.GetAddresses()) > maxAddresses:
		return nil, &model.FieldError{Field: "addresses", Reason: fmt.Sprintf("must be at most %d, are %d", maxAddresses, len(r.GetAddresses()))}
	case len(r.GetAddresses()) > 0:
		vips := map[string]model.VIP{}
		for _, text := range r.GetAddresses() {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, &model.FieldError{Field: "addresses", Reason: fmt.Sprintf("must be IP addresses, is %.80q", text)}
			}
			if vip, there := s.VIPAt(address); there && vip.Name >= from && (r.GetHost() == "" || livesOn(vip, r.GetHost()) > 0) {
				vips[vip.Name] = vip
			}
		}
		return func(yield func(model.VIP) bool) {
			for _, name := range slices.Sorted(maps.Keys(vips)) {
				if !yield(vips[name]) {
					return
				}
			}
		}, nil
	case r.GetHost() != "":
		return s.VIPsOnFrom(r.GetHost(), from), nil
	}
	return func(yield func(model.VIP) bool) {
		for _, vip := range s.VIPs.From(from) {
			if !yield(vip) {
				return
			}
		}
	}, nil
}

// warns says whether GetStatus warns of a VIP.
func warns(s *store.State, vip model.VIP, muxes []model.Node) bool {
	for range vipWarnings(s, vip) {
		return true
	}
	return len(rejectionsOf(s, vip, muxes)) > 0
}

// ListVIPs lists VIPs by name.
func (m *VIPs) ListVIPs(ctx context.Context, r *weirv1.ListVIPsRequest) (*weirv1.ListVIPsResponse, error) {
	f, err := newFilter(r.GetTenant(), r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	p, err := newPage(r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	state := m.view()
	response := &weirv1.ListVIPsResponse{ResourceVersion: state.Revision()}
	named, err := candidates(state, r, f.from(p.After))
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	muxes := refusing(state)
	for vip := range named {
		if !f.inRange(vip.Name) {
			break
		}
		if p.After != "" && vip.Name <= p.After || !f.fits(ctx, vip) || r.GetWithWarnings() && !warns(state, vip, muxes) {
			continue
		}
		if len(response.Vips) == p.size {
			response.NextPageToken = p.token(response.Vips[p.size-1].GetName())
			break
		}
		response.Vips = append(response.Vips, m.vipWithStatus(state, vip))
	}
	return response, nil
}

// GetVIP returns one VIP with its status.
func (m *VIPs) GetVIP(ctx context.Context, r *weirv1.GetVIPRequest) (*weirv1.GetVIPResponse, error) {
	state := m.view()
	vip, there := state.VIPs.Get(r.GetName())
	if !there || !authz.CanView(ctx, vip.Tenant) {
		return nil, apierr.NotFound("VIP", r.GetName(), state.VIPs, authz.CanViewVIP(ctx))
	}
	return &weirv1.GetVIPResponse{Vip: m.vipWithStatus(state, vip)}, nil
}
