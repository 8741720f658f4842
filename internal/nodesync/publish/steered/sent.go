package steered

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model/steering"
)

// Sent are the VIPs that switches hold as a host was told of them on a stream, and those that are due.
type Sent struct {
	vips map[netip.Addr]*version
	due  map[netip.Addr]bool
}

// Add marks the VIPs of addresses as due.
func (t *Sent) Add(addresses []netip.Addr) {
	if t.due == nil {
		t.due = make(map[netip.Addr]bool, len(addresses))
	}
	for _, a := range addresses {
		t.due[a] = true
	}
}

// Due are VIPs of a host to be told of: those that switches hold, and with nil those that they do not any more.
type Due map[netip.Addr]*version

// Take takes what is due to a host of a State and its table, or all that the host is told of.
func (t *Sent) Take(table *Table, s desired.State, host string, all bool) Due {
	if !all && len(t.due) == 0 {
		return nil
	}
	due := Due{}
	if all {
		t.vips = nil
		for vip := range s.VIPsOn(host) {
			if v := table.of(vip.Address, host); v != nil {
				due[vip.Address] = v
			}
		}
	}
	for address := range t.due {
		if v := table.of(address, host); v != nil || !all {
			due[address] = v
		}
	}
	t.due = nil
	return due
}

// Update is what the host is told, which it knows from now on.
func (t *Sent) Update(due Due) (u steering.Update) {
	if t.vips == nil {
		t.vips = make(map[netip.Addr]*version, len(due))
	}
	for address, v := range due {
		was, had := t.vips[address]
		switch {
		case v == nil && had:
			delete(t.vips, address)
			u.Removed = append(u.Removed, address)
		case v == nil || v == was:
		case had && was.number == v.follows:
			if t.vips[address] = v; v.differs {
				u.Changed = append(u.Changed, v.change)
			}
		default:
			if !had {
				was = &version{}
			}
			t.vips[address] = v
			if c, differs := steering.DiffVIP(was.VIP, v.VIP); differs || !had {
				u.Changed = append(u.Changed, c)
			}
		}
	}
	slices.SortFunc(u.Changed, func(a, b steering.Change) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(u.Removed, netip.Addr.Compare)
	return u
}
