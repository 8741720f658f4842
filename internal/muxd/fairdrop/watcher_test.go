package fairdrop

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

func vip(n byte) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, n}) }

var vip10, vip11 = vip(10), vip(11)

// busyDatapath has packets come for two VIPs, of two tenants, and notes what it is to drop.
type busyDatapath struct {
	now      time.Duration // of the samples
	flood    bool          // the first VIP gets 90 000 packets a second, else 900; the second one 10 000
	offered  map[netip.Addr]endpoint.OfferedLoad
	cuts     map[netip.Addr]overload.Cut
	readings int
	read     time.Duration
}

func (d *busyDatapath) pass(took time.Duration) {
	d.now += took
	for vip, rate := range map[netip.Addr]float64{vip10: 900, vip11: 10_000} {
		if vip == vip10 && d.flood {
			rate = 90_000
		}
		o := d.offered[vip]
		packets := rate * took.Seconds()
		done := packets * (1 - d.cuts[vip].All)
		o.Tenant, o.Workloads = "of "+vip.String(), 2
		o.All = model.Counter{Packets: o.All.Packets + uint64(packets), Bytes: o.All.Bytes + 100*uint64(packets)}
		o.Done = model.Counter{Packets: o.Done.Packets + uint64(done), Bytes: o.Done.Bytes + 100*uint64(done)}
		d.offered[vip] = o
	}
}

func (d *busyDatapath) OfferedLoad() (map[netip.Addr]endpoint.OfferedLoad, map[string]int, error) {
	d.readings++
	all := map[netip.Addr]endpoint.OfferedLoad{}
	for vip, o := range d.offered {
		all[vip] = o
	}
	return all, map[string]int{"of 203.0.113.10": 2, "of 203.0.113.11": 2}, nil
}

func (d *busyDatapath) SetShares(cuts map[netip.Addr]overload.Cut) error {
	d.cuts = cuts
	return nil
}

// Sources tells of the first VIP that half of 90 000 packets a second come from one prefix, once it is looked at.
func (d *busyDatapath) Sources() (map[netip.Addr][]overload.Source, error) {
	took := d.now - d.read
	d.read = d.now
	if _, looked := d.cuts[vip10]; !looked || !d.flood {
		return nil, nil
	}
	return map[netip.Addr][]overload.Source{
		vip10: {{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Packets: 45_000 * took.Seconds()}},
	}, nil
}

// rig is a watch, and time that passes for it.
type rig struct {
	*Watcher
	d      *busyDatapath
	events []*weirv1.MuxEvent
	due    bool // a report is
	sample overload.Sample
}

func newRig() *rig {
	d := &busyDatapath{offered: map[netip.Addr]endpoint.OfferedLoad{}}
	r := &rig{d: d, sample: overload.Sample{At: time.Unix(1, 0)}}
	r.Watcher = New(Config{
		Datapath: d, Log: slog.New(slog.DiscardHandler), Report: func() { r.due = true },
		Event: func(e *weirv1.MuxEvent) { r.events, r.due = append(r.events, e), true },
	})
	return r
}

// pass has so many packets lost in each interval. It says whether a report is due.
func (r *rig) pass(t *testing.T, took time.Duration, lost uint64) (report bool) {
	t.Helper()
	for at := time.Duration(0); at < took; at += overload.Interval {
		r.d.pass(overload.Interval)
		r.sample.At = r.sample.At.Add(overload.Interval)
		r.sample.Received += 20_000 + lost
		r.sample.Lost += lost
		if err := r.evaluate(r.sample); err != nil {
			t.Fatal(err)
		}
	}
	report, r.due = r.due, false
	return report
}

func (r *rig) told() (told []string) {
	for _, e := range r.events {
		told = append(told, e.GetReason()+" "+e.GetVip()+": "+e.GetMessage())
	}
	return told
}

// An overload is told with its evidence within a second, and nothing is read while there is none.
func TestOverloadIsToldWithItsEvidence(t *testing.T) {
	r := newRig()
	r.d.flood = true
	if r.pass(t, 10*time.Second, 0) || r.d.readings != 0 || r.Warning() != "" {
		t.Fatalf("without loss: %d readings: %s", r.d.readings, r.Warning())
	}
	if !r.pass(t, time.Second, 2000) {
		t.Error("no report within a second")
	}
	const evidence = "most came for 203.0.113.10: 90000 a second, 90 % (50 % from 198.51.100.0/24), " +
		"then 203.0.113.11: 10000 a second, 10 %"
	if line := r.Warning(); !strings.Contains(line, evidence) {
		t.Errorf("told: %s", line)
	}
	before := r.d.readings
	r.pass(t, 10*time.Second, 2000)
	if more := r.d.readings - before; more > 11 {
		t.Errorf("%d more readings in 10 s", more)
	}
}

// Who wants no shares is told of overloads all the same, and nobody loses for others.
func TestOverloadWithoutShares(t *testing.T) {
	r := newRig()
	r.config.ReportOnly = true
	r.d.flood = true
	r.pass(t, 3*time.Second, 2000)
	if line := r.Warning(); !strings.Contains(line, "most came for 203.0.113.10") {
		t.Errorf("told: %q", line)
	}
	for vip, cut := range r.d.cuts {
		if cut.All != 0 || cut.Others != 0 {
			t.Errorf("%s loses %+v", vip, cut)
		}
	}
	if told := r.told(); len(told) != 0 {
		t.Errorf("told %q", told)
	}
}

// While a mux is overloaded the VIP that has more than its share loses it, its largest sources first, and
// nobody else does. What it loses goes on for as long as it has too much, though nothing else is lost any more.
func TestShareEndsWithItsCause(t *testing.T) {
	r := newRig()
	r.d.flood = true
	vip := vip10
	r.pass(t, time.Second, 2000)
	cut, other := r.d.cuts[vip], r.d.cuts[vip11]
	if cut.All < 0.1 || cut.All > 0.5 || cut.Sources[netip.MustParsePrefix("198.51.100.0/24")] <= cut.Others ||
		other.All != 0 || other.Others != 0 {
		t.Fatalf("cuts are %+v", r.d.cuts)
	}
	told := r.told()
	if len(told) != 1 || !strings.HasPrefix(told[0], "ShareOn 203.0.113.10: the mux is overloaded and 90000 packets/s, ") ||
		!strings.Contains(told[0], "more than tenant of 203.0.113.10's share of 50.0 %") ||
		!strings.HasSuffix(told[0], "(50 % from 198.51.100.0/24)") {
		t.Fatalf("told %q", told)
	}
	press := r.Pressures()
	if len(press) != 1 || press[0].Vip != "203.0.113.10" || press[0].Tenant != "of 203.0.113.10" ||
		press[0].Cause != "overload" ||
		press[0].Vip+": "+press[0].Evidence != strings.TrimPrefix(told[0], "ShareOn ") {
		t.Errorf("pressures are %v, told %q", press, told)
	}
	r.pass(t, 2*overload.Calm, 0)
	if line := r.Warning(); r.d.cuts[vip].All == 0 || !strings.Contains(line, "VIPs that are held to their share: 1") {
		t.Errorf("without loss: %s, cuts %+v", line, r.d.cuts)
	}
	r.d.flood = false
	r.pass(t, 2*time.Second, 0)
	if r.d.cuts[vip].All != 0 {
		t.Errorf("after the flood: %+v", r.d.cuts)
	}
	r.pass(t, 2*overload.Calm, 0)
	told = r.told()
	if len(told) != 2 || !strings.HasPrefix(told[1], "ShareOff 203.0.113.10: within its share again, after ") {
		t.Errorf("told %q", told)
	}
	if press := r.Pressures(); len(press) != 0 {
		t.Errorf("at the end pressures are %v", press)
	}
	before := r.d.readings
	if r.pass(t, overload.Calm, 0); r.Warning() != "" || len(r.d.cuts) != 0 || r.d.readings != before {
		t.Errorf("at the end: %q, %+v, %d more readings", r.Warning(), r.d.cuts, r.d.readings-before)
	}
}

// Whose share is exceeded by a little, as another's flood leaves little to share, is no pressure: it is a victim.
func TestOnlyTheHeaviestIsPressure(t *testing.T) {
	s := newShares(Config{
		Datapath: &busyDatapath{}, Log: slog.New(slog.DiscardHandler), Event: func(*weirv1.MuxEvent) {},
	})
	demand := func(n byte, packets float64) overload.Demand {
		return overload.Demand{VIP: vip(n), Tenant: "acme", Offered: overload.Rate{Packets: packets}}
	}
	demands := []overload.Demand{demand(10, 90_000), demand(11, 60_000), demand(12, 6000), demand(13, 100)}
	cuts := map[netip.Addr]overload.Cut{
		vip10: {All: 0.9}, vip11: {All: 0.8}, vip(12): {All: 0.2},
	}
	at := time.Unix(1, 0)
	for range 2 {
		if err := s.set(at, demands, nil, cuts); err != nil {
			t.Fatal(err)
		}
	}
	press := s.pressures(at)
	if len(press) != 2 || press[0].Vip != "203.0.113.10" || press[1].Vip != "203.0.113.11" {
		t.Errorf("pressures are %v", press)
	}
	at = at.Add(overload.Calm)
	if err := s.set(at, demands[2:], nil, map[netip.Addr]overload.Cut{vip(12): {All: 0.2}}); err != nil {
		t.Fatal(err)
	}
	if press := s.pressures(at); len(press) != 1 || press[0].Vip != "203.0.113.12" {
		t.Errorf("without the others pressures are %v", press)
	}
}

// Packets that are lost, but come for no VIP, are no VIP's fault.
func TestNoVIPLosesForOthers(t *testing.T) {
	r := newRig()
	for range 50 { // the second VIP has most of what comes for VIPs
		r.sample.Received += 40_000 // for nobody
		r.pass(t, overload.Interval, 2000)
	}
	line := r.Warning()
	if !strings.HasPrefix(line, "overloaded: ") || len(r.told()) > 0 {
		t.Errorf("%s, told %q", line, r.told())
	}
	for vip, cut := range r.d.cuts {
		if cut.All > 0 || cut.Others > 0 {
			t.Errorf("%s loses %+v", vip, cut)
		}
	}
}
