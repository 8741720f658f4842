package flow

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// Usage counts the cells of the flow table that a VIP has.
type Usage struct {
	Untrusted uint64 // of flows that were seen once
	Trusted   uint64
}

// Table is the flow table with its accounts: an index of vip_usage for each VIP, and of tenant_usage for each tenant. An
// index that is given up may still own cells, which would count for the VIP that gets it next: it is retired until a
// sweep has freed them. The caller holds the data plane's lock.
type Table struct {
	tables  *bpf.Tables
	sizes   bpf.Sizes
	view    func() View
	ids     *alloc.IDs        // of vip_usage
	retired map[uint32]bool   // likewise
	Tenants map[string]uint32 // indexes of tenant_usage
	limit   uint32            // of a VIP that names none
}

// View is what a sweep must know of VIPs.
type View struct {
	VIPs   []uint32 // indexes of all
	Owners []Owner  // those with endpoints: one for each endpoint
	// Workloads are those of each tenant.
	Workloads map[string]int
}

// Owner is whose a VIP is, as one of its endpoints says.
type Owner struct {
	Index     uint32 // of vip_usage
	Tenant    string // empty: not known
	Limit     uint32 // on its flows
	Workloads int
}

// New has all indexes free. view tells of the VIPs that there are.
func New(tables *bpf.Tables, sizes bpf.Sizes, view func() View) *Table {
	return &Table{
		tables: tables, sizes: sizes, view: view, ids: alloc.NewIDs("vip_usage", sizes.Rows()),
		retired: map[uint32]bool{}, Tenants: map[string]uint32{},
		limit: cmp.Or(sizes.FlowLimit, sizes.FlowSets*uint32(len(bpf.MuxFlowSet{}.Cells))/4),
	}
}

// Limit is on the flows of a VIP that names none.
func (f *Table) Limit() uint32 { return f.limit }

// Take is an index that owns no cells.
func (f *Table) Take() (uint32, error) {
	if len(f.ids.Free) == 0 && len(f.retired) > 0 {
		if _, err := f.Sweep(); err != nil {
			return 0, err
		}
	}
	return f.ids.Take()
}

// Put gives back an index that no packet has met.
func (f *Table) Put(index uint32) { f.ids.Put(index) }

// Retired is how many indexes are.
func (f *Table) Retired() int { return len(f.retired) }

// Retire gives back an index, once a sweep finds that it owns no cells.
func (f *Table) Retire(index uint32) { f.retired[index] = true }

// Adopt takes the indexes that VIPs of adopted tables have, and retires those of VIPs that are gone.
func (f *Table) Adopt(used map[uint32]bool) error {
	m, err := Map(f.tables)
	if err != nil {
		return err
	}
	defer m.Close()
	for _, id := range f.ids.Free {
		if !used[id] && m.Usage[id].Cells != [2]uint64{} {
			used[id], f.retired[id] = true, true
		}
	}
	f.ids.Claim(used)
	return nil
}

// Memory is the flow table and its accounts as the kernel has them, shared with packets.
type Memory struct {
	Sets    []bpf.MuxFlowSet
	Usage   []bpf.MuxFlowUsage
	Tenants []bpf.MuxFlowUsage
	raw     [][]byte
}

// Sweep frees the cells of flows that expired, and tells how many. Packets would take such
// cells too, but until then they count for their VIP. It frees
// the indexes of vip_usage that own none any more, too, and says of VIPs whose they are.
func (f *Table) Sweep() (freed int, err error) {
	if len(f.retired) > 0 {
		if err := abi.Quiesce(); err != nil { // a packet in flight may still take a cell for a VIP that is gone
			return 0, err
		}
	}
	m, err := Map(f.tables)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	now, err := Now(f.tables)
	if err != nil {
		return 0, err
	}
	for i := range m.Sets {
		for j := range m.Sets[i].Cells {
			if m.free(&m.Sets[i].Cells[j], now, f.retired) {
				freed++
			}
		}
	}
	for id := range f.retired {
		if m.Usage[id].Cells == [2]uint64{} {
			atomic.StoreUint32(&m.Usage[id].Tenant, 0)
			delete(f.retired, id)
			f.ids.Put(id)
		}
	}
	f.settleTenants(m)
	return freed, nil
}

// Now is the tick that packets see.
func Now(t *bpf.Tables) (uint32, error) {
	now, err := t.Clock.Run(&ebpf.RunOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the flow table's clock: %w", err)
	}
	return now, nil
}

// free takes the owner out of a cell that expired, or whose VIP is gone. Who takes it out counts it down: a packet that
// takes the cell at the same moment, or this.
func (m *Memory) free(cell *bpf.MuxFlowCell, now uint32, gone map[uint32]bool) bool {
	owner := atomic.LoadUint32(&cell.Owner)
	if owner == 0 || int32(atomic.LoadUint32(&cell.Expires)-now) >= 0 && !gone[owner>>1] {
		return false
	}
	if !atomic.CompareAndSwapUint32(&cell.Owner, owner, 0) {
		return false
	}
	if vip := owner >> 1; int(vip) < len(m.Usage) {
		usage := &m.Usage[vip]
		atomic.AddUint64(&usage.Cells[owner&1], ^uint64(0))
		if tenant := atomic.LoadUint32(&usage.Tenant); tenant != 0 && int(tenant) < len(m.Tenants) {
			atomic.AddUint64(&m.Tenants[tenant].Cells[owner&1], ^uint64(0))
		}
	}
	return true
}

// Map maps the tables into memory.
func Map(t *bpf.Tables) (m *Memory, err error) {
	m = &Memory{}
	if m.Sets, err = abi.MapRows[bpf.MuxFlowSet](&m.raw, t.Flows); err != nil {
		return nil, fmt.Errorf("map table flows: %w", err)
	}
	if m.Usage, err = abi.MapRows[bpf.MuxFlowUsage](&m.raw, t.VIPUsage); err != nil {
		m.Close()
		return nil, fmt.Errorf("map table vip_usage: %w", err)
	}
	if m.Tenants, err = abi.MapRows[bpf.MuxFlowUsage](&m.raw, t.TenantUsage); err != nil {
		m.Close()
		return nil, fmt.Errorf("map table tenant_usage: %w", err)
	}
	return m, nil
}

// Close ends the sharing.
func (m *Memory) Close() {
	abi.Unmap(&m.raw)
}
