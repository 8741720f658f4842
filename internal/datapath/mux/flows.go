package mux

import (
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// FlowUsage counts the cells of the flow table that a VIP has.
type FlowUsage struct {
	Untrusted uint64 // of flows that were seen once
	Trusted   uint64
}

// flowMemory is the flow table and its accounts as the kernel has them, shared with packets.
type flowMemory struct {
	sets    []bpf.MuxFlowSet
	usage   []bpf.MuxFlowUsage
	tenants []bpf.MuxFlowUsage
	raw     [][]byte
}

// SweepFlows frees the cells of flows that expired, and tells how many. Packets would take such
// cells too, but until then they count for their VIP. It also says of VIPs whose they are.
func (d *Datapath) SweepFlows() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sweep()
}

// sweep frees cells, and the indexes of vip_usage that own none any more.
func (d *Datapath) sweep() (freed int, err error) {
	if len(d.vips.retired) > 0 {
		if err := bpf.Quiesce(); err != nil { // a packet in flight may still take a cell for a VIP that is gone
			return 0, err
		}
	}
	m, err := mapFlows(&d.tables)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	now, err := flowNow(&d.tables)
	if err != nil {
		return 0, err
	}
	for i := range m.sets {
		for j := range m.sets[i].Cells {
			if m.free(&m.sets[i].Cells[j], now, d.vips.retired) {
				freed++
			}
		}
	}
	for id := range d.vips.retired {
		if m.usage[id].Cells == [2]uint64{} {
			atomic.StoreUint32(&m.usage[id].Tenant, 0)
			delete(d.vips.retired, id)
			d.vips.ids.Put(id)
		}
	}
	d.settleTenants(m)
	return freed, nil
}

// flowNow is the tick that packets see.
func flowNow(t *bpf.Tables) (uint32, error) {
	now, err := t.Clock.Run(&ebpf.RunOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the flow table's clock: %w", err)
	}
	return now, nil
}

// free takes the owner out of a cell that expired, or whose VIP is gone. Who takes it out counts it down: a packet that
// takes the cell at the same moment, or this.
func (m *flowMemory) free(cell *bpf.MuxFlowCell, now uint32, gone map[uint32]bool) bool {
	owner := atomic.LoadUint32(&cell.Owner)
	if owner == 0 || int32(atomic.LoadUint32(&cell.Expires)-now) >= 0 && !gone[owner>>1] {
		return false
	}
	if !atomic.CompareAndSwapUint32(&cell.Owner, owner, 0) {
		return false
	}
	if vip := owner >> 1; int(vip) < len(m.usage) {
		usage := &m.usage[vip]
		atomic.AddUint64(&usage.Cells[owner&1], ^uint64(0))
		if tenant := atomic.LoadUint32(&usage.Tenant); tenant != 0 && int(tenant) < len(m.tenants) {
			atomic.AddUint64(&m.tenants[tenant].Cells[owner&1], ^uint64(0))
		}
	}
	return true
}

func mapFlows(t *bpf.Tables) (m *flowMemory, err error) {
	m = &flowMemory{}
	if m.sets, err = bpf.MapRows[bpf.MuxFlowSet](&m.raw, t.Flows); err != nil {
		return nil, fmt.Errorf("map table flows: %w", err)
	}
	if m.usage, err = bpf.MapRows[bpf.MuxFlowUsage](&m.raw, t.VIPUsage); err != nil {
		m.Close()
		return nil, fmt.Errorf("map table vip_usage: %w", err)
	}
	if m.tenants, err = bpf.MapRows[bpf.MuxFlowUsage](&m.raw, t.TenantUsage); err != nil {
		m.Close()
		return nil, fmt.Errorf("map table tenant_usage: %w", err)
	}
	return m, nil
}

// Close ends the sharing.
func (m *flowMemory) Close() {
	for _, raw := range m.raw {
		_ = unix.Munmap(raw)
	}
}
