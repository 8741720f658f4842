package endpoint

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/viprow"
	"github.com/weirlb/weir/internal/model"
)

// Adopt restores what this process must know of adopted tables: which rows are in use and by whom. The rows of VIPs and
// what workloads have must be known.
func (t *Table) Adopt() error {
	used := map[uint32]bool{}
	for vip := range t.SNAT.VIPs() {
		used[t.Rows.Live[vip].Row.Id] = true
	}
	err := Each(t.Tables, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		live, err := t.readEndpoint(row)
		if err != nil {
			return fmt.Errorf("adopt endpoint %s: %w", key, err)
		}
		used[row.Id] = true
		t.Live[key] = live
		t.Tunnels.Replace(nil, live.Backends)
		t.relays.count(key.VIP, live, 1)
		if key.Port == model.AllPorts {
			t.allPorts++
		}
		t.Rows.AdoptEndpoint(key.VIP)
		return nil
	})
	if err != nil {
		return err
	}
	t.Rows.IDs.Claim(used)
	if err := t.relays.adopt(); err != nil {
		return err
	}
	return t.adoptLists()
}

func (t *Table) adoptLists() error {
	pairs := map[uint32]*acl.Pair{}
	for _, live := range t.Live {
		if live.Row.Flags&bpf.MuxEndpointFlagENDPOINT_SOURCES != 0 {
			pairs[live.Row.Id] = &live.Lists
		}
	}
	return t.Lists.Adopt(pairs)
}

// AdoptEndpointIndex brings adopted tables, whose process may have ended halfway, to what endpoints says.
func (t *Table) AdoptEndpointIndex() error {
	if err := t.Rows.Index.Open(); err != nil {
		return err
	}
	for key, live := range t.Live {
		t.Rows.Index.Put(bpf.ToKey(key), live.Row)
	}
	for vip := range t.SNAT.VIPs() {
		t.Rows.Index.Put(bpf.ToKey(viprow.Key(vip)), t.Rows.Live[vip].Row)
	}
	t.Rows.Index.NoteAll()
	return nil
}

func (t *Table) readEndpoint(row bpf.MuxEndpoint) (*Live, error) {
	pair := bpf.UnpackSlices(row.Slices)
	buckets, previous, err := ReadBuckets(t.Tables, pair)
	if err != nil {
		return nil, err
	}
	if rows, ok := pair.BucketSpan(len(previous) > 0); ok {
		if err := t.room.buckets.Claim(rows); err != nil {
			return nil, err
		}
	}
	if err := t.room.backends.Claim(pair.Backends); err != nil {
		return nil, err
	}
	rows, err := ReadBackends(t.Tables, pair.Backends)
	if err != nil {
		return nil, err
	}
	moves, err := readMoves(t.Tables, pair)
	if err != nil {
		return nil, err
	}
	live := &Live{moves: moves, Row: row, Settings: readSettings(row), Buckets: buckets, Previous: previous}
	for slot, backend := range rows {
		live.Backends = append(live.Backends, FromBackend(slot, backend))
		t.Hops.Adopt(bpf.FromAddress(backend.Tunnel), backend.NextHop)
	}
	slices.SortFunc(live.Backends, func(a, b model.MuxBackend) int { return int(a.Slot) - int(b.Slot) })
	return live, nil
}

// Each calls do for every row of endpoints but those of VIPs.
func Each(t *bpf.Tables, do func(model.EndpointKey, bpf.MuxEndpoint) error) error {
	return viprow.EachRow(t, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		if row.Flags&bpf.MuxEndpointFlagENDPOINT_VIP != 0 {
			return nil
		}
		return do(key, row)
	})
}
