package store

import (
	"iter"
	"maps"
	"net/netip"
	"sync/atomic"

	"github.com/weirlb/weir/internal/model"
)

// Delta names what differs between two States: what was written, and what is gone.
type Delta struct {
	VIPs    map[string]bool
	Tables  map[model.EndpointKey]bool
	Nodes   map[string]bool
	Health  map[string]bool // by host
	Status  map[string]bool // by node
	Streams map[string]bool // by node
	Ports   map[model.SNATKey]bool

	Placements  map[netip.Addr]bool
	PrefixLists map[string]bool
	Networks    map[string]bool
	HostNumbers map[string]bool // by host
	Overlay     bool
}

func newDelta() Delta {
	return Delta{
		VIPs: map[string]bool{}, Tables: map[model.EndpointKey]bool{}, Nodes: map[string]bool{},
		Health: map[string]bool{}, Status: map[string]bool{}, Streams: map[string]bool{},
		Ports: map[model.SNATKey]bool{}, Placements: map[netip.Addr]bool{}, PrefixLists: map[string]bool{}, Networks: map[string]bool{}, HostNumbers: map[string]bool{},
	}
}

// add takes over what next names.
func (d *Delta) add(next Delta) {
	maps.Copy(d.VIPs, next.VIPs)
	maps.Copy(d.Tables, next.Tables)
	maps.Copy(d.Nodes, next.Nodes)
	maps.Copy(d.Health, next.Health)
	maps.Copy(d.Status, next.Status)
	maps.Copy(d.Streams, next.Streams)
	maps.Copy(d.Ports, next.Ports)
	maps.Copy(d.Placements, next.Placements)
	maps.Copy(d.PrefixLists, next.PrefixLists)
	maps.Copy(d.Networks, next.Networks)
	maps.Copy(d.HostNumbers, next.HostNumbers)
	d.Overlay = d.Overlay || next.Overlay
}

// step is one of the steps that a Store's States took, in a list: whoever holds one finds those since.
type step struct {
	delta Delta
	next  atomic.Pointer[step]
}

// DeltaSince is what differs from old, an earlier State of the same Store. It costs what changed.
func (s *State) DeltaSince(old *State) Delta {
	all := newDelta()
	for at := old.step; at != s.step; {
		at = at.next.Load()
		all.add(at.delta)
	}
	return all
}

// FullDelta names all that the State holds.
func (s *State) FullDelta() Delta {
	return Delta{
		VIPs: setOf(s.VIPs.Keys()), Tables: setOf(s.Tables.Keys()), Nodes: setOf(s.Nodes.Keys()), Health: setOf(s.Health.Keys()),
		Status: setOf(s.Status.Keys()), Streams: setOf(s.Streams.Keys()), Ports: setOf(s.Ports.Keys()), PrefixLists: setOf(s.PrefixLists.Keys()),
		Networks: setOf(s.NetworkWritten.Keys()), Overlay: s.OverlayWritten != 0, HostNumbers: setOf(s.Networks.Numbers.Hosts()),
		Placements: setOf(s.Placements.Keys()),
	}
}

func setOf[K comparable](keys iter.Seq[K]) map[K]bool {
	set := map[K]bool{}
	for key := range keys {
		set[key] = true
	}
	return set
}
