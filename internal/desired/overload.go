package desired

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// limits are those of vip, and of the steps of its overload policy that are in force.
func (s State) limits(vip model.VIP) *model.Limits {
	limits := vip.Limits
	for _, step := range s.Steps.At(vip.Name).InForce(vip) {
		limits = limits.Least(step.Limits)
	}
	return limits
}

// Routes are those of the VIPs that muxes do not announce as usual, by name of the VIP. It costs what is in force.
func (s State) Routes() []model.VIPRoute {
	var routes []model.VIPRoute
	for name, state := range s.Steps.All() {
		vip, there := s.VIPs.Get(name)
		if !there {
			continue
		}
		steps := state.InForce(vip)
		for i := len(steps) - 1; i >= 0; i-- { // the farthest one that is about routes
			if route, is := s.route(vip, steps[i]); is {
				routes = append(routes, route)
				break
			}
		}
	}
	return routes
}

// route is how vip is announced in a step, if that is about its route.
func (s State) route(vip model.VIP, step model.OverloadStep) (model.VIPRoute, bool) {
	route := model.VIPRoute{VIP: vip.Address, Action: step.Action}
	pool, _ := s.poolOf(vip.Address)
	var to model.Diversion
	switch step.Action {
	case model.ActionScrub:
		scrubber, there := pool.Scrubber(step.Scrubber)
		if !there || !scrubber.Diverts(vip.Address) { // no pool loses one that a VIP names
			return route, false
		}
		to = scrubber.Diversion
	case model.ActionBlackhole:
		if pool.Blackhole == nil || !pool.Blackhole.Diverts(vip.Address) {
			route.Withdrawn = true
			return route, true
		}
		to = *pool.Blackhole
	default:
		return route, false
	}
	route.NextHop, route.Communities = to.NextHop(vip.Address), to.Communities
	return route, true
}

// poolOf is the pool that has the address, if one has.
func (s State) poolOf(address netip.Addr) (model.AddressPool, bool) {
	for pool := range s.Pools.Values() {
		if pool.Covers(address) {
			return pool, true
		}
	}
	return model.AddressPool{}, false
}

// scrubs says why vip can't be sent through the scrubber that it names; empty: it can, or names none.
func (s State) scrubs(vip model.VIP) (reason string) {
	step := vip.Overload.Step(model.ActionScrub)
	if step < 0 {
		return ""
	}
	name := vip.Overload.Steps[step].Scrubber
	pool, there := s.poolOf(vip.Address)
	if !there {
		return fmt.Sprintf("there is no scrubber %.64s: the address is in no pool, and pools have the scrubbers", name)
	}
	var known []string
	for _, scrubber := range pool.Scrubbers {
		if known = append(known, scrubber.Name); scrubber.Name != name {
			continue
		}
		if !scrubber.Diverts(vip.Address) {
			return fmt.Sprintf("scrubber %s of pool %s has neither an %s next hop nor a community", name, pool.Name, family(vip.Address))
		}
		return ""
	}
	if len(known) == 0 {
		return fmt.Sprintf("pool %s has no scrubber", pool.Name)
	}
	return fmt.Sprintf("pool %s has no scrubber %.64s: %s", pool.Name, name, list(known))
}
