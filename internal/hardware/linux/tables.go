package linux

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/hardware"
)

// Our ids of next hops and of groups.
const (
	firstHop   = 0x57000001
	firstGroup = 0x57800001
	afterGroup = 0x58000000
)

func isHopID(id uint32) bool   { return id >= firstHop && id < firstGroup-1 }
func isGroupID(id uint32) bool { return id >= firstGroup && id < afterGroup }

// group is the next-hop group of a VIP.
type group struct {
	id      uint32
	buckets uint16
	shared  bool // someone led the route of another VIP to it: neither's any more
}

// tables are what the kernel has of ours.
type tables struct {
	inventory hardware.Inventory
	hops      map[hop]uint32
	uses      map[hop]int // by how many VIPs
	groups    map[netip.Addr]group
	used      map[uint32]bool // ids
	next      map[uint32]uint32
	orphans   []uint32 // groups that no route leads to, then next hops of no group: of a driver that was cut off
}

// load reads what the kernel has. An entry is whole if there are its route and its group.
func (d *Driver) load(ctx context.Context) (*tables, error) {
	// Routes first: a group that is added meanwhile has no route here, and is ours alone to add.
	routes, err := d.kernel.routes(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := d.kernel.objects(ctx)
	if err != nil {
		return nil, err
	}
	source, err := d.kernel.tunnelSource(ctx, d.seg6)
	if err != nil {
		return nil, err
	}
	t := &tables{
		hops: map[hop]uint32{}, uses: map[hop]int{}, groups: map[netip.Addr]group{}, used: map[uint32]bool{},
		next: map[uint32]uint32{firstHop: firstHop, firstGroup: firstGroup},
	}
	t.inventory.InPlace = true
	hops, groups := map[uint32]hop{}, map[uint32]object{}
	for _, o := range objects {
		t.used[o.id] = true
		switch {
		case o.protocol != protocol:
		case isHopID(o.id) && o.isHop:
			hops[o.id] = o.hop
			t.hops[o.hop] = o.id
		case isGroupID(o.id) && len(o.members) > 0:
			groups[o.id] = o
		}
	}
	routed := map[uint32]int{}
	for _, r := range routes {
		routed[r.group]++
	}
	for _, r := range routes {
		if o, ok := groups[r.group]; ok {
			t.groups[r.to] = group{o.id, o.buckets, routed[r.group] > 1}
			t.put(entryOf(r.to, source, o, hops))
		}
	}
	for id := range groups {
		if routed[id] == 0 {
			t.orphans = append(t.orphans, id)
		}
	}
	for id, h := range hops {
		if t.uses[h] == 0 || t.hops[h] != id {
			t.orphans = append(t.orphans, id)
		}
	}
	slices.Sort(t.orphans)
	slices.Reverse(t.orphans) // groups have the higher ids
	return t, nil
}

// entryOf is the entry of a VIP by its group. Members that are not of our form are left out: then it equals no entry.
func entryOf(vip, source netip.Addr, o object, hops map[uint32]hop) hardware.Entry {
	e := hardware.Entry{VIP: vip, Source: source}
	for _, m := range o.members {
		if h, ok := hops[m.id]; ok {
			e.Members = append(e.Members, hardware.Member{Tunnel: h.tunnel, Entries: m.weight})
		}
	}
	return e
}

// put takes an entry over into what is known.
func (t *tables) put(e hardware.Entry) {
	t.delete(e.VIP)
	t.inventory.Put(e)
	for _, m := range e.Members {
		t.uses[hop{e.VIP.Is6(), m.Tunnel}]++
	}
}

func (t *tables) delete(vip netip.Addr) {
	before, ok := t.inventory.Get(vip)
	if !ok {
		return
	}
	t.inventory.Delete(vip)
	for _, m := range before.Members {
		t.uses[hop{vip.Is6(), m.Tunnel}]--
	}
}

var errNoID = errors.New("all ids of next hops are in use")

// allocate returns a free id of a range, by its first one.
func (t *tables) allocate(first uint32) (uint32, error) {
	inRange := isHopID
	if first == firstGroup {
		inRange = isGroupID
	}
	for id := t.next[first]; ; id++ {
		if !inRange(id) {
			return 0, errNoID
		}
		if !t.used[id] {
			t.used[id] = true
			t.next[first] = id + 1
			return id, nil
		}
	}
}

// free gives an id back.
func (t *tables) free(first, id uint32) {
	delete(t.used, id)
	t.next[first] = min(t.next[first], id)
}
