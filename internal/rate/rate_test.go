package rate

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func key(vip, tenant string) Key {
	return Key{VIP: vip, Tenant: tenant, Endpoint: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.1"), Protocol: model.TCP, Port: 80}}
}

// Growth is by the second, whenever reports came; a counter that is new began at 0, one that went back has no rate.
func TestGrowth(t *testing.T) {
	got := Growth(map[string]Count{"same": {5, 50}, "grown": {100, 1000}, "reset": {100, 1000}, "gone": {1, 1}},
		map[string]Count{"same": {5, 50}, "grown": {300, 3000}, "reset": {10, 100}, "new": {20, 200}}, 2*time.Second)
	want := map[string]Rate{"same": {}, "grown": {100, 8000}, "new": {10, 800}}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A sample has the busiest endpoints, and what the others had together; nothing is lost when samples are put together.
func TestSamplesAreBounded(t *testing.T) {
	endpoints, muxes, verdicts, sum := map[Key]Rate{}, map[string]Mux{}, map[string]Rate{}, Rate{}
	for i := range MaxEndpoints + 50 {
		r := Rate{float64(i + 1), float64(8 * (i + 1))}
		endpoints[key(fmt.Sprint("vip", i), "red")] = r
		sum = sum.Add(r)
		muxes[fmt.Sprint("mux", i)] = Mux{Forwarded: r}
		verdicts[fmt.Sprint("forward_", i)] = r
	}
	endpoints[key("idle", "red")] = Rate{}
	s := Fold(noon, muxes, verdicts, endpoints)
	if len(s.Endpoints) != MaxEndpoints || len(s.Muxes) != MaxMuxes || len(s.Verdicts) != MaxVerdicts {
		t.Errorf("%d endpoints, %d muxes, %d verdicts", len(s.Endpoints), len(s.Muxes), len(s.Verdicts))
	}
	if want := (Rate{50 * 51 / 2, 8 * 50 * 51 / 2}); s.Other != want || s.Endpoints[0].Key.Value().VIP != fmt.Sprint("vip", MaxEndpoints+49) {
		t.Errorf("other is %v, want %v; the first is %v", s.Other, want, s.Endpoints[0].Key.Value())
	}
	both := Merge(s, s)
	total := both.Other
	for _, e := range both.Endpoints {
		total = total.Add(e.Rate)
	}
	if want := sum.Add(sum); total != want || len(both.Endpoints) != MaxEndpoints {
		t.Errorf("both have %v in %d endpoints, want %v", total, len(both.Endpoints), want)
	}
	if len(s.Endpoints) != MaxEndpoints || s.Endpoints[0].Rate.Packets != MaxEndpoints+50 {
		t.Error("what was put together was written to")
	}
}

// A ring has one sample of each interval, in order, and the newest of all.
func TestRing(t *testing.T) {
	var r Ring
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * 5 * time.Second) }
	sample := func(i int, mux string) *Sample {
		return Fold(at(i), map[string]Mux{mux: {Forwarded: Rate{1, 8}}}, map[string]Rate{"forward_flow": {1, 8}}, map[Key]Rate{key("shop", "red"): {1, 8}})
	}
	for _, i := range []int{1, 0, 2, 5} { // some are late, some are missing
		r.Put(sample(i, "m1"))
	}
	r.Put(sample(2, "m2"))
	got := r.Since(at(0), at(4))
	if len(got) != 2 || !got[0].At.Equal(at(1)) || !got[1].At.Equal(at(2)) {
		t.Fatalf("got %v", got)
	}
	if s := got[1]; len(s.Muxes) != 2 || s.Verdicts["forward_flow"].Packets != 2 || s.Endpoints[0].Rate.Packets != 2 {
		t.Errorf("two managers' samples of an interval are %+v", s)
	}
	if got[0].Verdicts["forward_flow"].Packets != 1 || r.Has(at(3)) || !r.Has(at(5)) {
		t.Error("a sample went to another interval")
	}
	for i := range Keep {
		r.Put(sample(10+i, "m1"))
	}
	r.Put(sample(0, "m1"))
	if all := r.Since(time.Time{}, at(1000)); len(all) != Keep || !all[0].At.Equal(at(10)) {
		t.Errorf("%d are kept, from %s on", len(all), all[0].At)
	}
}

// Verdicts are summed up by what becomes of packets.
func TestMuxOf(t *testing.T) {
	got := MuxOf(map[string]Rate{"forward_flow": {1, 8}, "forward_syn": {2, 16}, "pass_local": {4, 32}, "drop_no_backend": {8, 64}, "other": {16, 128}})
	if want := (Mux{Forwarded: Rate{3, 24}, Passed: Rate{4, 32}, Dropped: Rate{8, 64}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
