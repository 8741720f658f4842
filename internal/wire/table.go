package wire

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// EndpointKeyToProto writes k.
func EndpointKeyToProto(k model.EndpointKey) *weirv1.EndpointKey {
	return &weirv1.EndpointKey{Vip: compile.OptionalAddress(k.VIP), Protocol: k.Protocol.String(), Port: uint32(k.Port)}
}

// EndpointKeyFromProto reads what EndpointKeyToProto wrote.
func EndpointKeyFromProto(p *weirv1.EndpointKey) (model.EndpointKey, error) {
	var f fields
	return f.endpointKey("", p), f.Err()
}

// endpointKey reads a key; path ends in a dot or is empty.
func (f *fields) endpointKey(path string, p *weirv1.EndpointKey) model.EndpointKey {
	return model.EndpointKey{
		VIP:      f.Address(path+"vip", p.GetVip()),
		Protocol: f.Protocol(path+"protocol", p.GetProtocol()),
		Port:     f.AnyPort(path+"port", p.GetPort()),
	}
}

// MuxEndpointToProto writes e.
func MuxEndpointToProto(e model.MuxEndpoint) *weirv1.MuxEndpoint {
	p := &weirv1.MuxEndpoint{
		Endpoint: EndpointKeyToProto(e.Key), Tenant: e.Tenant,
		Buckets:  make([]uint32, 0, len(e.Buckets)),
		Backends: make([]*weirv1.MuxBackend, 0, len(e.Backends)),
		Cookies:  string(e.Cookies), Affinity: e.Affinity, IdleTimeout: compile.OptionalDuration(e.IdleTimeout),
		Ping: e.Ping, FlowLimit: e.FlowLimit, Fastpath: compile.FastpathMessage(e.Fastpath),
		SynCookies: string(e.SYNCookies), Multipath: e.Multipath,
		Allow: compile.SourceTexts(e.Allow), Deny: compile.SourceTexts(e.Deny),
		AllowLists: e.AllowLists, DenyLists: e.DenyLists,
		Limits: compile.LimitsMessage(e.Limits), Nat: e.NAT, Hardware: e.Hardware,
	}
	for _, slot := range e.Buckets {
		p.Buckets = append(p.Buckets, uint32(slot))
	}
	if len(e.Previous) > 0 {
		p.Previous = make([]uint32, 0, len(e.Previous))
	}
	for _, slot := range e.Previous {
		p.Previous = append(p.Previous, uint32(slot))
	}
	for _, b := range e.Backends {
		p.Backends = append(p.Backends, &weirv1.MuxBackend{
			Slot: uint32(b.Slot), Tunnel: compile.OptionalAddress(b.Tunnel), Down: b.Down, Retired: b.Retired,
			Address: compile.OptionalAddress(b.Backend.Addr()), Port: uint32(b.Backend.Port()), Host: b.Host,
		})
	}
	return p
}

// MuxEndpointFromProto reads what MuxEndpointToProto wrote. It holds that the number of buckets is a
// power of two and that each names a backend of the endpoint, as each previous one does.
func MuxEndpointFromProto(p *weirv1.MuxEndpoint) (model.MuxEndpoint, error) {
	var f fields
	e := model.MuxEndpoint{
		Key: f.endpointKey("endpoint.", p.GetEndpoint()), Tenant: p.GetTenant(),
		Cookies:  oneOf(&f, "cookies", p.GetCookies(), model.CookiesOff, model.CookiesSettling, model.CookiesOn),
		Affinity: p.GetAffinity(), Ping: p.GetPing(), FlowLimit: p.GetFlowLimit(), NAT: p.GetNat(), Hardware: p.GetHardware(),
	}
	e.IdleTimeout = f.idle("idleTimeout", e.Key.Protocol, p.GetIdleTimeout())
	e.Fastpath = f.Fastpath("fastpath", p.GetFastpath())
	e.SYNCookies = oneOf(&f, "synCookies", p.GetSynCookies(), model.SYNCookiesNever, model.SYNCookiesAuto, model.SYNCookiesAlways)
	e.Limits, e.Multipath = compile.Limits(p.GetLimits()), p.GetMultipath()
	e.Allow, e.Deny = f.Prefixes("allow", p.GetAllow()), f.Prefixes("deny", p.GetDeny())
	e.AllowLists, e.DenyLists = p.GetAllowLists(), p.GetDenyLists()
	known := make(map[model.Slot]bool, len(p.GetBackends()))
	for i, b := range p.GetBackends() {
		path := fmt.Sprintf("backends[%d].", i)
		slot := f.slot(path+"slot", b.GetSlot())
		if known[slot] {
			f.Refuse(path+"slot", "is taken by another backend: %d", slot)
		}
		known[slot] = true
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot: slot, Tunnel: f.Address(path+"tunnel", b.GetTunnel()), Down: b.GetDown(), Retired: b.GetRetired(),
			Backend: f.addrPort(path, e.Key, b.GetAddress(), b.GetPort()), Host: f.optionalNumber(path+"host", b.GetHost()),
		})
	}
	e.Buckets, e.Previous = f.buckets(p, known)
	return e, f.Err()
}

// buckets reads the buckets of an endpoint with the known slots, and the previous ones.
func (f *fields) buckets(p *weirv1.MuxEndpoint, known map[model.Slot]bool) (buckets, previous []model.Slot) {
	if n := len(p.GetBuckets()); n != 0 && bits.OnesCount(uint(n)) != 1 {
		f.Refuse("buckets", "must be a power of two, are %d", n)
	}
	for i, n := range p.GetBuckets() {
		if n > model.MaxBackends || !known[model.Slot(n)] {
			f.Refuse(fmt.Sprintf("buckets[%d]", i), "names slot %d, which no backend has", n)
			break
		}
		buckets = append(buckets, model.Slot(n))
	}
	if n := len(p.GetPrevious()); n != 0 && n != len(p.GetBuckets()) {
		f.Refuse("previous", "must be as many as buckets (%d), are %d", len(p.GetBuckets()), n)
	}
	for i, n := range p.GetPrevious() {
		if n > model.MaxBackends || n != 0 && !known[model.Slot(n)] {
			f.Refuse(fmt.Sprintf("previous[%d]", i), "names slot %d, which no backend has", n)
			break
		}
		previous = append(previous, model.Slot(n))
	}
	return buckets, previous
}

// idle reads how long silent flows are remembered; left out means the protocol's default.
func (f *fields) idle(path string, protocol model.Protocol, p *durationpb.Duration) time.Duration {
	idle := f.Duration(path, p, model.Endpoint{Protocol: protocol}.Idle())
	if idle < model.MinIdle || idle > model.MaxIdle {
		f.Refuse(path, "must be %s to %s, is %s", model.MinIdle, model.MaxIdle, idle)
	}
	return idle
}

// addrPort reads the fields address and port below path, of a backend of the endpoint.
func (f *fields) addrPort(path string, endpoint model.EndpointKey, address string, port uint32) netip.AddrPort {
	if endpoint.Port == model.AllPorts && port == 0 {
		return netip.AddrPortFrom(f.Address(path+"address", address), 0)
	}
	return netip.AddrPortFrom(f.Address(path+"address", address), f.Port(path+"port", port))
}

// HostBackendToProto writes b.
func HostBackendToProto(b model.HostBackend) *weirv1.HostBackend {
	return &weirv1.HostBackend{
		Endpoint: EndpointKeyToProto(b.Endpoint), Tunnel: compile.OptionalAddress(b.Tunnel),
		Address: compile.OptionalAddress(b.Backend.Addr()), Port: uint32(b.Backend.Port()),
		HealthCheck: compile.HealthCheckMessage(b.HealthCheck),
		Slot:        uint32(b.Slot), Cookies: b.Cookies, Buckets: b.Buckets, Draining: b.Draining,
		ChainPeers: compile.AddressTexts(b.ChainPeers), Homes: compile.AddressTexts(b.Homes), Affinity: b.Affinity, IdleTimeout: compile.OptionalDuration(b.IdleTimeout),
		Fastpath: b.Fastpath, Leave: compile.SourceTexts(b.Leave), Stay: compile.SourceTexts(b.Stay), SynCookies: string(b.SYNCookies), Tenant: b.Tenant,
		Allow: compile.SourceTexts(b.Allow), Deny: compile.SourceTexts(b.Deny),
	}
}

// HostBackendFromProto reads what HostBackendToProto wrote.
func HostBackendFromProto(p *weirv1.HostBackend) (model.HostBackend, error) {
	var f fields
	b := model.HostBackend{
		Endpoint:    f.endpointKey("endpoint.", p.GetEndpoint()),
		Tunnel:      f.Address("tunnel", p.GetTunnel()),
		HealthCheck: f.HealthCheck("healthCheck", p.GetHealthCheck()),
		Cookies:     p.GetCookies(), Affinity: p.GetAffinity(), Fastpath: p.GetFastpath(),
		Buckets: p.GetBuckets(), Draining: p.GetDraining(), ChainPeers: f.Addresses("chain_peers", p.GetChainPeers()), Homes: f.Addresses("homes", p.GetHomes()), Tenant: p.GetTenant(),
	}
	b.Backend = f.addrPort("", b.Endpoint, p.GetAddress(), p.GetPort())
	b.IdleTimeout = f.idle("idleTimeout", b.Endpoint.Protocol, p.GetIdleTimeout())
	b.SYNCookies = oneOf(&f, "synCookies", p.GetSynCookies(), model.SYNCookiesNever, model.SYNCookiesAuto, model.SYNCookiesAlways)
	b.Leave, b.Stay = f.Prefixes("leave", p.GetLeave()), f.Prefixes("stay", p.GetStay())
	b.Allow, b.Deny = f.Prefixes("allow", p.GetAllow()), f.Prefixes("deny", p.GetDeny())
	if p.GetSlot() != 0 || p.GetCookies() {
		b.Slot = f.slot("slot", p.GetSlot())
	}
	for i, n := range b.Draining {
		if n >= b.Buckets || i > 0 && n <= b.Draining[i-1] {
			f.Refuse(fmt.Sprintf("draining[%d]", i), "must be one of %d buckets, in order, is %d", b.Buckets, n)
			break
		}
	}
	if b.HealthCheck != nil {
		for _, p := range b.HealthCheck.Problems("healthCheck") {
			f.Refuse(p.Field, "%s", p.Reason)
		}
	}
	return b, f.Err()
}

// HostBackendKeyToProto writes k.
func HostBackendKeyToProto(k model.HostBackendKey) *weirv1.HostBackendKey {
	return &weirv1.HostBackendKey{Endpoint: EndpointKeyToProto(k.Endpoint), Tunnel: compile.OptionalAddress(k.Tunnel)}
}

// HostBackendKeyFromProto reads what HostBackendKeyToProto wrote.
func HostBackendKeyFromProto(p *weirv1.HostBackendKey) (model.HostBackendKey, error) {
	var f fields
	k := model.HostBackendKey{
		Endpoint: f.endpointKey("endpoint.", p.GetEndpoint()),
		Tunnel:   f.Address("tunnel", p.GetTunnel()),
	}
	return k, f.Err()
}

// BackendHealthToProto writes h.
func BackendHealthToProto(h model.BackendHealth) *weirv1.BackendHealth {
	return &weirv1.BackendHealth{
		Endpoint: EndpointKeyToProto(h.Endpoint), Address: compile.OptionalAddress(h.Backend.Addr()), Port: uint32(h.Backend.Port()),
		Health: string(h.Health), Reason: h.Reason,
	}
}

// BackendHealthFromProto reads what BackendHealthToProto wrote.
func BackendHealthFromProto(p *weirv1.BackendHealth) (model.BackendHealth, error) {
	var f fields
	h := model.BackendHealth{
		Endpoint: f.endpointKey("endpoint.", p.GetEndpoint()),
		Health:   model.Health(p.GetHealth()), Reason: p.GetReason(),
	}
	h.Backend = f.addrPort("", h.Endpoint, p.GetAddress(), p.GetPort())
	if h.Health != model.HealthHealthy && h.Health != model.HealthUnhealthy {
		f.Refuse("health", "must be healthy or unhealthy, is %q", p.GetHealth())
	}
	return h, f.Err()
}

// BackendSessionsToProto writes s.
func BackendSessionsToProto(s model.BackendSessions) *weirv1.BackendSessions {
	return &weirv1.BackendSessions{
		Endpoint: EndpointKeyToProto(s.Key.Endpoint), Tunnel: compile.OptionalAddress(s.Key.Tunnel),
		Sessions: s.Sessions, WithoutCookie: s.WithoutCookie, Draining: s.Draining,
	}
}

// BackendSessionsFromProto reads what BackendSessionsToProto wrote.
func BackendSessionsFromProto(p *weirv1.BackendSessions) (model.BackendSessions, error) {
	var f fields
	s := model.BackendSessions{
		Key: model.HostBackendKey{
			Endpoint: f.endpointKey("endpoint.", p.GetEndpoint()), Tunnel: f.Address("tunnel", p.GetTunnel()),
		},
		Sessions: p.GetSessions(), WithoutCookie: p.GetWithoutCookie(), Draining: p.GetDraining(),
	}
	if s.Draining > s.WithoutCookie || s.WithoutCookie > s.Sessions {
		f.Refuse("draining", "must be at most withoutCookie, and that at most sessions: %d, %d, %d",
			s.Draining, s.WithoutCookie, s.Sessions)
	}
	return s, f.Err()
}

// CountersToProto writes named counters, by name.
func CountersToProto(counters map[string]model.Counter) []*weirv1.NamedCounter {
	all := make([]*weirv1.NamedCounter, 0, len(counters))
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		c := counters[name]
		all = append(all, &weirv1.NamedCounter{Name: name, Packets: c.Packets, Bytes: c.Bytes})
	}
	return all
}

// FlowFromProto reads the flow that a user asks about.
func FlowFromProto(p *weirv1.ExplainRequest) (model.Flow, error) {
	var f fields
	flow := model.Flow{
		Protocol: f.Protocol("protocol", p.GetProtocol()),
		Source: netip.AddrPortFrom(f.Address("sourceAddress", p.GetSourceAddress()),
			f.Port("sourcePort", p.GetSourcePort())),
		Destination: netip.AddrPortFrom(f.Address("destinationAddress", p.GetDestinationAddress()),
			f.Port("destinationPort", p.GetDestinationPort())),
	}
	if f.Err() == nil && flow.Source.Addr().Is4() != flow.Destination.Addr().Is4() {
		f.Refuse("sourceAddress", "must be of the destination's family, is %s", flow.Source.Addr())
	}
	return flow, f.Err()
}
