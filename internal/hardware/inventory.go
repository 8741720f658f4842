package hardware

import (
	"net/netip"
	"slices"
)

// tunnel is a row of table tunnels.
type tunnel struct{ source, destination netip.Addr }

// Inventory is what a switch has of ours, for drivers that count rows themselves. VIPs share rows of table tunnels.
type Inventory struct {
	// A group is changed where it stands: it needs room for what it grows by, not for both groups.
	InPlace bool

	entries map[netip.Addr]Entry
	tunnels map[tunnel]int // how many entries use the row
	rows    uint32         // of table ECMP
}

// Put adds an entry, or replaces that of its VIP.
func (i *Inventory) Put(e Entry) {
	i.Delete(e.VIP)
	if i.entries == nil {
		i.entries, i.tunnels = map[netip.Addr]Entry{}, map[tunnel]int{}
	}
	i.entries[e.VIP] = e.Clone()
	i.rows += e.Rows()
	for _, m := range e.Members {
		i.tunnels[tunnel{e.Source, m.Tunnel}]++
	}
}

// Delete removes the entry of a VIP, if there is one.
func (i *Inventory) Delete(vip netip.Addr) {
	e, ok := i.entries[vip]
	if !ok {
		return
	}
	delete(i.entries, vip)
	i.rows -= e.Rows()
	for _, m := range e.Members {
		row := tunnel{e.Source, m.Tunnel}
		if i.tunnels[row]--; i.tunnels[row] == 0 {
			delete(i.tunnels, row)
		}
	}
}

// Get returns the entry of a VIP.
func (i *Inventory) Get(vip netip.Addr) (Entry, bool) {
	e, ok := i.entries[vip]
	return e.Clone(), ok
}

// Entries returns all, by VIP.
func (i *Inventory) Entries() []Entry {
	all := make([]Entry, 0, len(i.entries))
	for _, e := range i.entries {
		all = append(all, e.Clone())
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.VIP.Compare(b.VIP) })
	return all
}

// Hosts is how many rows of table hosts the entries take.
func (i *Inventory) Hosts() uint32 { return uint32(len(i.entries)) }

// ECMP is how many rows of table ECMP the entries take.
func (i *Inventory) ECMP() uint32 { return i.rows }

// Tunnels is how many rows of table tunnels the entries take.
func (i *Inventory) Tunnels() uint32 { return uint32(len(i.tunnels)) }

// Fits returns a *Refusal of an entry that the switch can't do, or for which a table has no room. A group that is replaced
// stands beside the one before until packets find it, so both need room, unless the switch changes groups in place.
func (i *Inventory) Fits(e Entry, c Capabilities) error {
	if err := c.Supports(e); err != nil {
		return err
	}
	before, replaces := i.entries[e.VIP]
	if replaces && before.Equal(e) {
		return nil
	}
	need := []struct {
		table TableName
		need  uint32
		free  uint32
	}{{Hosts, 1, c.Hosts.Free()}, {ECMP, e.Rows(), c.ECMP.Free()}, {Tunnels, 0, c.Tunnels.Free()}}
	if replaces {
		need[0].need = 0
		if i.InPlace {
			need[1].need -= min(need[1].need, before.Rows())
		}
	}
	for _, m := range e.Members {
		if i.tunnels[tunnel{e.Source, m.Tunnel}] == 0 {
			need[2].need++
		}
	}
	for _, n := range need {
		if n.need > n.free {
			return &Refusal{VIP: e.VIP, Table: n.table, Need: n.need, Free: n.free}
		}
	}
	return nil
}
