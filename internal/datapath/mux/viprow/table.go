package viprow

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/limit"
	"github.com/weirlb/weir/internal/model"
)

// Table knows the row of every VIP that has an endpoint or source NAT, and gives out the ids of rows. The caller holds
// the data plane's lock.
type Table struct {
	tables *bpf.Tables
	flows  *flow.Table
	limits *limit.Policers
	Index  *Index
	IDs    *alloc.IDs // of endpoint_counts
	Live   map[netip.Addr]*Live
}

// Live is a VIP as the tables have it.
type Live struct {
	Row       bpf.MuxEndpoint
	Endpoints int // that hold it
}

// New has none yet.
func New(tables *bpf.Tables, sizes bpf.Sizes, flows *flow.Table, limits *limit.Policers) *Table {
	return &Table{
		tables: tables, flows: flows, limits: limits, Index: newIndex(tables),
		IDs: alloc.NewIDs("endpoints", sizes.Rows()), Live: map[netip.Addr]*Live{},
	}
}

// NewID is a row's id, with counters at zero.
func (v *Table) NewID() (uint32, error) {
	id, err := v.IDs.Take()
	if err != nil {
		return 0, err
	}
	zero := make([]bpf.MuxCounter, ebpf.MustPossibleCPU())
	if err := v.tables.EndpointCounts.Put(id, zero); err != nil {
		v.IDs.Put(id)
		return 0, fmt.Errorf("clear row of endpoint_counts: %w", err)
	}
	if err := v.tables.SYNCounters.Put(id, make([]bpf.MuxSynCounter, ebpf.MustPossibleCPU())); err != nil {
		v.IDs.Put(id)
		return 0, fmt.Errorf("clear row of syn_counters: %w", err)
	}
	return id, nil
}

// AdoptEndpoint counts a live endpoint of the VIP.
func (v *Table) AdoptEndpoint(vip netip.Addr) {
	if live := v.Live[vip]; live != nil {
		live.Endpoints++
	}
}

// Adopt reads the rows of VIPs from adopted tables.
func (v *Table) Adopt() error {
	used := map[uint32]bool{}
	err := EachRow(v.tables, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		if row.Flags&bpf.MuxEndpointFlagENDPOINT_VIP != 0 {
			used[row.Vip] = true
			v.Live[key.VIP] = &Live{Row: row}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.flows.Adopt(used)
}

// Open is what is known of a VIP; one that is new has no row in endpoints yet.
func (v *Table) Open(vip netip.Addr) (*Live, error) {
	if live := v.Live[vip]; live != nil {
		return live, nil
	}
	id, err := v.flows.Take()
	if err != nil {
		return nil, err
	}
	if err := v.limits.Clear(id); err != nil {
		v.flows.Put(id)
		return nil, err
	}
	live := &Live{Row: bpf.MuxEndpoint{Slices: bpf.SlicePair{BucketBits: bpf.NoBuckets}.Pack(), Vip: id}}
	v.Live[vip] = live
	return live, nil
}

// ofVIP are the flags of an endpoint that are its VIP's.
const ofVIP = bpf.MuxEndpointFlagENDPOINT_PING | bpf.MuxEndpointFlagENDPOINT_HARDWARE

// Hold makes or changes the row of an endpoint's VIP, and tells its index. fresh: the endpoint is new.
func (v *Table) Hold(vip netip.Addr, flags bpf.MuxEndpointFlag, fresh bool) (uint32, error) {
	live, err := v.Open(vip)
	if err != nil {
		return 0, err
	}
	if fresh {
		live.Endpoints++
	}
	row := live.Row
	row.Flags = row.Flags&^ofVIP | flags&ofVIP | bpf.MuxEndpointFlagENDPOINT_VIP
	return live.Row.Vip, v.Write(vip, live, row)
}

// WithPing are the flags of a VIP that answers pings, or does not.
func WithPing(flags bpf.MuxEndpointFlag, ping bool) bpf.MuxEndpointFlag {
	if ping {
		return flags | bpf.MuxEndpointFlagENDPOINT_PING
	}
	return flags &^ bpf.MuxEndpointFlagENDPOINT_PING
}

// Write replaces the VIP's row. One with source NAT is in the index, as endpoints are.
func (v *Table) Write(vip netip.Addr, live *Live, row bpf.MuxEndpoint) error {
	if row == live.Row {
		return nil
	}
	if err := v.tables.Endpoints.Put(bpf.ToKey(Key(vip)), row); err != nil {
		return fmt.Errorf("write row of vip %s: %w", vip, err)
	}
	live.Row = row
	if row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT != 0 {
		v.Index.Put(bpf.ToKey(Key(vip)), row)
	}
	return nil
}

// Release removes the row of the VIP when its last endpoint goes, unless workloads leave as it.
func (v *Table) Release(vip netip.Addr) error {
	live := v.Live[vip]
	if live == nil {
		return nil
	}
	if live.Endpoints--; live.Endpoints > 0 || live.Row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT != 0 {
		return nil
	}
	return v.Remove(vip, live)
}

// Remove takes the VIP's row away.
func (v *Table) Remove(vip netip.Addr, live *Live) error {
	if err := v.tables.Endpoints.Delete(bpf.ToKey(Key(vip))); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete row of vip %s: %w", vip, err)
	}
	v.flows.Retire(live.Row.Vip)
	delete(v.Live, vip)
	return nil
}

// Key is the key of the VIP's own row.
func Key(vip netip.Addr) model.EndpointKey { return model.EndpointKey{VIP: vip} }

// EachRow calls do for every row of endpoints, those of VIPs too.
func EachRow(t *bpf.Tables, do func(model.EndpointKey, bpf.MuxEndpoint) error) error {
	var key bpf.MuxEndpointKey
	var row bpf.MuxEndpoint
	entries := t.Endpoints.Iterate()
	for entries.Next(&key, &row) {
		if err := do(bpf.FromKey(key), row); err != nil {
			return err
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	return nil
}
