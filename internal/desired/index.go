package desired

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// index finds things in a State without walking all of it. It follows PutVIP and the like.
type index struct {
	uses   sorted.Map[use, none]
	living sorted.Map[place, none]
	muxes  sorted.Map[string, model.Node]
	moving sorted.Map[model.EndpointKey, none] // tables in transition
	free   sorted.Map[model.EndpointKey, none] // tables with retired slots
	taken  sorted.Map[netip.Addr, taken]       // ranges of each VIP that somebody has, by address

	naming  sorted.Map[naming, none]                      // who names which prefix list
	leaving sorted.Map[model.SNATKey, model.SNATWorkload] // who leaves as VIPs
	digest  uint64                                        // of the ranges of all of them, as muxes have them
	ranges  int                                           // how many those are

	usage sorted.Map[string, Usage] // of tenants, but for prefixes
}

type none = struct{}

// use is what an address is used for.
type use struct {
	address netip.Addr
	as      purpose
	name    string // of the VIP or node
	host    string // that a tunnel leads to, or a backend lives on
}

// purpose is what for. A backend's address that is its tunnel too is only the latter.
type purpose uint8

const (
	asVIP purpose = iota
	asBackend
	asTunnel
	asNode
	asWorkload // of a VIP's SNAT; it is a backend's or a tunnel's too
)

// Compare orders uses by address.
func (u use) Compare(other use) int {
	return cmp.Or(u.address.Compare(other.address), cmp.Compare(u.as, other.as),
		cmp.Compare(u.name, other.name), cmp.Compare(u.host, other.host))
}

// place says that a host has a backend of a VIP, or a workload that leaves as it.
type place struct{ host, vip string }

// Compare orders places by host.
func (p place) Compare(other place) int {
	return cmp.Or(cmp.Compare(p.host, other.host), cmp.Compare(p.vip, other.vip))
}

// Clone returns a State that may be written to; its price does not depend on the State's size.
func (s State) Clone() State {
	return State{
		VIPs: s.VIPs.Clone(), Tables: s.Tables.Clone(), Nodes: s.Nodes.Clone(), Health: s.Health.Clone(),
		Pools: s.Pools.Clone(), Ports: s.Ports.Clone(), Steps: s.Steps.Clone(), PrefixLists: s.PrefixLists.Clone(), Restored: s.Restored,
		index: index{
			uses: s.uses.Clone(), living: s.living.Clone(), muxes: s.muxes.Clone(), moving: s.moving.Clone(), free: s.free.Clone(), taken: s.taken.Clone(),
			naming: s.naming.Clone(), leaving: s.leaving.Clone(), digest: s.digest, ranges: s.ranges, usage: s.usage.Clone(),
		},
	}
}

// PutVIP adds or replaces a VIP. What is indexed of it already is not written again, as each write copies a path
// of nodes.
func (s *State) PutVIP(vip model.VIP) {
	old := s.VIPs.At(vip.Name)
	s.removeSNATClients(old)
	if old.Name != "" {
		s.countUse(old, -1)
	}
	s.VIPs.Set(vip.Name, vip)
	s.countUse(vip, 1)
	replace(&s.uses, eachUse, old, vip)
	replace(&s.living, eachPlace, old, vip)
	replace(&s.naming, eachNaming, old, vip)
	s.addSNATClients(vip)
}

// ordered are keys of an index.
type ordered[K any] interface{ Compare(other K) int }

// replace makes an index that holds what is found in old hold what is found in vip.
func replace[K ordered[K]](index *sorted.Map[K, none], each func(model.VIP, func(K)), old, vip model.VIP) {
	find := func(vip model.VIP) (keys []K) {
		each(vip, func(k K) { keys = append(keys, k) })
		slices.SortFunc(keys, K.Compare)
		return keys
	}
	was, is := find(old), find(vip)
	for _, k := range was {
		if _, kept := slices.BinarySearchFunc(is, k, K.Compare); !kept {
			index.Delete(k)
		}
	}
	for _, k := range is {
		if _, had := slices.BinarySearchFunc(was, k, K.Compare); !had {
			index.Set(k, none{})
		}
	}
}

// RemoveVIP forgets a VIP.
func (s *State) RemoveVIP(name string) {
	old, there := s.VIPs.Get(name)
	if !there {
		return
	}
	s.VIPs.Delete(name)
	s.countUse(old, -1)
	s.removeSNATClients(old)
	eachUse(old, func(u use) { s.uses.Delete(u) })
	eachPlace(old, func(p place) { s.living.Delete(p) })
	eachNaming(old, func(n naming) { s.naming.Delete(n) })
}

func eachUse(vip model.VIP, do func(use)) {
	if vip.Address.IsValid() { // else it asks a pool for one
		do(use{address: vip.Address, as: asVIP, name: vip.Name})
	}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			do(use{address: b.TunnelAddress(), as: asTunnel, name: vip.Name, host: b.Host})
			if b.Address != b.TunnelAddress() {
				do(use{address: b.Address, as: asBackend, name: vip.Name, host: b.Host})
			}
		}
	}
	if vip.SNAT == nil {
		return
	}
	for _, w := range vip.SNAT.Workloads {
		do(use{address: w.Address, as: asWorkload, name: vip.Name})
		do(use{address: w.TunnelAddress(), as: asTunnel, name: vip.Name, host: w.Host})
		if w.Address != w.TunnelAddress() {
			do(use{address: w.Address, as: asBackend, name: vip.Name, host: w.Host})
		}
	}
}

func eachPlace(vip model.VIP, do func(place)) {
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			do(place{b.Host, vip.Name})
		}
	}
	if vip.SNAT != nil {
		for _, w := range vip.SNAT.Workloads {
			do(place{w.Host, vip.Name})
		}
	}
}

// PutTable adds or replaces a table.
func (s *State) PutTable(key model.EndpointKey, table Table) {
	s.Tables.Set(key, table)
	if table.InTransition() {
		s.moving.Set(key, none{})
	} else {
		s.moving.Delete(key)
	}
	if slices.ContainsFunc(table.Rows, Row.Retired) {
		s.free.Set(key, none{})
	} else {
		s.free.Delete(key)
	}
}

// RemoveTable forgets a table.
func (s *State) RemoveTable(key model.EndpointKey) {
	s.Tables.Delete(key)
	s.moving.Delete(key)
	s.free.Delete(key)
}

// PutNode adds or replaces a node.
func (s *State) PutNode(n model.Node) {
	s.RemoveNode(n.Name)
	s.Nodes.Set(n.Name, n)
	for _, address := range n.Addresses {
		s.uses.Set(use{address: address, as: asNode, name: n.Name}, none{})
	}
	if n.Role == model.RoleMux {
		s.muxes.Set(n.Name, n)
	}
}

// RemoveNode forgets a node.
func (s *State) RemoveNode(name string) {
	for _, address := range s.Nodes.At(name).Addresses {
		s.uses.Delete(use{address: address, as: asNode, name: name})
	}
	s.Nodes.Delete(name)
	s.muxes.Delete(name)
}

// used are the uses of an address for one purpose, in order.
func (s State) used(address netip.Addr, as purpose) iter.Seq[use] {
	return func(yield func(use) bool) {
		for u := range s.uses.From(use{address: address, as: as}) {
			if u.address != address || u.as != as || !yield(u) {
				return
			}
		}
	}
}

// VIPsOn are the VIPs that have a backend on host, or a workload that leaves as they, by name.
func (s State) VIPsOn(host string) iter.Seq[model.VIP] { return s.VIPsOnFrom(host, "") }

// VIPsOnFrom is VIPsOn, from a name on.
func (s State) VIPsOnFrom(host, name string) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for p := range s.living.From(place{host: host, vip: name}) {
			if p.host != host || !yield(s.VIPs.At(p.vip)) {
				return
			}
		}
	}
}

// Serves says whether a host has a backend of the VIP, or a workload that leaves as it.
func (s State) Serves(host, vip string) bool { return s.living.Has(place{host, vip}) }

// VIPAt is the VIP that has the address.
func (s State) VIPAt(address netip.Addr) (model.VIP, bool) {
	for u := range s.used(address, asVIP) {
		return s.VIPs.Get(u.name)
	}
	return model.VIP{}, false
}

// EndpointAt is the endpoint of the key, and its VIP.
func (s State) EndpointAt(key model.EndpointKey) (vip model.VIP, e model.Endpoint, there bool) {
	vip, _ = s.VIPAt(key.VIP)
	for _, e := range vip.Endpoints {
		if Key(vip, e) == key {
			return vip, e, true
		}
	}
	return vip, e, false
}

// MuxNodes are the muxes by name.
func (s State) MuxNodes() iter.Seq[model.Node] { return s.muxes.Values() }

// Moving are the endpoints whose table is in transition.
func (s State) Moving() iter.Seq[model.EndpointKey] { return s.moving.Keys() }

// EndpointsWithFreedSlots are the endpoints whose table has slots of backends that were removed.
func (s State) EndpointsWithFreedSlots() iter.Seq[model.EndpointKey] { return s.free.Keys() }
