package planinput

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// threeRacks is a fabric of which two racks have prefixes.
func threeRacks(t *testing.T) *fabric.Fabric {
	t.Helper()
	spec, err := fabric.Clos{Containers: 1, TorsPerContainer: 3, AggsPerContainer: 1, Cores: 1, TorUplink: 1e6, AggUplink: 1e6}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	spec.Racks[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	spec.Racks[1].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00:2::/32")}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newRecording(t *testing.T) *Recording {
	t.Helper()
	r, err := NewRecording(threeRacks(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counters is a report of a mux, of bytes by VIP and port: "203.0.113.1:80".
func counters(mux string, second float64, bytes map[string]uint64) *weirv1.Node {
	status := &weirv1.MuxStatus{}
	for name, n := range bytes {
		at := netip.MustParseAddrPort(name)
		status.Endpoints = append(status.Endpoints, &weirv1.EndpointCounter{
			Endpoint: &weirv1.EndpointKey{Vip: at.Addr().String(), Protocol: "TCP", Port: uint32(at.Port())}, Bytes: n,
		})
	}
	at := time.Unix(0, 0).Add(time.Duration(second * float64(time.Second)))
	return &weirv1.Node{Name: mux, Role: "mux", Status: &weirv1.NodeStatus{LastSeen: timestamppb.New(at), Mux: status}}
}

// vip is one with backends at the addresses on port 80, and on port 443, too.
func vip(name, address string, backends ...string) *weirv1.VIP {
	v := &weirv1.VIP{Name: name, Address: address}
	for _, port := range []uint32{80, 443} {
		e := &weirv1.Endpoint{Protocol: "TCP", Port: port}
		for i, b := range backends {
			e.Backends = append(e.Backends, &weirv1.Backend{Address: b, Host: fmt.Sprintf("host%d", i+1)})
		}
		v.Endpoints = append(v.Endpoints, e)
	}
	return v
}

func (r *Recording) observe(all ...*weirv1.Node) { r.Observe(all) }

func next(t *testing.T, r *Recording, vips ...*weirv1.VIP) (traffic.Interval, []string) {
	t.Helper()
	i, left, err := r.Next(7, vips)
	if err != nil {
		t.Fatal(err)
	}
	return i, left
}

// Agents say from which racks packets come, and of how much muxes saw nothing.
func TestRecordingTakesRacksFromAgents(t *testing.T) {
	r := newRecording(t)
	shop, fast, quiet := vip("shop", "203.0.113.1", "10.1.0.1"), vip("fast", "203.0.113.2", "10.1.0.2"), vip("quiet", "203.0.113.3", "10.1.0.3")
	read := func(manager string, since int64, rows ...*weirv1.TrafficRow) *weirv1.ReadTrafficResponse {
		return &weirv1.ReadTrafficResponse{Manager: manager, Since: &timestamppb.Timestamp{Seconds: since}, Traffic: rows}
	}
	row := func(vip, from string, bytes uint64) *weirv1.TrafficRow {
		return &weirv1.TrafficRow{Vip: vip, From: from, Bytes: bytes}
	}
	at := func(second float64, n uint64) *weirv1.Node {
		return counters("m1", second, map[string]uint64{"203.0.113.1:80": n, "203.0.113.3:80": n})
	}
	r.observe(at(100, 0))
	r.ObserveTraffic([]*weirv1.ReadTrafficResponse{read("a", 1, row("203.0.113.1", "10.1.0.0/16", 1e9)), read("b", 1)})
	r.observe(at(110, 10e6))
	r.ObserveTraffic([]*weirv1.ReadTrafficResponse{
		read("a", 1, row("203.0.113.1", "", 2e6), row("203.0.113.1", "10.1.0.0/16", 1e9+2e6)),
		read("b", 1, row("203.0.113.1", "10.2.3.0/24", 4e6), row("203.0.113.2", "10.9.0.0/16", 20e6)),
		read("c", 5, row("203.0.113.2", "", 1e9)), // it counted before
		{Manager: "d", Trouble: "it is away"},
	})
	got, left := next(t, r, shop, fast, quiet)
	here := []traffic.Group{{Rack: 0, Backends: 1}}
	want := traffic.Interval{Number: 7, Demands: []traffic.Demand{
		{VIP: "fast", External: 16000, Backends: here}, // no mux saw it, and the prefix is of no rack of this fabric
		{VIP: "quiet", External: 8000, Backends: here},
		{VIP: "shop", External: 2000, Sources: []traffic.Share{{Rack: 0, Rate: 2000}, {Rack: 1, Rate: 4000}}, Backends: here},
	}}
	if !reflect.DeepEqual(got, want) || len(left) > 0 {
		t.Errorf("got %+v, left out %v, want %+v", got, left, want)
	}
	r.observe(at(120, 20e6))
	if got, _ := next(t, r, shop); len(got.Demands[0].Sources) != 0 {
		t.Errorf("what was told is told again: %+v", got)
	}
}

func TestRecordingAddsUpMuxesAndEndpoints(t *testing.T) {
	r := newRecording(t)
	shop := vip("shop", "203.0.113.1", "10.1.0.1", "10.2.0.1", "10.2.0.2")
	r.observe(counters("m1", 100, map[string]uint64{"203.0.113.1:80": 1e9}), counters("m2", 101, nil))
	if _, length := r.Span(); length != 0 || !r.Reported() {
		t.Errorf("one report spans %s", length)
	}
	if _, _, err := r.Next(0, nil); err == nil {
		t.Error("an interval without two reports")
	}
	r.observe(counters("m1", 104, map[string]uint64{"203.0.113.1:80": 1e9 + 1e6, "203.0.113.1:443": 2e6}), counters("m2", 101, nil))
	r.observe(counters("m1", 110, map[string]uint64{"203.0.113.1:80": 1e9 + 4e6, "203.0.113.1:443": 2e6}),
		counters("m2", 110, map[string]uint64{"203.0.113.1:80": 4e6}))
	if since, length := r.Span(); length != 10*time.Second || since.Unix() != 100 {
		t.Errorf("the interval begins at %s and spans %s", since, length)
	}
	got, left := next(t, r, vip("idle", "203.0.113.2", "fd00:2::5"), shop, vip("empty", "203.0.113.3"))
	want := traffic.Interval{Number: 7, Demands: []traffic.Demand{
		{VIP: "idle", Backends: []traffic.Group{{Rack: 1, Backends: 1}}},
		{VIP: "shop", External: 8000, Backends: []traffic.Group{{Rack: 0, Backends: 1}, {Rack: 1, Backends: 2}}}, // 10 MB in 10 s
	}}
	if !reflect.DeepEqual(got, want) || len(left) > 0 {
		t.Errorf("got %+v, left out %v, want %+v", got, left, want)
	}
	// The next interval begins where this one ended.
	r.observe(counters("m1", 114, map[string]uint64{"203.0.113.1:80": 1e9 + 5e6, "203.0.113.1:443": 2e6}))
	if got, _ := next(t, r, shop); got.Rate() != 2000 {
		t.Errorf("the next interval has %+v", got)
	}
}

// A mux that starts anew counts from 0; one that comes later counts from its first report on; old reports count once.
func TestRecordingWhileMuxesChange(t *testing.T) {
	r := newRecording(t)
	shop := vip("shop", "203.0.113.1", "10.1.0.1")
	report := func(mux string, second float64, bytes uint64) *weirv1.Node {
		return counters(mux, second, map[string]uint64{"203.0.113.1:80": bytes})
	}
	r.observe(report("m1", 0, 9e6))
	r.observe(report("m1", 2, 1e6), report("m2", 5, 5e9))
	r.observe(report("m1", 2, 1e6), report("m2", 8, 5e9+3e6))
	r.observe(report("m1", 1, 7e9), &weirv1.Node{Name: "m2"}) // older, and redacted
	r.observe(report("m1", 8, 5e6))
	if got, _ := next(t, r, shop); got.Rate() != 8000 { // 5 MB and 3 MB in 8 s
		t.Errorf("got %+v", got)
	}
}

func TestRecordingSaysWhatItLeavesOut(t *testing.T) {
	r := newRecording(t)
	far := vip("far", "203.0.113.2", "10.9.0.1")
	mixed := vip("mixed", "203.0.113.3", "10.9.0.2", "10.1.0.1", "10.1.0.2")
	zero := uint32(0)
	for _, e := range mixed.GetEndpoints() {
		e.Backends[2].Weight = &zero
	}
	tunnelled := vip("tunnelled", "203.0.113.5", "192.168.0.1")
	for _, e := range tunnelled.GetEndpoints() {
		e.Backends[0].Tunnel = "10.2.0.9"
	}
	all := []*weirv1.VIP{tunnelled, far, mixed}
	const want = "in no rack of the fabric: backends 10.9.0.1 of vip far on host1, 10.9.0.2 of vip mixed on host1: " +
		"give their racks prefixes that have the addresses"
	if err := r.Check(all); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := r.Check([]*weirv1.VIP{vip("empty", "203.0.113.9")}); err == nil || err.Error() != "no vip has a backend" {
		t.Errorf("error %v", err)
	}
	var many []*weirv1.VIP
	for range 7 {
		many = append(many, mixed, far)
	}
	if err := r.Check(many); err == nil || strings.Count(err.Error(), "10.9.0.") != 10 || !strings.Contains(err.Error(), ", 4 more: ") {
		t.Errorf("error %v", err)
	}
	r.observe(counters("m1", 0, nil))
	r.observe(counters("m1", 8, map[string]uint64{"203.0.113.2:80": 1e6, "203.0.113.3:80": 1e6, "203.0.113.4:80": 2e6}))
	got, left := next(t, r, all...)
	demands := []traffic.Demand{
		{VIP: "mixed", External: 1000, Backends: []traffic.Group{{Rack: 0, Backends: 1}}},
		{VIP: "tunnelled", Backends: []traffic.Group{{Rack: 1, Backends: 1}}},
	}
	if !reflect.DeepEqual(got.Demands, demands) {
		t.Errorf("got %+v, want %+v", got.Demands, demands)
	}
	wantLeft := []string{
		"2M to 203.0.113.4: no vip has the address any more",
		"backend 10.9.0.1 of vip far on host1: it is in no rack of the fabric",
		"backend 10.9.0.2 of vip mixed on host1: it is in no rack of the fabric",
		"vip far with 1M: it has no backend in a rack",
	}
	if !reflect.DeepEqual(left, wantLeft) {
		t.Errorf("left out: %q, want %q", left, wantLeft)
	}
	r.observe(counters("m1", 16, map[string]uint64{"203.0.113.2:80": 1e6, "203.0.113.3:80": 1e6, "203.0.113.4:80": 2e6}))
	if got, left := next(t, r, all[0]); got.Rate() != 0 || len(left) > 0 {
		t.Errorf("what the interval before had is counted again: %+v, %q", got, left)
	}
}

// Counters that no mux can have are refused, and do not overflow.
func TestRecordingRefusesEnormousCounters(t *testing.T) {
	r := newRecording(t)
	r.observe(counters("m1", 0, nil))
	r.observe(counters("m1", 1e-9, map[string]uint64{"203.0.113.1:80": math.MaxUint64}))
	_, _, err := r.Next(0, []*weirv1.VIP{vip("shop", "203.0.113.1", "10.1.0.1")})
	if err == nil || !strings.Contains(err.Error(), "up to vip shop, muxes count more than 1000000000000 kbit/s") {
		t.Errorf("error %v", err)
	}
}

func TestRecordingNeedsPrefixes(t *testing.T) {
	spec, err := fabric.PaperClos.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewRecording(f); err == nil || !strings.Contains(err.Error(), "no rack of the fabric has prefixes") {
		t.Errorf("error %v", err)
	}
}
