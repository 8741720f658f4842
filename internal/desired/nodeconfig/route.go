package nodeconfig

import (
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Routes are those of the VIPs that muxes do not announce as usual, by name of the VIP. It costs what is in force.
func Routes(s desired.State) []model.VIPRoute {
	var routes []model.VIPRoute
	for name, state := range s.Steps.All() {
		vip, there := s.VIPs.Get(name)
		if !there {
			continue
		}
		steps := state.InForce(vip)
		for i := len(steps) - 1; i >= 0; i-- { // the farthest one that is about routes
			if route, is := routeOf(s, vip, steps[i]); is {
				routes = append(routes, route)
				break
			}
		}
	}
	return routes
}

// routeOf is how vip is announced in a step, if that is about its route.
func routeOf(s desired.State, vip model.VIP, step model.OverloadStep) (model.VIPRoute, bool) {
	route := model.VIPRoute{VIP: vip.Address, Action: step.Action}
	pool, _ := s.PoolOf(vip.Address)
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
