package wire

import (
	"errors"
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// steeredToProto writes what changes of VIPs that switches hold.
func steeredToProto(u steering.Update) (changed []*weirv1.SteeredVIP, removed []string) {
	for _, c := range u.Changed {
		p := &weirv1.SteeredVIP{
			Vip: compile.OptionalAddress(c.Address), KeepsSources: c.KeepsSources,
			Switches: compile.AddressTexts(c.Switches), Hosts: compile.AddressTexts(c.Peers), Ping: c.Ping, ByHost: c.ByHost,
		}
		for _, e := range c.Endpoints {
			p.Endpoints = append(p.Endpoints, steeredEndpointToProto(e))
		}
		for _, k := range c.Removed {
			p.Removed = append(p.Removed, steeredKeyToProto(k))
		}
		changed = append(changed, p)
	}
	return changed, compile.AddressTexts(u.Removed)
}

func steeredEndpointToProto(e steering.EndpointChange) *weirv1.SteeredEndpoint {
	p := &weirv1.SteeredEndpoint{
		Endpoint: steeredKeyToProto(e.Key), KeepsBackends: e.KeepsBackends, KeepsBuckets: e.KeepsBuckets,
		Buckets: slotNumbers(e.Buckets), Previous: slotNumbers(e.Previous),
		Cookies: string(e.Cookies), Affinity: e.Affinity, UdpLocal: e.LocalUDP,
	}
	for _, b := range e.Backends {
		p.Backends = append(p.Backends, &weirv1.SteeredBackend{Slot: uint32(b.Slot), Tunnel: compile.OptionalAddress(b.Tunnel), Down: b.Down})
	}
	for _, m := range e.Moves {
		p.Moves = append(p.Moves, &weirv1.BucketMove{Bucket: m.Bucket, Slot: uint32(m.Slot), Previous: uint32(m.Previous)})
	}
	return p
}

// steeredKeyToProto writes the key of an endpoint, or of a VIP's ports of source NAT: that has no protocol.
func steeredKeyToProto(k model.EndpointKey) *weirv1.EndpointKey {
	if k == steering.Ports(k.VIP) {
		return &weirv1.EndpointKey{Vip: compile.OptionalAddress(k.VIP)}
	}
	return EndpointKeyToProto(k)
}

// steeredKey reads what steeredKeyToProto wrote.
func steeredKey(f *fields, path string, p *weirv1.EndpointKey) model.EndpointKey {
	if p.GetProtocol() == "" && p.GetPort() == 0 {
		return steering.Ports(f.Address(path+"vip", p.GetVip()))
	}
	return f.endpointKey(path, p)
}

func slotNumbers(slots []model.Slot) []uint32 {
	all := make([]uint32, len(slots))
	for i, slot := range slots {
		all[i] = uint32(slot)
	}
	return all
}

// steeredFromProto reads what steeredToProto wrote. What follows on it package steering holds.
func steeredFromProto(changed []*weirv1.SteeredVIP, removed []string) (u steering.Update, err error) {
	var f fields
	u.Removed = f.Addresses("steeredRemoved", removed)
	errs := []error{f.Err()}
	for i, p := range changed {
		var f fields
		c := steering.Change{
			Address: f.Address("vip", p.GetVip()), KeepsSources: p.GetKeepsSources(),
			Switches: f.Addresses("switches", p.GetSwitches()), Peers: f.Addresses("hosts", p.GetHosts()), Ping: p.GetPing(), ByHost: p.GetByHost(),
		}
		for j, e := range p.GetEndpoints() {
			c.Endpoints = append(c.Endpoints, steeredEndpoint(&f, fmt.Sprintf("endpoints[%d].", j), e))
		}
		for j, k := range p.GetRemoved() {
			c.Removed = append(c.Removed, steeredKey(&f, fmt.Sprintf("removed[%d].", j), k))
		}
		u.Changed = append(u.Changed, c)
		errs = append(errs, compile.Below(fmt.Sprintf("steered[%d]", i), f.Err()))
	}
	return u, errors.Join(errs...)
}

func steeredEndpoint(f *fields, path string, p *weirv1.SteeredEndpoint) steering.EndpointChange {
	e := steering.EndpointChange{KeepsBackends: p.GetKeepsBackends(), KeepsBuckets: p.GetKeepsBuckets()}
	e.Key = steeredKey(f, path+"endpoint.", p.GetEndpoint())
	e.Cookies = oneOf(f, path+"cookies", p.GetCookies(), model.CookiesOff, model.CookiesSettling, model.CookiesOn)
	e.Affinity, e.LocalUDP = p.GetAffinity(), p.GetUdpLocal()
	e.Buckets, e.Previous = optionalSlots(f, path+"buckets", p.GetBuckets()), optionalSlots(f, path+"previous", p.GetPrevious())
	for i, b := range p.GetBackends() {
		at := fmt.Sprintf("%sbackends[%d].", path, i)
		e.Backends = append(e.Backends, steering.Backend{Slot: f.slot(at+"slot", b.GetSlot()), Tunnel: f.Address(at+"tunnel", b.GetTunnel()), Down: b.GetDown()})
	}
	for _, m := range p.GetMoves() {
		slots := optionalSlots(f, path+"moves", []uint32{m.GetSlot(), m.GetPrevious()})
		e.Moves = append(e.Moves, steering.Move{Bucket: m.GetBucket(), Slot: slots[0], Previous: slots[1]})
	}
	return e
}

// optionalSlots reads slots, of which 0 is none.
func optionalSlots(f *fields, path string, numbers []uint32) []model.Slot {
	if len(numbers) == 0 {
		return nil
	}
	slots := make([]model.Slot, 0, len(numbers))
	for i, n := range numbers {
		if n > model.MaxBackends {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "must be at most %d, is %d", model.MaxBackends, n)
		}
		slots = append(slots, model.Slot(n))
	}
	return slots
}
