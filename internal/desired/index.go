package desired

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// index is a part of a State that finds something of its VIPs without walking all of them.
type index interface {
	// ReplaceVIP makes it hold what is found in vip, in the place of what was found in old. Either is empty if there
	// is no such VIP. What both have is not written again, as each write copies a path of nodes.
	ReplaceVIP(old, vip model.VIP)
}

// indexes are all of them.
func (s *State) indexes() []index {
	return []index{&s.Addresses, &s.PrefixLists, &s.Ports, &s.places, &s.usage, &s.hostRooms, &s.multipathRooms, &s.Networks, &s.Placements, &s.fastpaths, &s.byTenant}
}

type none = struct{}

// Clone returns a State that may be written to; its price does not depend on the State's size.
func (s State) Clone() State {
	s.VIPs, s.Nodes, s.Pools, s.Steps = s.VIPs.Clone(), s.Nodes.Clone(), s.Pools.Clone(), s.Steps.Clone()
	s.Health, s.Tables, s.Ports, s.PrefixLists = s.Health.Clone(), s.Tables.Clone(), s.Ports.Clone(), s.PrefixLists.Clone()
	s.Networks, s.Placements = s.Networks.Clone(), s.Placements.Clone()
	s.Addresses.uses, s.muxes, s.switches = s.Addresses.uses.Clone(), s.muxes.Clone(), s.switches.Clone()
	s.places.Map, s.usage.Map, s.hostRooms.Map = s.places.Clone(), s.usage.Clone(), s.hostRooms.Clone()
	s.fastpaths.Map, s.byTenant.Map = s.fastpaths.Clone(), s.byTenant.Clone()
	s.multipathRooms.Map, s.keptRooms = s.multipathRooms.Clone(), s.keptRooms.clone()
	return s
}

// PutVIP adds or replaces a VIP.
func (s *State) PutVIP(vip model.VIP) {
	old := s.VIPs.At(vip.Name)
	s.VIPs.Set(vip.Name, vip)
	for _, index := range s.indexes() {
		index.ReplaceVIP(old, vip)
	}
	recountKept(s, vip.Name)
}

// RemoveVIP forgets a VIP.
func (s *State) RemoveVIP(name string) {
	old := s.VIPs.At(name)
	s.VIPs.Delete(name)
	for _, index := range s.indexes() {
		index.ReplaceVIP(old, model.VIP{})
	}
	recountKept(s, name)
}

// PutTable adds or replaces the table of an endpoint.
func PutTable(s *State, key model.EndpointKey, table Table) {
	s.Tables.Set(key, table)
	recountKeptAt(s, key.VIP)
}

// RemoveTable forgets the table of an endpoint.
func RemoveTable(s *State, key model.EndpointKey) {
	s.Tables.Delete(key)
	recountKeptAt(s, key.VIP)
}

func recountKeptAt(s *State, address netip.Addr) {
	if vip, there := s.VIPAt(address); there {
		recountKept(s, vip.Name)
	}
}

// PutNode adds or replaces a node.
func (s *State) PutNode(n model.Node) {
	s.RemoveNode(n.Name)
	s.Nodes.Set(n.Name, n)
	s.Addresses.replaceNode(model.Node{}, n)
	switch n.Role {
	case model.RoleMux:
		s.muxes.Set(n.Name, n)
	case model.RoleSwitch:
		s.switches.Set(n.Name, n)
	case model.RoleHost: // most are
	}
}

// RemoveNode forgets a node.
func (s *State) RemoveNode(name string) {
	s.Addresses.replaceNode(s.Nodes.At(name), model.Node{})
	s.Nodes.Delete(name)
	s.muxes.Delete(name)
	s.switches.Delete(name)
}

// MuxNodes are the muxes by name.
func (s State) MuxNodes() iter.Seq[model.Node] { return s.muxes.Values() }

// SwitchNodes are the switches by name.
func SwitchNodes(s State) iter.Seq[model.Node] { return s.switches.Values() }

// VIPAt is the VIP that has the address.
func (s State) VIPAt(address netip.Addr) (model.VIP, bool) {
	for u := range s.Addresses.Of(address, AsVIP) {
		return s.VIPs.Get(u.Name)
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

// places say which hosts have a backend of which VIPs, or a workload that leaves as them.
type places struct{ sorted.Map[place, none] }

type place struct{ host, vip string }

// Compare orders places by host.
func (p place) Compare(other place) int {
	return cmp.Or(cmp.Compare(p.host, other.host), cmp.Compare(p.vip, other.vip))
}

var _ = sorted.Register(place.Compare)

// ReplaceVIP takes over where vip has workloads, in the place of old.
func (p *places) ReplaceVIP(old, vip model.VIP) { replace(&p.Map, eachPlace, old, vip) }

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

// Serves says whether a host has a backend of the VIP, or a workload that leaves as it.
func (s State) Serves(host, vip string) bool { return s.places.Has(place{host, vip}) }

// VIPsOn are the VIPs that have a backend on host, or a workload that leaves as they, by name.
func (s State) VIPsOn(host string) iter.Seq[model.VIP] { return s.VIPsOnFrom(host, "") }

// VIPsOnFrom is VIPsOn, from a name on.
func (s State) VIPsOnFrom(host, name string) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for p := range s.places.From(place{host: host, vip: name}) {
			if p.host != host || !yield(s.VIPs.At(p.vip)) {
				return
			}
		}
	}
}

// byTenant finds the VIPs of tenants.
type byTenant struct{ sorted.Map[ofTenant, none] }

type ofTenant struct{ tenant, vip string }

// Compare orders them by tenant.
func (o ofTenant) Compare(other ofTenant) int {
	return cmp.Or(cmp.Compare(o.tenant, other.tenant), cmp.Compare(o.vip, other.vip))
}

var _ = sorted.Register(ofTenant.Compare)

// ReplaceVIP takes over whose vip is, in the place of old.
func (t *byTenant) ReplaceVIP(old, vip model.VIP) {
	replace(&t.Map, func(vip model.VIP, do func(ofTenant)) {
		if vip.Name != "" {
			do(ofTenant{vip.Tenant, vip.Name})
		}
	}, old, vip)
}

// VIPsOfTenants are the VIPs of some tenants, by name, from a name on.
func VIPsOfTenants(s State, tenants []string, from string) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for {
			first := ""
			for _, tenant := range tenants {
				for at := range s.byTenant.From(ofTenant{tenant, from}) {
					if at.tenant == tenant && (first == "" || at.vip < first) {
						first = at.vip
					}
					break
				}
			}
			if first == "" || !yield(s.VIPs.At(first)) {
				return
			}
			from = first + "\x00" // what follows it
		}
	}
}

// fastpaths are the VIPs with Fastpath, by name.
type fastpaths struct{ sorted.Map[string, none] }

// ReplaceVIP takes over whether vip has it, in the place of old.
func (f *fastpaths) ReplaceVIP(old, vip model.VIP) {
	if is := vip.Fastpath != nil; is != (old.Fastpath != nil) || old.Name != vip.Name {
		if f.Delete(old.Name); is {
			f.Set(vip.Name, none{})
		}
	}
}

// WantsFastpath says whether a VIP has Fastpath.
func WantsFastpath(s State) bool { return s.fastpaths.Len() > 0 }

// ordered are keys of an index.
type ordered[K any] interface{ Compare(other K) int }

// replace makes a map that holds what is found in old hold what is found in vip.
func replace[K ordered[K]](found *sorted.Map[K, none], each func(model.VIP, func(K)), old, vip model.VIP) {
	find := func(vip model.VIP) (keys []K) {
		each(vip, func(k K) { keys = append(keys, k) })
		slices.SortFunc(keys, K.Compare)
		return keys
	}
	was, is := find(old), find(vip)
	for _, k := range was {
		if _, kept := slices.BinarySearchFunc(is, k, K.Compare); !kept {
			found.Delete(k)
		}
	}
	for _, k := range is {
		if _, had := slices.BinarySearchFunc(was, k, K.Compare); !had {
			found.Set(k, none{})
		}
	}
}
