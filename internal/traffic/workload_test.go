package traffic

import (
	"math"
	"reflect"
	"slices"
	"testing"
)

func generate(t *testing.T, w Workload) []Demand {
	t.Helper()
	demands, err := w.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return demands
}

// The text of the paper has no values of Figure 15 but these: 30 000 VIPs, most traffic is of a few, and 16 384 VIPs on
// switches leave next to nothing to software muxes.
func TestWorkloadHasTheSkewOfThePaper(t *testing.T) {
	demands := generate(t, Workload{})
	rates := make([]float64, len(demands))
	total, backends := 0.0, 0
	for i, d := range demands {
		rates[i] = float64(d.Rate())
		total += rates[i]
		for _, g := range d.Backends {
			backends += int(g.Backends)
		}
	}
	slices.Sort(rates)
	slices.Reverse(rates)
	for _, c := range []struct {
		vips int
		part float64
	}{{300, 0.536}, {3000, 0.880}, {16384, 0.9952}, {30000, 1}} {
		sum := 0.0
		for _, r := range rates[:c.vips] {
			sum += r
		}
		if part := sum / total; math.Abs(part-c.part) > 0.006 {
			t.Errorf("the %d largest VIPs have %.4f of the traffic, not %.4f", c.vips, part, c.part)
		}
	}
	if most := rates[0] / total; most > 0.01501 {
		t.Errorf("the largest VIP has %.4f of the traffic", most)
	}
	if math.Abs(total-10e9) > 1e5 {
		t.Errorf("the sum is %.0f kbit/s", total)
	}
	if backends < 150_000 || backends > 220_000 {
		t.Errorf("there are %d backends", backends)
	}
}

func TestWorkloadKeepsItsBounds(t *testing.T) {
	for _, w := range []Workload{{}, {Seed: 2, Skew: 2}, {Seed: 3, Skew: 3}, {VIPs: 50, Racks: 12, MaxShare: 0.1}, {VIPs: 1, Racks: 1}} {
		demands := generate(t, w)
		w = w.withDefaults()
		sent, received := make([]float64, w.Racks), make([]float64, w.Racks)
		external, total := 0.0, 0.0
		for _, d := range demands {
			external, total = external+float64(d.External), total+float64(d.Rate())
			count := int32(0)
			for _, g := range d.Backends {
				count += g.Backends
			}
			if count < 1 || count > maxVIPBackends {
				t.Fatalf("%s has %d backends", d.VIP, count)
			}
			for _, g := range d.Backends {
				received[g.Rack] += float64(d.Rate()) * float64(g.Backends) / float64(count)
			}
			for _, s := range d.Sources {
				sent[s.Rack] += float64(s.Rate)
			}
			if !slices.IsSortedFunc(d.Sources, func(a, b Share) int { return int(a.Rack - b.Rack) }) ||
				!slices.IsSortedFunc(d.Backends, func(a, b Group) int { return int(a.Rack - b.Rack) }) {
				t.Fatalf("%s is not sorted by rack", d.VIP)
			}
		}
		most := rackLimit * total / float64(w.Racks) * 1.001
		if slices.Max(sent) > most || slices.Max(received) > most {
			t.Errorf("%+v: a rack sends %.0f or receives %.0f, above %.0f", w, slices.Max(sent), slices.Max(received), most)
		}
		if part := external / total; w.VIPs > 1000 && (part < 0.15 || part > 0.4) {
			t.Errorf("%+v: %.2f of the traffic comes from outside, not about 0.27", w, part)
		}
	}
}

func TestSeedAloneDecides(t *testing.T) {
	w := Workload{VIPs: 300, Racks: 40}
	a, b := generate(t, w), generate(t, w)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives other traffic")
	}
	w.Seed = 2
	if reflect.DeepEqual(a, generate(t, w)) {
		t.Error("another seed gives the same traffic")
	}
}

// Backends do not depend on the sum, so that a sweep over sums compares the same workload.
func TestTotalScalesTheSameWorkload(t *testing.T) {
	small, large := generate(t, Workload{VIPs: 300, Racks: 40, Total: 1e8}), generate(t, Workload{VIPs: 300, Racks: 40, Total: 1e9})
	for i := range small {
		if !reflect.DeepEqual(small[i].Backends, large[i].Backends) {
			t.Fatalf("%s has other backends with another sum", small[i].VIP)
		}
		if ratio := float64(large[i].Rate()) / max(1, float64(small[i].Rate())); math.Abs(ratio-10) > 0.1 && small[i].Rate() > 100 {
			t.Errorf("%s has %.2f times the rate with 10 times the sum", small[i].VIP, ratio)
		}
	}
}

func TestWrongWorkloadsAreRefused(t *testing.T) {
	for _, w := range []Workload{
		{VIPs: -1},
		{VIPs: maxWorkloadVIPs + 1},
		{Racks: -1},
		{Racks: maxWorkloadRacks + 1},
		{Total: -1},
		{Total: MaxRate + 1},
		{Skew: math.NaN()},
		{Skew: -1},
		{Skew: 6},
		{MaxShare: 2},
		{MaxShare: math.NaN()},
	} {
		if _, err := w.Generate(); err == nil {
			t.Errorf("%+v is not refused", w)
		}
	}
}

func TestSeriesChangesRatesAndKeepsBackends(t *testing.T) {
	s := Series{Workload: Workload{VIPs: 2000, Racks: 100, Total: 6.65e9}}
	var first, last Interval
	count := 0
	err := s.Generate(func(i Interval) bool {
		if count == 0 {
			first = i
		}
		last = i
		count++
		if rate := i.Rate(); rate < 6.1e9 || rate > 7.2e9 {
			t.Errorf("interval %d sums to %d kbit/s", i.Number, rate)
		}
		return true
	})
	if err != nil || count != 18 {
		t.Fatalf("%d intervals, error %v", count, err)
	}
	var logs []float64
	for i, d := range first.Demands {
		if !reflect.DeepEqual(d.Backends, last.Demands[i].Backends) {
			t.Fatalf("%s has other backends later", d.VIP)
		}
		if d.Rate() > 1000 {
			logs = append(logs, math.Log(float64(last.Demands[i].Rate())/float64(d.Rate())))
		}
	}
	mean, square := 0.0, 0.0
	for _, l := range logs {
		mean += l / float64(len(logs))
		square += l * l / float64(len(logs))
	}
	// 17 steps from 0: 0.35² (1 - 0.81^17) / (1 - 0.81)
	if deviation := math.Sqrt(square - mean*mean); math.Abs(deviation-0.79) > 0.06 {
		t.Errorf("the logarithms of rates deviate by %.3f behind 17 steps", deviation)
	}
}
