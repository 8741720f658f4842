package pool

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nexthop"
	"github.com/weirlb/weir/internal/model"
)

// maxMembers is how many muxes of a pool share fragments; all muxes leave out the same ones.
const maxMembers = len(bpf.MuxPoolMembers{}.Rows)

// Members are the muxes of the pool in the row members. The caller holds the data plane's lock.
type Members struct {
	tables *bpf.Tables
	hops   *nexthop.Hops
	row    bpf.MuxPoolMembers // as written
}

// NewMembers knows none yet.
func NewMembers(tables *bpf.Tables, hops *nexthop.Hops) *Members {
	return &Members{tables: tables, hops: hops}
}

// Set says which muxes the pool has, and which of them is this one. Fragments are relayed between
// them, so that all of a datagram meet at one. A pool without this one is as none: it would not take what
// we relay.
func (m *Members) Set(self string, pool []model.PoolMember) error {
	pool = slices.SortedFunc(slices.Values(pool), func(a, b model.PoolMember) int {
		return strings.Compare(a.Name, b.Name)
	})
	pool = pool[:min(len(pool), maxMembers)]
	index := slices.IndexFunc(pool, func(m model.PoolMember) bool { return m.Name == self })
	row := bpf.MuxPoolMembers{}
	if index >= 0 {
		row.Self, row.Count = uint32(index), uint32(len(pool))
		for i, member := range pool {
			row.Rows[i].Seed = Seed(member.Name)
			for way, addr := range addressesOf(member) {
				row.Rows[i].Addresses[way].Words = abi.Words(addr)
			}
		}
	}
	return m.write(row)
}

// Rewrite writes the row with the next hops as they are now, if they have changed.
func (m *Members) Rewrite() error { return m.write(m.row) }

// write writes the row with the next hops as they are now, if that changes anything.
func (m *Members) write(row bpf.MuxPoolMembers) error {
	for i := range row.Rows[:row.Count] {
		member := &row.Rows[i]
		for way, addr := range member.Addresses {
			member.NextHops[way] = m.hops.ID(abi.Address(addr.Words))
		}
	}
	if row == m.row {
		return nil
	}
	if err := m.tables.PoolMembers.Put(uint32(0), row); err != nil {
		return fmt.Errorf("write members of the pool: %w", err)
	}
	m.row = row
	return nil
}

// Adopt reads the row of adopted tables.
func (m *Members) Adopt() error {
	if err := m.tables.PoolMembers.Lookup(uint32(0), &m.row); err != nil {
		return fmt.Errorf("read members of the pool: %w", err)
	}
	for _, member := range m.row.Rows[:m.row.Count] {
		for way, addr := range member.Addresses {
			m.hops.Adopt(abi.Address(addr.Words), member.NextHops[way])
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

// Seed is the same on every mux.
func Seed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}
