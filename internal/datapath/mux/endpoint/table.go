package endpoint

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/limit"
	"github.com/weirlb/weir/internal/datapath/mux/nexthop"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
	"github.com/weirlb/weir/internal/datapath/mux/viprow"
	"github.com/weirlb/weir/internal/model"
)

// Table is the endpoints that packets for VIPs meet. A change of them is one transaction with that of prefix lists and
// of workloads with source NAT. The caller holds the data plane's lock.
type Table struct {
	Parts
	log  *slog.Logger
	room *room

	relays     *relays
	Live       map[model.EndpointKey]*Live
	Weights    *Weights      // nil: the tables have changed since
	tick       time.Duration // of the flow table's clock
	allPorts   int           // live endpoints on all ports
	hasSecrets bool          // of SYN cookies
}

// Parts are what endpoints are made of beside their own tables.
type Parts struct {
	Tables   *bpf.Tables
	Flows    *flow.Table
	Lists    *acl.Lists
	Policers *limit.Policers
	Rows     *viprow.Table
	SNAT     *snat.Table
	Hops     *nexthop.Hops
	Tunnels  *nexthop.Tunnels
	Pool     *pool.Table
}

// New has none yet.
func New(parts Parts, sizes bpf.Sizes, log *slog.Logger) *Table {
	tick, _ := bpf.FlowTick() // Spec has told, if it fails
	return &Table{
		Parts: parts, log: log, tick: tick, Live: map[model.EndpointKey]*Live{},
		room: &room{
			tables: parts.Tables, ids: parts.Rows.IDs,
			buckets: alloc.NewRows("buckets", sizes.BucketRows), backends: alloc.NewRows("backends", sizes.Backends),
		},
		relays: &relays{tables: parts.Tables, uses: map[relay]int{}},
	}
}

// Room is what allocates rows of buckets and backends.
func (t *Table) Room() (buckets, backends *alloc.Rows) { return t.room.buckets, t.room.backends }

// Changes is how many endpoints an update of these would write.
func (t *Table) Changes(upserts []model.MuxEndpoint) (int, error) {
	changes, err := t.plan(upserts, nil)
	return len(changes), err
}

// PutRow writes the row of an endpoint, which says so already, where packets find it.
func (t *Table) PutRow(key model.EndpointKey, row bpf.MuxEndpoint) error {
	if err := t.Tables.Endpoints.Put(bpf.ToKey(key), row); err != nil {
		return fmt.Errorf("write row of endpoints: %w", err)
	}
	if err := t.Rows.Index.Open(); err != nil {
		return err
	}
	t.Rows.Index.Put(bpf.ToKey(key), row)
	return nil
}

// SetMuxes divides the limits of VIPs among so many muxes, of which each gets a like part of the traffic.
func (t *Table) SetMuxes(n int) error {
	if !t.Policers.SetMuxes(n) {
		return nil
	}
	for key, live := range t.Live {
		if live.Settings.limits != (model.Limits{}) {
			if err := t.Policers.Write(t.Rows.Live[key.VIP].Row.Vip, live.Settings.limits); err != nil {
				return err
			}
		}
	}
	return nil
}

// RefusedCounters counts the packets that rate limits or fair shares dropped, of each VIP that has limits or lost any.
func (t Accounts) RefusedCounters() (map[netip.Addr]model.Counter, error) {
	counters := map[netip.Addr]model.Counter{}
	for vip, live := range t.Rows.Live {
		counter, err := abi.Counter(t.Tables.VIPDrops, live.Row.Vip)
		if err != nil {
			return nil, fmt.Errorf("read what was refused of vip %s: %w", vip, err)
		}
		if counter != (model.Counter{}) {
			counters[vip] = counter
		}
	}
	for key, live := range t.Live {
		if _, there := counters[key.VIP]; !there && live.Row.Flags&bpf.MuxEndpointFlagENDPOINT_LIMITED != 0 {
			counters[key.VIP] = model.Counter{}
		}
	}
	return counters, nil
}

// Point rewrites the next hop of every live backend whose tunnel got another one, in
// place: nothing else of the row changes.
func (t *Table) Point(moved func(tunnel netip.Addr) bool) error {
	for key, endpoint := range t.Live {
		first := bpf.UnpackSlices(endpoint.Row.Slices).Backends.First
		for _, b := range endpoint.Backends {
			if !moved(b.Tunnel) {
				continue
			}
			row := bpf.MuxBackend{
				Tunnel: bpf.ToAddress(b.Tunnel), NextHop: t.Hops.ID(b.Tunnel), Flags: bpf.BackendFlags(b),
			}
			if err := t.Tables.Backends.Update(first+uint32(b.Slot), row, ebpf.UpdateExist); err != nil {
				return fmt.Errorf("write next hop of endpoint %s, slot %d: %w", key, b.Slot, err)
			}
		}
	}
	return nil
}
