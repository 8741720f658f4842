package rpc

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// EndpointKeyToProto writes k.
func EndpointKeyToProto(k model.EndpointKey) *weirv1.EndpointKey {
	return &weirv1.EndpointKey{Vip: optional(k.VIP), Protocol: k.Protocol.String(), Port: uint32(k.Port)}
}

// EndpointKeyFromProto reads what EndpointKeyToProto wrote.
func EndpointKeyFromProto(p *weirv1.EndpointKey) (model.EndpointKey, error) {
	var f fields
	return f.endpointKey("", p), f.err()
}

// endpointKey reads a key; path ends in a dot or is empty.
func (f *fields) endpointKey(path string, p *weirv1.EndpointKey) model.EndpointKey {
	return model.EndpointKey{
		VIP:      f.address(path+"vip", p.GetVip()),
		Protocol: f.protocol(path+"protocol", p.GetProtocol()),
		Port:     f.port(path+"port", p.GetPort()),
	}
}

// MuxEndpointToProto writes e.
func MuxEndpointToProto(e model.MuxEndpoint) *weirv1.MuxEndpoint {
	p := &weirv1.MuxEndpoint{
		Endpoint: EndpointKeyToProto(e.Key), Tenant: e.Tenant,
		Buckets:  make([]uint32, 0, len(e.Buckets)),
		Backends: make([]*weirv1.MuxBackend, 0, len(e.Backends)),
	}
	for _, slot := range e.Buckets {
		p.Buckets = append(p.Buckets, uint32(slot))
	}
	for _, b := range e.Backends {
		p.Backends = append(p.Backends, &weirv1.MuxBackend{
			Slot: uint32(b.Slot), Tunnel: optional(b.Tunnel), Down: b.Down,
			Address: optional(b.Backend.Addr()), Port: uint32(b.Backend.Port()),
		})
	}
	return p
}

// MuxEndpointFromProto reads what MuxEndpointToProto wrote. It holds that the number of buckets is a
// power of two and that each names a backend of the endpoint.
func MuxEndpointFromProto(p *weirv1.MuxEndpoint) (model.MuxEndpoint, error) {
	var f fields
	e := model.MuxEndpoint{Key: f.endpointKey("endpoint.", p.GetEndpoint()), Tenant: p.GetTenant()}
	known := make(map[model.Slot]bool, len(p.GetBackends()))
	for i, b := range p.GetBackends() {
		path := fmt.Sprintf("backends[%d].", i)
		slot := f.slot(path+"slot", b.GetSlot())
		if known[slot] {
			f.refuse(path+"slot", "is taken by another backend: %d", slot)
		}
		known[slot] = true
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot: slot, Tunnel: f.address(path+"tunnel", b.GetTunnel()), Down: b.GetDown(),
			Backend: f.addrPort(path, b.GetAddress(), b.GetPort()),
		})
	}
	if n := len(p.GetBuckets()); n != 0 && bits.OnesCount(uint(n)) != 1 {
		f.refuse("buckets", "must be a power of two, are %d", n)
	}
	for i, n := range p.GetBuckets() {
		if n > model.MaxBackends || !known[model.Slot(n)] {
			f.refuse(fmt.Sprintf("buckets[%d]", i), "names slot %d, which no backend has", n)
			break
		}
		e.Buckets = append(e.Buckets, model.Slot(n))
	}
	return e, f.err()
}

// addrPort reads the fields address and port below path.
func (f *fields) addrPort(path, address string, port uint32) netip.AddrPort {
	return netip.AddrPortFrom(f.address(path+"address", address), f.port(path+"port", port))
}

// HostBackendToProto writes b.
func HostBackendToProto(b model.HostBackend) *weirv1.HostBackend {
	return &weirv1.HostBackend{
		Endpoint: EndpointKeyToProto(b.Endpoint), Tunnel: optional(b.Tunnel),
		Address: optional(b.Backend.Addr()), Port: uint32(b.Backend.Port()),
		HealthCheck: HealthCheckToProto(b.HealthCheck),
	}
}

// HostBackendFromProto reads what HostBackendToProto wrote.
func HostBackendFromProto(p *weirv1.HostBackend) (model.HostBackend, error) {
	var f fields
	b := model.HostBackend{
		Endpoint:    f.endpointKey("endpoint.", p.GetEndpoint()),
		Tunnel:      f.address("tunnel", p.GetTunnel()),
		Backend:     f.addrPort("", p.GetAddress(), p.GetPort()),
		HealthCheck: f.healthCheck("healthCheck", p.GetHealthCheck()),
	}
	if b.HealthCheck != nil {
		f.add(b.HealthCheck.Validate("healthCheck"))
	}
	return b, f.err()
}

// HostBackendKeyToProto writes k.
func HostBackendKeyToProto(k model.HostBackendKey) *weirv1.HostBackendKey {
	return &weirv1.HostBackendKey{Endpoint: EndpointKeyToProto(k.Endpoint), Tunnel: optional(k.Tunnel)}
}

// HostBackendKeyFromProto reads what HostBackendKeyToProto wrote.
func HostBackendKeyFromProto(p *weirv1.HostBackendKey) (model.HostBackendKey, error) {
	var f fields
	k := model.HostBackendKey{
		Endpoint: f.endpointKey("endpoint.", p.GetEndpoint()),
		Tunnel:   f.address("tunnel", p.GetTunnel()),
	}
	return k, f.err()
}

// BackendHealthToProto writes h.
func BackendHealthToProto(h model.BackendHealth) *weirv1.BackendHealth {
	return &weirv1.BackendHealth{
		Endpoint: EndpointKeyToProto(h.Endpoint), Address: optional(h.Backend.Addr()), Port: uint32(h.Backend.Port()),
		Health: string(h.Health), Reason: h.Reason,
	}
}

// BackendHealthFromProto reads what BackendHealthToProto wrote.
func BackendHealthFromProto(p *weirv1.BackendHealth) (model.BackendHealth, error) {
	var f fields
	h := model.BackendHealth{
		Endpoint: f.endpointKey("endpoint.", p.GetEndpoint()),
		Backend:  f.addrPort("", p.GetAddress(), p.GetPort()),
		Health:   model.Health(p.GetHealth()), Reason: p.GetReason(),
	}
	if h.Health != model.HealthHealthy && h.Health != model.HealthUnhealthy {
		f.refuse("health", "must be healthy or unhealthy, is %q", p.GetHealth())
	}
	return h, f.err()
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
		Protocol: f.protocol("protocol", p.GetProtocol()),
		Source: netip.AddrPortFrom(f.address("sourceAddress", p.GetSourceAddress()),
			f.port("sourcePort", p.GetSourcePort())),
		Destination: netip.AddrPortFrom(f.address("destinationAddress", p.GetDestinationAddress()),
			f.port("destinationPort", p.GetDestinationPort())),
	}
	if len(f.errs) == 0 && flow.Source.Addr().Is4() != flow.Destination.Addr().Is4() {
		f.refuse("sourceAddress", "must be of the destination's family, is %s", flow.Source.Addr())
	}
	return flow, f.err()
}
