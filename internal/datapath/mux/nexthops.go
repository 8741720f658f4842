package mux

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// hops knows which row of next_hops a tunnel's packets use. Hops that are the same share a row;
// a row that is in use is never rewritten, so a packet never mixes two hops.
type hops struct {
	byTunnel map[netip.Addr]uint32
	byHop    map[model.NextHop]uint32
}

func newHops() *hops {
	return &hops{byTunnel: map[netip.Addr]uint32{}, byHop: map[model.NextHop]uint32{}}
}

// id is the row of the tunnel's hop, 0 when it is not resolved.
func (h *hops) id(tunnel netip.Addr) uint32 { return h.byTunnel[tunnel] }

// adopt notes what a live backend's row says.
func (h *hops) adopt(tunnel netip.Addr, id uint32) {
	if id != 0 {
		h.byTunnel[tunnel] = id
	}
}

// readHops completes adopt with the hops themselves.
func (d *Datapath) readHops() error {
	for _, id := range d.hops.byTunnel {
		var row bpf.MuxNextHop
		if err := d.tables.NextHops.Lookup(id, &row); err != nil {
			return fmt.Errorf("read row %d of next_hops: %w", id, err)
		}
		d.hops.byHop[bpf.FromNextHop(row)] = id
	}
	return nil
}

// SetNextHops says where frames for each tunnel address go. A tunnel that is missing or not
// resolved drops its packets.
func (d *Datapath) SetNextHops(byTunnel map[netip.Addr]model.NextHop) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newHops()
	for _, hop := range byTunnel {
		if id, ok := d.hops.byHop[hop]; ok {
			next.byHop[hop] = id
		}
	}
	free := d.hops.unused(d.tables.NextHops.MaxEntries())
	if err := bpf.Quiesce(); err != nil { // packets may still read a row that was given up before
		return err
	}
	for tunnel, hop := range byTunnel {
		if !hop.Resolved() {
			continue
		}
		id, ok := next.byHop[hop]
		if !ok {
			if len(free) == 0 {
				return fmt.Errorf("no room in table next_hops: %d different hops", len(next.byHop)+1)
			}
			id, free = free[0], free[1:]
			if err := d.tables.NextHops.Put(id, bpf.ToNextHop(hop)); err != nil {
				return fmt.Errorf("write row %d of next_hops: %w", id, err)
			}
			next.byHop[hop] = id
		}
		next.byTunnel[tunnel] = id
	}
	old := d.hops
	d.hops = next
	if err := d.pointBackends(old); err != nil {
		return err
	}
	if err := d.pointOwners(old); err != nil {
		return err
	}
	return d.writeMembers(d.members)
}

// unused lists the rows that no hop has.
func (h *hops) unused(rows uint32) []uint32 {
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

// pointBackends rewrites the next hop of every live backend whose tunnel got another one, in
// place: nothing else of the row changes.
func (d *Datapath) pointBackends(old *hops) error {
	for key, endpoint := range d.live {
		first := bpf.UnpackSlices(endpoint.row.Slices).Backends.First
		for _, b := range endpoint.backends {
			if d.hops.id(b.Tunnel) == old.id(b.Tunnel) {
				continue
			}
			row := bpf.MuxBackend{
				Tunnel: bpf.ToAddress(b.Tunnel), NextHop: d.hops.id(b.Tunnel), Flags: backendFlags(b),
			}
			if err := d.tables.Backends.Update(first+uint32(b.Slot), row, ebpf.UpdateExist); err != nil {
				return fmt.Errorf("write next hop of endpoint %s, slot %d: %w", key, b.Slot, err)
			}
		}
	}
	return nil
}
