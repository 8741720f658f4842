package mux

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// resolveTables reads the tables as a packet would: the slow oracle of what is live.
func resolveTables(t testing.TB, d *Datapath) map[model.EndpointKey]model.MuxEndpoint {
	t.Helper()
	live := map[model.EndpointKey]model.MuxEndpoint{}
	err := endpoint.Each(&d.tables, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		pair := bpf.UnpackSlices(row.Slices)
		e := model.MuxEndpoint{Key: key}
		buckets, previous, err := endpoint.ReadBuckets(&d.tables, pair)
		if err != nil {
			return err
		}
		e.Buckets, e.Previous = buckets, previous
		rows, err := endpoint.ReadBackends(&d.tables, pair.Backends)
		for slot, row := range rows {
			e.Backends = append(e.Backends, endpoint.FromBackend(slot, row))
		}
		slices.SortFunc(e.Backends, func(a, b model.MuxBackend) int { return int(a.Slot) - int(b.Slot) })
		live[key] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return live
}

func drawEndpoint(t *rapid.T, key model.EndpointKey) model.MuxEndpoint {
	e := model.MuxEndpoint{Key: key}
	slots := rapid.SliceOfNDistinct(rapid.Uint16Range(1, 40), 0, 6, rapid.ID).Draw(t, "slots")
	slices.Sort(slots)
	for _, slot := range slots {
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot:   model.Slot(slot),
			Tunnel: netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "tunnel")}),
			Down:   rapid.Bool().Draw(t, "down"),
		})
	}
	if len(slots) == 0 {
		return e
	}
	for range 1 << rapid.IntRange(0, 8).Draw(t, "bucket bits") {
		e.Buckets = append(e.Buckets, model.Slot(rapid.SampledFrom(slots).Draw(t, "bucket")))
	}
	return e
}

// TestTablesResolveToWhatWasAsked runs random sequences against a map as the model.
func TestTablesResolveToWhatWasAsked(t *testing.T) {
	d := newUnattached(t, testSizes)
	rapid.Check(t, func(rt *rapid.T) {
		if err := d.Replace(nil); err != nil {
			rt.Fatal(err)
		}
		wantAllFree(rt, d)
		asked := map[model.EndpointKey]model.MuxEndpoint{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			step(rt, d, asked)
			equal := cmp.Equal(asked, resolveTables(t, d), cmpopts.EquateEmpty(),
				cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, model.EndpointKey{}))
			if !equal {
				rt.Fatalf("tables hold\n%v\nwant\n%v", resolveTables(t, d), asked)
			}
		}
	})
}

// wantAllFree checks that nothing leaks and that what is given back grows together again.
func wantAllFree(rt *rapid.T, d *Datapath) {
	buckets, backends := d.endpoints.Room()
	for s, size := range map[*alloc.Rows]uint32{buckets: testSizes.BucketRows, backends: testSizes.Backends} {
		s.Reclaim()
		whole, ok := s.Take(bits.Len32(size) - 1)
		if !ok {
			rt.Fatalf("%s: %d rows of %d are free in pieces", s.Table, s.Room(), size)
		}
		s.Put(whole)
	}
	if free := len(d.endpoints.Rows.IDs.Free); free != int(testSizes.Rows()) {
		rt.Fatalf("%d ids are free, want %d", free, testSizes.Rows())
	}
}

func step(rt *rapid.T, d *Datapath, asked map[model.EndpointKey]model.MuxEndpoint) {
	keys := rapid.SliceOfNDistinct(rapid.Uint16Range(1, 12), 0, 5, rapid.ID).Draw(rt, "ports")
	var upserts []model.MuxEndpoint
	for _, port := range keys {
		upserts = append(upserts, drawEndpoint(rt, testKey(port)))
	}
	if rapid.Bool().Draw(rt, "replace") {
		if err := d.Replace(upserts); err != nil {
			rt.Fatal(err)
		}
		clear(asked)
	} else {
		removed := testKey(rapid.Uint16Range(1, 24).Draw(rt, "removed"))
		if err := d.Apply(upserts, []model.EndpointKey{removed}); err != nil {
			rt.Fatal(err)
		}
		delete(asked, removed)
	}
	for _, e := range upserts {
		asked[e.Key] = e
	}
}

func testKey(port uint16) model.EndpointKey {
	return model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: port}
}

func TestApplyRefusesAndChangesNothing(t *testing.T) {
	good := newEndpoint(vip4, model.TCP, tunnel4)
	many := func(n int) (all []model.MuxEndpoint) {
		for i := range n {
			e := newEndpoint(vip4, model.TCP, tunnel4)
			e.Key.Port = uint16(1000 + i)
			all = append(all, e)
		}
		return all
	}
	bad := func(change func(*model.MuxEndpoint)) []model.MuxEndpoint {
		e := newEndpoint("203.0.113.12:80", model.TCP, tunnel4)
		change(&e)
		return []model.MuxEndpoint{newEndpoint("203.0.113.13:80", model.TCP, tunnel4), e}
	}
	wide := many(1)
	wide[0].Backends[0].Slot, wide[0].Buckets = 5000, nil
	for want, upserts := range map[string][]model.MuxEndpoint{
		"raise --max-buckets":   many(63),
		"raise --max-endpoints": bucketless(many(int(testSizes.Rows()))),
		"raise --max-backends":  wide,
		"power of two":          bad(func(e *model.MuxEndpoint) { e.Buckets = e.Buckets[:3] }),
		"no backend":            bad(func(e *model.MuxEndpoint) { e.Buckets[7] = 9 }),
		"not between":           bad(func(e *model.MuxEndpoint) { e.Backends[0].Slot = 0 }),
		"no usable tunnel":      bad(func(e *model.MuxEndpoint) { e.Backends[0].Tunnel = netip.Addr{} }),
		"given twice":           {good, good},
	} {
		t.Run(want, func(t *testing.T) {
			d := newFilled(t, good)
			before := resolveTables(t, d)
			buckets, backends := d.endpoints.Room()
			room := [2]int{buckets.Room(), backends.Room()}
			err := d.Apply(upserts, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("error is %v, want %q", err, want)
			}
			if !cmp.Equal(before, resolveTables(t, d), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, model.EndpointKey{})) {
				t.Error("the refused change left something")
			}
			if after := [2]int{buckets.Room(), backends.Room()}; after != room {
				t.Errorf("room is %v, was %v", after, room)
			}
		})
	}
}

func bucketless(all []model.MuxEndpoint) []model.MuxEndpoint {
	for i := range all {
		all[i].Buckets = nil
	}
	return all
}

func TestUnchangedEndpointKeepsItsCounter(t *testing.T) {
	kept, other := newEndpoint(vip4, model.TCP, tunnel4), newEndpoint(vip6, model.TCP, tunnel6)
	d := newFilled(t, kept, other)
	chosen(t, d, pkt.TCP(client4, vip4, pkt.SYN))
	chosen(t, d, pkt.TCP(client6, vip6, pkt.SYN))
	if err := d.Replace([]model.MuxEndpoint{kept}); err != nil {
		t.Fatal(err)
	}
	apply(t, d, other) // made again: counts from zero
	counters, err := d.EndpointCounters()
	if err != nil {
		t.Fatal(err)
	}
	if got := counters[kept.Key].Packets; got != 1 {
		t.Errorf("counter of the endpoint that stayed is %d, want 1", got)
	}
	if got := counters[other.Key].Packets; got != 0 {
		t.Errorf("counter of the endpoint made again is %d, want 0", got)
	}
}

// TestPacketsNeverSeeAMixture replaces tables under traffic. In each version all buckets name
// one slot of its own, so a bucket of one version and a backend of another would show.
func TestPacketsNeverSeeAMixture(t *testing.T) {
	const versions = 300
	version := func(n int) model.MuxEndpoint {
		e := newEndpoint(vip4, model.TCP)
		slot := model.Slot(n%30 + 1)
		e.Backends = []model.MuxBackend{{Slot: slot, Tunnel: netip.AddrFrom4([4]byte{10, 0, 0, byte(slot)})}}
		e.Buckets = slices.Repeat([]model.Slot{slot}, 1<<(n%9))
		return e
	}
	d := newFilled(t, version(0))
	hops := map[netip.Addr]model.NextHop{}
	for n := range 30 {
		hops[version(n).Backends[0].Tunnel] = testHop
	}
	if err := d.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var group errgroup.Group
	group.Go(func() error {
		defer done.Store(true)
		for n := 1; n <= versions; n++ {
			if err := d.Apply([]model.MuxEndpoint{version(n)}, nil); err != nil {
				return fmt.Errorf("apply version %d: %w", n, err)
			}
		}
		return nil
	})
	sent := uint64(0)
	for i := 0; !done.Load(); i++ {
		run(t, d, pkt.TCP(randomTuple(0x0b000000, i%50000).String(), vip4, pkt.SYN).Frame())
		sent++
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]uint64{"forward_syn": sent}, verdicts(t, d)); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}
