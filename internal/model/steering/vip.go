package steering

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// MaxBuckets bounds those of an endpoint, as in package bucket.
const MaxBuckets = 65536

// VIP is a VIP that switches hold, as its hosts know it.
type VIP struct {
	Address   netip.Addr
	Switches  []netip.Addr // outer sources of the switches, in order
	Peers     []netip.Addr // outer sources of the VIP's hosts, in order
	Ping      bool         // hosts answer echo requests
	ByHost    bool         // switches have one tunnel for all backends on a host
	Endpoints []Endpoint   // all of them, in order of their keys: also those that the host has no backend of, and Ports
}

// Endpoint is an endpoint as its VIP's hosts choose a backend of it: as muxes do.
type Endpoint struct {
	Key      model.EndpointKey
	Buckets  []model.Slot // a power of two of them; empty: no backend, drop
	Previous []model.Slot // by bucket, as in model.MuxEndpoint; empty: none at all
	Backends []Backend    // in order of their slots
	Cookies  model.Cookies
	Affinity bool // hash the client's address without its port
	LocalUDP bool // flows of UDP are served where they arrive
}

// Ports is the key of how the ports of a VIP's source NAT are told, as an endpoint: its buckets are the ranges of ports, and
// its backends the workloads.
func Ports(vip netip.Addr) model.EndpointKey { return model.EndpointKey{VIP: vip} }

// Backend is a row of an endpoint's slots.
type Backend struct {
	Slot   model.Slot
	Tunnel netip.Addr // destination of the outer header
	Down   bool       // no connection can be there
}

// Equal says whether both are the same to a host.
func (v VIP) Equal(other VIP) bool {
	return v.Address == other.Address && v.Ping == other.Ping && v.ByHost == other.ByHost && slices.Equal(v.Switches, other.Switches) && slices.Equal(v.Peers, other.Peers) &&
		slices.EqualFunc(v.Endpoints, other.Endpoints, Endpoint.Equal)
}

// Equal says whether both are the same to a host. That no bucket has moved may be said in two ways.
func (e Endpoint) Equal(other Endpoint) bool {
	if e.Key != other.Key || e.Cookies != other.Cookies || e.Affinity != other.Affinity || e.LocalUDP != other.LocalUDP {
		return false
	}
	if !slices.Equal(e.Backends, other.Backends) || !slices.Equal(e.Buckets, other.Buckets) {
		return false
	}
	if len(e.Previous) == len(other.Previous) {
		return slices.Equal(e.Previous, other.Previous)
	}
	moved := func(slot model.Slot) bool { return slot != 0 }
	return !slices.ContainsFunc(e.Previous, moved) && !slices.ContainsFunc(other.Previous, moved)
}

// Backend is the row of a slot.
func (e Endpoint) Backend(slot model.Slot) (Backend, bool) {
	i, found := slices.BinarySearchFunc(e.Backends, slot, func(b Backend, s model.Slot) int { return int(b.Slot) - int(s) })
	if !found {
		return Backend{}, false
	}
	return e.Backends[i], true
}

// MaxLocals bounds what Locals returns.
const MaxLocals = 64

// Locals are the slots of backends that are here and take new connections, as often as their shares of the buckets say, as
// far as there is room: a flow's hash chooses one of them.
func (e Endpoint) Locals(here func(tunnel netip.Addr) bool) []model.Slot {
	is := make(map[model.Slot]bool, len(e.Backends))
	for _, b := range e.Backends {
		is[b.Slot] = !b.Down && here(b.Tunnel)
	}
	own := slices.Sorted(func(yield func(model.Slot) bool) {
		for _, slot := range e.Buckets {
			if is[slot] && !yield(slot) {
				return
			}
		}
	})
	locals := make([]model.Slot, min(len(own), MaxLocals))
	for i := range locals {
		locals[i] = own[i*len(own)/len(locals)]
	}
	return locals
}

// Lives says whether a connection can be at the slot's backend.
func (e Endpoint) Lives(slot model.Slot) bool {
	b, found := e.Backend(slot)
	return found && !b.Down
}

// Choice is what a bucket names: the slot, and the one before while connections from then may live; 0: none.
func (e Endpoint) Choice(hash uint32) (slot, previous model.Slot) {
	if len(e.Buckets) == 0 {
		return 0, 0
	}
	bucket := hash & uint32(len(e.Buckets)-1)
	slot = e.Buckets[bucket]
	if len(e.Previous) > 0 {
		previous = e.Previous[bucket]
	}
	return slot, previous
}
