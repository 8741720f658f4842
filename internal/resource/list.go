package resource

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// anyNode holds for all nodes: tenants see that they are there.
func anyNode(model.Node) bool { return true }

// fits says whether the caller asked for the VIP and may see it.
func fits(ctx context.Context, f query.Filter, vip model.VIP) bool {
	return f.InRange(vip.Name) && f.Fits(vip.Tenant, vip.Labels) && authz.CanView(ctx, vip.Tenant)
}

// maxAddresses bounds the addresses that VIPs are listed by.
const maxAddresses = 256

// candidates are the VIPs to choose from, by name, from a name on: all of them, or those that an index finds.
func candidates(ctx context.Context, s *store.State, r *weirv1.ListVIPsRequest, from string) (iter.Seq[model.VIP], error) {
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
	return visible(ctx, s, r.GetTenant(), from), nil
}

// visible are the VIPs of a tenant, or of all that the caller may see, by name, from a name on.
func visible(ctx context.Context, s *store.State, tenant, from string) iter.Seq[model.VIP] {
	caller := trust.FromContext(ctx)
	tenants, everywhere := caller.Tenants(trust.Viewer)
	switch {
	case tenant != "":
		tenants = []string{tenant}
	case everywhere || caller.Anonymous():
		return func(yield func(model.VIP) bool) {
			for _, vip := range s.VIPs.From(from) {
				if !yield(vip) {
					return
				}
			}
		}
	}
	return desired.VIPsOfTenants(s.State, tenants, from)
}

// warns says whether GetStatus warns of a VIP.
func warns(s *store.State, vip model.VIP, muxes []model.Node, a *answering.Muxes) bool {
	for range vipWarnings(s, vip, a) {
		return true
	}
	return len(rejectionsOf(s, vip, muxes)) > 0
}

// ListVIPs lists VIPs by name.
func (m *VIPs) ListVIPs(ctx context.Context, r *weirv1.ListVIPsRequest) (*weirv1.ListVIPsResponse, error) {
	f, err := query.NewFilter(r.GetTenant(), r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	p, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	state := m.view()
	named, err := candidates(ctx, state, r, f.From(p.After))
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	muxes, answered := refusing(state), answering.New(m.Reported, state)
	list := query.Collect[*weirv1.VIP](p)
	for vip := range named {
		if !f.InRange(vip.Name) {
			break
		}
		if !fits(ctx, f, vip) || r.GetWithWarnings() && !warns(state, vip, muxes, answered) {
			continue
		}
		if !list.Add(vip.Name, func() *weirv1.VIP { return m.vipWithStatus(state, vip, answered) }) {
			break
		}
	}
	return &weirv1.ListVIPsResponse{Vips: list.All, NextPageToken: list.Next, ResourceVersion: state.Revision()}, nil
}

// GetVIP returns one VIP with its status.
func (m *VIPs) GetVIP(ctx context.Context, r *weirv1.GetVIPRequest) (*weirv1.GetVIPResponse, error) {
	state := m.view()
	vip, there := state.VIPs.Get(r.GetName())
	if !there || !authz.CanView(ctx, vip.Tenant) {
		return nil, apierr.NotFound("VIP", r.GetName(), state.VIPs, authz.CanViewVIP(ctx))
	}
	p := m.vipWithStatus(state, vip, answering.New(m.Reported, state))
	p.Status.Networks = m.bypassed(state, vip)
	condition.Sizes(state, m.Reported, vip, p.Status.GetSwitches())
	p.Status.SteeringRefused = condition.Unsteered(state, m.Reported, vip)
	if answered := condition.SYNCookies(condition.AnsweredBy(state, m.Reported, vip)); answered != nil {
		p.Status.Conditions = append(p.Status.Conditions, answered)
	}
	return &weirv1.GetVIPResponse{Vip: p}, nil
}
