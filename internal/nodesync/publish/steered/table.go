package steered

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/model/steering"
)

// Table has the VIPs of a State that switches hold, as their hosts steer them. While one goroutine computes changes, others
// may read.
type Table struct {
	vips    map[netip.Addr]*version
	written uint64 // versions so far
}

// version is a VIP until it changes. It is read only.
type version struct {
	steering.VIP
	hosts []string // that are told of it, in order

	number, follows uint64          // follows: the version that change is from
	change          steering.Change // what is large is the VIP's own
	differs         bool            // the change says something
}

// New makes the table of a State.
func New(s desired.State) *Table {
	t := &Table{vips: map[netip.Addr]*version{}}
	names := map[string]bool{}
	for name := range s.Placements.Required() {
		names[name] = true
	}
	for address := range s.Placements.Keys() {
		if vip, there := s.VIPAt(address); there {
			names[vip.Name] = true
		}
	}
	t.Apply(t.Changes(desired.State{}, s, maps.Keys(names)))
	return t
}

// Change is what becomes of the VIP of an address.
type Change struct {
	Address netip.Addr
	Hosts   []string // that are to be told, in order
	next    *version // nil: no switch holds it
}

// Changes computes what becomes of the VIPs of these names from one State, which the table is of, to the next.
func (t *Table) Changes(old, s desired.State, names iter.Seq[string]) (changes []Change) {
	addresses := map[netip.Addr]bool{}
	for name := range names {
		for _, state := range []desired.State{old, s} {
			if vip, there := state.VIPs.Get(name); there {
				addresses[vip.Address] = true
			}
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare) {
		was, next := t.vips[address], versionOf(s, address)
		switch {
		case was == nil && next == nil:
			continue
		case next == nil:
			changes = append(changes, Change{Address: address, Hosts: was.hosts})
			continue
		case was == nil:
			was = &version{}
		}
		change, differs := steering.DiffVIP(was.VIP, next.VIP)
		if !differs && slices.Equal(was.hosts, next.hosts) {
			continue
		}
		next.follows, next.change, next.differs = was.number, change, differs
		hosts := slices.Concat(was.hosts, next.hosts)
		slices.Sort(hosts)
		changes = append(changes, Change{address, slices.Compact(hosts), next})
	}
	return changes
}

// Apply makes the table that of the next State.
func (t *Table) Apply(changes []Change) {
	for _, c := range changes {
		if c.next == nil {
			delete(t.vips, c.Address)
			continue
		}
		t.written++
		c.next.number = t.written
		t.vips[c.Address] = c.next
	}
}

// versionOf is the VIP of an address, if switches hold it.
func versionOf(s desired.State, address netip.Addr) *version {
	vip, there := s.VIPAt(address)
	if !there {
		return nil
	}
	steered, held := nodeconfig.Steered(s, vip)
	if !held {
		return nil
	}
	v := &version{VIP: steered}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			v.hosts = append(v.hosts, b.Host)
		}
	}
	if vip.SNAT != nil {
		for _, w := range vip.SNAT.Workloads {
			v.hosts = append(v.hosts, w.Host)
		}
	}
	slices.Sort(v.hosts)
	v.hosts = slices.Compact(v.hosts)
	return v
}

// of is the VIP of an address as a host is told of it, if it is.
func (t *Table) of(address netip.Addr, host string) *version {
	v := t.vips[address]
	if v == nil {
		return nil
	}
	if _, told := slices.BinarySearch(v.hosts, host); !told {
		return nil
	}
	return v
}

// Touched are the names of VIPs that a change of placements, or of workloads' ports, may have changed for nodes.
func Touched(old, s desired.State, placements map[netip.Addr]bool, ports map[model.SNATKey]bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for address := range placements {
			if slices.Equal(old.SwitchesAt(address), s.SwitchesAt(address)) {
				continue // a step in a switch: hosts and muxes know which may send packets, and no more
			}
			for _, state := range []desired.State{old, s} {
				if vip, there := state.VIPAt(address); there && !yield(vip.Name) {
					return
				}
			}
		}
		for _, state := range []desired.State{old, s} {
			for key := range ports {
				if vip, there := state.VIPAt(key.VIP); there && len(state.SwitchesAt(key.VIP)) > 0 && !yield(vip.Name) {
					return
				}
			}
		}
	}
}

// VIPsOf are the names of the VIPs that a switch may send packets of.
func VIPsOf(s desired.State, node string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if s.Nodes.At(node).Role != model.RoleSwitch {
			return
		}
		for name := range s.Placements.Required() {
			if hardware.AsksFor(s.VIPs.At(name), node) && !yield(name) {
				return
			}
		}
		for address := range s.Placements.VIPsOf(node) {
			if vip, there := s.VIPAt(address); there && !yield(vip.Name) {
				return
			}
		}
	}
}
