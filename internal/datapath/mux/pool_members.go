package mux

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// maxMembers is how many muxes of a pool share fragments; all muxes leave out the same ones.
const maxMembers = len(bpf.MuxPoolMembers{}.Rows)

// SetPoolMembers says which muxes the pool has, and which of them is this one. Fragments are relayed between
// them, so that all of a datagram meet at one. A pool without this one is as none: it would not take what
// we relay.
func (d *Datapath) SetPoolMembers(self string, pool []model.PoolMember) error {
	pool = slices.SortedFunc(slices.Values(pool), func(a, b model.PoolMember) int {
		return strings.Compare(a.Name, b.Name)
	})
	pool = pool[:min(len(pool), maxMembers)]
	index := slices.IndexFunc(pool, func(m model.PoolMember) bool { return m.Name == self })
	row := bpf.MuxPoolMembers{}
	if index >= 0 {
		row.Self, row.Count = uint32(index), uint32(len(pool))
		for i, member := range pool {
			row.Rows[i].Seed = seedOf(member.Name)
			for way, addr := range addressesOf(member) {
				row.Rows[i].Addresses[way].Words = abi.Words(addr)
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writeMembers(row)
}

// writeMembers writes the row with the next hops as they are now, if that changes anything.
func (d *Datapath) writeMembers(row bpf.MuxPoolMembers) error {
	for i := range row.Rows[:row.Count] {
		member := &row.Rows[i]
		for way, addr := range member.Addresses {
			member.NextHops[way] = d.hops.id(abi.Address(addr.Words))
		}
	}
	if row == d.members {
		return nil
	}
	if err := d.tables.PoolMembers.Put(uint32(0), row); err != nil {
		return fmt.Errorf("write members of the pool: %w", err)
	}
	d.members = row
	return nil
}

// adoptMembers reads the row of adopted tables.
func (d *Datapath) adoptMembers() error {
	if err := d.tables.PoolMembers.Lookup(uint32(0), &d.members); err != nil {
		return fmt.Errorf("read members of the pool: %w", err)
	}
	for _, member := range d.members.Rows[:d.members.Count] {
		for way, addr := range member.Addresses {
			d.hops.adopt(abi.Address(addr.Words), member.NextHops[way])
		}
	}
	return nil
}

// addressesOf are those that the other muxes relay to, by family: the first of each counts.
func addressesOf(m model.PoolMember) (ways [2]netip.Addr) {
	for _, addr := range m.Addresses {
		way := bpf.MuxPoolMemberFamilyPOOL_MEMBER_V6
		if addr.Is4() {
			way = bpf.MuxPoolMemberFamilyPOOL_MEMBER_V4
		}
		if !ways[way].IsValid() {
			ways[way] = addr
		}
	}
	return ways
}

// seedOf is the same on every mux.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}
