package nodeconfig

import (
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// MuxEndpoint is endpoint e of vip as muxes run it, by its table, and by what is in force of its overload policy.
func MuxEndpoint(s desired.State, vip model.VIP, e model.Endpoint) model.MuxEndpoint {
	table := s.Tables.At(desired.Key(vip, e))
	endpoint := model.MuxEndpoint{
		Key: desired.Key(vip, e), Tenant: vip.Tenant, Buckets: table.MuxBuckets(), Backends: make([]model.MuxBackend, 0, len(table.Rows)),
		Cookies: table.Cookies, Affinity: e.Affinity == model.AffinityClient, IdleTimeout: e.Idle(),
		Ping: vip.Ping != model.PingIgnore, FlowLimit: vip.FlowLimit, Fastpath: vip.Fastpath,
		SYNCookies: e.WhenSYNCookies(), Multipath: HasMultipath(s, e),
		Allow: e.Allow, Deny: e.Deny, AllowLists: e.AllowLists, DenyLists: e.DenyLists,
		Limits: limits(s, vip), NAT: vnet.NATsInMux(vip), Hardware: len(s.SwitchesAt(vip.Address)) > 0,
	}
	if endpoint.Cookies == "" { // the table is older than cookies, and will be computed anew
		endpoint.Cookies = model.CookiesOff
	}
	numbers := hostNumbers(s, vip, e)
	for _, r := range table.Rows {
		endpoint.Backends = append(endpoint.Backends, model.MuxBackend{
			Slot: r.Slot, Tunnel: r.Tunnel, Backend: r.Backend, Host: numbers[r.Backend], Down: r.Down, Retired: r.Retired(),
		})
	}
	if len(table.Moves) > 0 && !table.Closed {
		endpoint.Previous = make([]model.Slot, len(table.Buckets))
		for _, m := range table.Moves {
			endpoint.Previous[m.Bucket] = m.From
		}
	}
	return endpoint
}

// limits are those of vip, and of the steps of its overload policy that are in force.
func limits(s desired.State, vip model.VIP) *model.Limits {
	limits := vip.Limits
	for _, step := range s.Steps.At(vip.Name).InForce(vip) {
		limits = limits.Least(step.Limits)
	}
	return limits
}
