package plan

import (
	"fmt"
	"sort"
	"time"

	"github.com/weirlb/weir/internal/traffic"
)

// Quantiles are those of a latency.
type Quantiles struct {
	P50 time.Duration `json:"p50Ns"`
	P90 time.Duration `json:"p90Ns"`
	P99 time.Duration `json:"p99Ns"`
}

// LoadPoint is what a software mux adds to the round trip at a load.
type LoadPoint struct {
	Load float64 // part of the mux's capacity
	Quantiles
}

// LatencyProfile is the latency of a generation of muxes.
type LatencyProfile struct {
	Name      string
	Source    string        // where its values come from
	RoundTrip time.Duration // without a mux, median
	Switch    time.Duration // that a switch as mux and the way to it add
	Steer     time.Duration // that a hop from host to host adds
	Steered   float64       // part of packets from switches that take such a hop
	MuxRate   traffic.Rate  // capacity of a software mux
	Mux       []LoadPoint   // ascending by load; above the last its latency stays
}

// Paper2014 is the latency of Duet (SIGCOMM 2014). The paper tells the points at no load and at overload (sections 2.2
// and 8.3), and that latency is mostly below 1 ms at two thirds of the capacity (section 7.1). Where Figure 1 has curves
// whose values the text does not tell, points are assumed. Hosts did not steer.
func Paper2014() LatencyProfile {
	return LatencyProfile{
		Name: "paper2014",
		Source: "Duet (SIGCOMM 2014), sections 2.2, 7.1 and 8.3; points between no load and overload are assumed " +
			"from the text",
		RoundTrip: 381 * time.Microsecond, Switch: 30 * time.Microsecond, MuxRate: 3_600_000,
		Mux: []LoadPoint{
			point(0, 196, 1000, 2000),
			point(0.67, 300, 1000, 3000),
			point(1, 600, 3000, 6000),
			point(1.05, 6000, 6500, 7000),
		},
	}
}

// Measured is the latency of Weir's mux: its program takes at most 0.4 µs of a core for a packet (UDP with a million
// flows, make bench-mux on a core of an AMD EPYC), and sends by a port of 10 Gbit/s with 1 024 buffers, 1.2 µs for each
// packet of 1500 bytes. The queue of the port was simulated with Poisson arrivals: no NIC was measured.
func Measured() LatencyProfile {
	return LatencyProfile{
		Name: "measured",
		Source: "0.4 µs of CPU a packet (make bench-mux, slowest class); the queue of a port of 10 Gbit/s is simulated, " +
			"no NIC was measured; round trip and way to a switch as in the paper",
		RoundTrip: 381 * time.Microsecond, Switch: 30 * time.Microsecond, Steer: 30 * time.Microsecond, Steered: 0.05,
		MuxRate: 10_000_000,
		Mux: []LoadPoint{
			point(0, 1.6, 1.6, 1.6),
			point(0.25, 1.6, 2.5, 3.6),
			point(0.5, 1.6, 3.4, 5.6),
			point(0.75, 2.7, 6.3, 11.3),
			point(0.9, 5.3, 14.5, 26.8),
			point(0.95, 9.1, 25.9, 49.5),
			point(0.98, 20.2, 76.8, 139.2),
			point(1.02, 1208, 1226, 1229),
		},
	}
}

// LatencyProfiles are all profiles.
func LatencyProfiles() []LatencyProfile { return []LatencyProfile{Paper2014(), Measured()} }

func point(load, p50, p90, p99 float64) LoadPoint {
	return LoadPoint{Load: load, Quantiles: Quantiles{P50: micros(p50), P90: micros(p90), P99: micros(p99)}}
}

func micros(n float64) time.Duration { return time.Duration(n * float64(time.Microsecond)) }

// SoftwareLatency is the latency of a VIP on software muxes that have the load, the round trip included.
func (p LatencyProfile) SoftwareLatency(load float64) Quantiles {
	last := p.Mux[len(p.Mux)-1]
	above := sort.Search(len(p.Mux), func(i int) bool { return p.Mux[i].Load >= load })
	switch above {
	case len(p.Mux):
		return p.add(last.Quantiles)
	case 0:
		return p.add(p.Mux[0].Quantiles)
	}
	low, high := p.Mux[above-1], p.Mux[above]
	part := (load - low.Load) / (high.Load - low.Load)
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(part*float64(b-a)) }
	return p.add(Quantiles{
		P50: between(low.P50, high.P50), P90: between(low.P90, high.P90), P99: between(low.P99, high.P99),
	})
}

func (p LatencyProfile) add(q Quantiles) Quantiles {
	return Quantiles{P50: p.RoundTrip + q.P50, P90: p.RoundTrip + q.P90, P99: p.RoundTrip + q.P99}
}

// SwitchLatency is the median latency of a VIP on switches, the round trip included.
func (p LatencyProfile) SwitchLatency() time.Duration {
	return p.RoundTrip + p.Switch + time.Duration(p.Steered*float64(p.Steer))
}

// Load is the load of so many software muxes that share a rate evenly.
func (p LatencyProfile) Load(rate traffic.Rate, muxes int) float64 {
	if rate == 0 {
		return 0
	}
	return float64(rate) / float64(p.MuxRate) / float64(max(1, muxes))
}

// MuxLatency is the latency that so many software muxes give.
type MuxLatency struct {
	Muxes  int           `json:"muxes"`
	Load   float64       `json:"load"`
	Median time.Duration `json:"medianNs"` // of VIPs, weighted by their traffic
}

// LatencyFigure is Figure 17 of Duet: latency by software muxes, without switches and with them.
type LatencyFigure struct {
	Profile  string       `json:"profile"`
	Source   string       `json:"source"`
	Software []MuxLatency `json:"software"` // all traffic on software muxes
	Switches MuxLatency   `json:"switches"`
	Equal    int          `json:"equal"` // least software muxes whose latency is not above that with switches; 0: none
}

// Figure17 computes the figure of traffic of which the rate left is on as many software muxes as muxes says.
func (p LatencyProfile) Figure17(total, left traffic.Rate, muxes int, sweep []int) LatencyFigure {
	f := LatencyFigure{Profile: p.Name, Source: p.Source}
	for _, n := range sweep {
		load := p.Load(total, n)
		f.Software = append(f.Software, MuxLatency{Muxes: n, Load: load, Median: p.SoftwareLatency(load).P50})
	}
	load := p.Load(left, muxes)
	f.Switches = MuxLatency{Muxes: muxes, Load: load, Median: p.weightedMedian(total, left, load)}
	f.Equal = p.equal(total, f.Switches.Median)
	return f
}

// weightedMedian is that of VIPs by their traffic, of which the rate left is on software muxes of the load.
func (p LatencyProfile) weightedMedian(total, left traffic.Rate, load float64) time.Duration {
	onSwitches, onMuxes := p.SwitchLatency(), p.SoftwareLatency(load).P50
	if switched := total - left; switched*2 > total || switched*2 == total && onSwitches < onMuxes {
		return onSwitches
	}
	return onMuxes
}

// maxMuxes bounds the search for a number of software muxes.
const maxMuxes = 1 << 24

// equal returns the least software muxes that give all traffic at most that latency, or 0.
func (p LatencyProfile) equal(total traffic.Rate, latency time.Duration) int {
	n := sort.Search(maxMuxes, func(n int) bool { return p.SoftwareLatency(p.Load(total, n+1)).P50 <= latency })
	if n == maxMuxes {
		return 0
	}
	return n + 1
}

// LatencyChart is Figure 17 of Duet by each profile. With switches it is a level line.
func LatencyChart(figures []LatencyFigure) Chart {
	chart := Chart{
		Title: "median latency, µs (logarithmic)", Axis: "software muxes (logarithmic)", LogX: true, LogY: true,
	}
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	for _, f := range figures {
		software := Line{Name: "software muxes alone, " + f.Profile}
		switches := Line{Name: fmt.Sprintf("switches and %d software muxes, %s", f.Switches.Muxes, f.Profile)}
		for _, at := range f.Software {
			software.Points = append(software.Points, Point{X: float64(at.Muxes), Y: micros(at.Median)})
			switches.Points = append(switches.Points, Point{X: float64(at.Muxes), Y: micros(f.Switches.Median)})
		}
		chart.Series = append(chart.Series, software, switches)
	}
	return chart
}
