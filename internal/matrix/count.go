package matrix

import (
	"cmp"
	"net/netip"
	"slices"
)

// Key is a VIP and where its clients are.
type Key struct {
	VIP  netip.Addr
	From netip.Prefix // of a rack; the zero value: outside
}

// Compare orders them by VIP.
func (k Key) Compare(other Key) int {
	return cmp.Or(k.VIP.Compare(other.VIP), comparePrefix(k.From, other.From))
}

// Row is what came to a VIP from somewhere.
type Row struct {
	Key
	Bytes uint64
}

// MaxRows bounds those of a report: the rest of each VIP is taken for outside, or lost with the VIPs that send least.
const MaxRows = 1024

// maxKeys bounds what an agent counts between two reports: a client does not choose racks, but there are many VIPs.
const maxKeys = 8 * MaxRows

// Count is what an agent has counted since its last report.
type Count map[Key]uint64

// Add adds bytes from a client.
func (c Count) Add(racks Racks, vip, client netip.Addr, bytes uint64) {
	key := Key{vip, racks.Of(client)}
	if _, counted := c[key]; !counted && len(c) >= maxKeys {
		key.From = netip.Prefix{}
		if _, counted := c[key]; !counted && len(c) >= 2*maxKeys {
			return
		}
	}
	c[key] += bytes
}

// Rows are what a report has room for, in order: the largest ones, and of what is left what comes to their VIPs.
func (c Count) Rows(most int) []Row {
	rows := make([]Row, 0, len(c))
	for key, bytes := range c {
		rows = append(rows, Row{key, bytes})
	}
	order := func(a, b Row) int { return a.Compare(b.Key) }
	if len(rows) > most {
		slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), order(a, b)) })
		rows = fold(rows, most)
	}
	slices.SortFunc(rows, order)
	return rows
}

// fold keeps the first rows, as many that with one row for the rest of each VIP there are at most so many.
func fold(rows []Row, most int) []Row {
	kept := rows[:most/2]
	outside := map[netip.Addr]int{}
	for i, r := range kept {
		if r.From == (netip.Prefix{}) {
			outside[r.VIP] = i
		}
	}
	for _, r := range rows[most/2:] {
		at, there := outside[r.VIP]
		switch {
		case there:
			kept[at].Bytes += r.Bytes
		case len(kept) < most:
			outside[r.VIP] = len(kept)
			kept = append(kept, Row{Key{VIP: r.VIP}, r.Bytes})
		}
	}
	return kept
}
