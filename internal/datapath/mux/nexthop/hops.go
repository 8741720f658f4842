package nexthop

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Hops knows which row of next_hops a tunnel's packets use. Hops that are the same share a row;
// a row that is in use is never rewritten, so a packet never mixes two hops. The caller holds the data plane's lock.
type Hops struct {
	tables   *bpf.Tables
	byTunnel map[netip.Addr]uint32
	byHop    map[model.NextHop]uint32
}

// New has no hops yet.
func New(tables *bpf.Tables) *Hops {
	return &Hops{tables: tables, byTunnel: map[netip.Addr]uint32{}, byHop: map[model.NextHop]uint32{}}
}

// ID is the row of the tunnel's hop, 0 when it is not resolved.
func (h *Hops) ID(tunnel netip.Addr) uint32 { return h.byTunnel[tunnel] }

// Adopt notes what a live backend's row says.
func (h *Hops) Adopt(tunnel netip.Addr, id uint32) {
	if id != 0 {
		h.byTunnel[tunnel] = id
	}
}

// Read completes Adopt with the hops themselves.
func (h *Hops) Read() error {
	for _, id := range h.byTunnel {
		var row bpf.MuxNextHop
		if err := h.tables.NextHops.Lookup(id, &row); err != nil {
			return fmt.Errorf("read row %d of next_hops: %w", id, err)
		}
		h.byHop[bpf.FromNextHop(row)] = id
	}
	return nil
}

// Set says where frames for each tunnel address go, and tells which tunnels have another row since. A tunnel that is
// missing or not resolved drops its packets.
func (h *Hops) Set(byTunnel map[netip.Addr]model.NextHop) (moved func(tunnel netip.Addr) bool, err error) {
	next := New(h.tables)
	for _, hop := range byTunnel {
		if id, ok := h.byHop[hop]; ok {
			next.byHop[hop] = id
		}
	}
	free := h.unused(h.tables.NextHops.MaxEntries())
	if err := abi.Quiesce(); err != nil { // packets may still read a row that was given up before
		return nil, err
	}
	for tunnel, hop := range byTunnel {
		if !hop.Resolved() {
			continue
		}
		id, ok := next.byHop[hop]
		if !ok {
			if len(free) == 0 {
				return nil, fmt.Errorf("no room in table next_hops: %d different hops", len(next.byHop)+1)
			}
			id, free = free[0], free[1:]
			if err := h.tables.NextHops.Put(id, bpf.ToNextHop(hop)); err != nil {
				return nil, fmt.Errorf("write row %d of next_hops: %w", id, err)
			}
			next.byHop[hop] = id
		}
		next.byTunnel[tunnel] = id
	}
	old := h.byTunnel
	h.byTunnel, h.byHop = next.byTunnel, next.byHop
	return func(tunnel netip.Addr) bool { return h.byTunnel[tunnel] != old[tunnel] }, nil
}

// unused lists the rows that no hop has.
func (h *Hops) unused(rows uint32) []uint32 {
	used := map[uint32]bool{}
	for _, id := range h.byHop {
		used[id] = true
	}
	var free []uint32
	for id := uint32(1); id < rows; id++ {
		if !used[id] {
			free = append(free, id)
		}
	}
	return free
}

// Of is the hop of a tunnel, zero when it is not resolved.
func (h *Hops) Of(tunnel netip.Addr) model.NextHop {
	id := h.byTunnel[tunnel]
	if id == 0 {
		return model.NextHop{}
	}
	for hop, row := range h.byHop {
		if row == id {
			return hop
		}
	}
	return model.NextHop{}
}
