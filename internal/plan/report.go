package plan

import (
	"time"

	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// Report is what a simulation of a trace comes to.
type Report struct {
	Moments []Moment `json:"intervals"`
	// Parts of the traffic of an interval:
	CoverageMean  float64 `json:"coverageMean"` // on switches
	CoverageLeast float64 `json:"coverageLeast"`
	MovedMean     float64 `json:"movedMean"` // of all but the first interval
	MovedMost     float64 `json:"movedMost"`
	TransitMost   float64 `json:"transitMost"` // of the traffic that moves by way of software muxes
	Muxes         int64   `json:"muxes"`       // most of an interval

	Latencies []TraceLatency `json:"latencies"`
}

// TraceLatency is the latency through a trace with as many software muxes as its worst interval needs, by a profile.
type TraceLatency struct {
	Profile  string        `json:"profile"`
	Source   string        `json:"source"`
	MuxRate  traffic.Rate  `json:"muxKbitPerS"`
	Muxes    int64         `json:"muxes"`
	Without  int64         `json:"muxesWithoutSwitches"`
	Switch   time.Duration `json:"switchNs"`    // median of VIPs on switches
	Software Quantiles     `json:"software"`    // of VIPs on software muxes, in the interval with most load
	Median   time.Duration `json:"medianNs"`    // of all VIPs by their traffic, in that interval
	All      Quantiles     `json:"allSoftware"` // of all traffic on the muxes that are needed without switches
}

// NewReport sums up the intervals of a simulation.
func NewReport(moments []Moment) Report {
	r := Report{Moments: moments, CoverageLeast: 1}
	for i, m := range moments {
		coverage, moved := part(float64(m.Hardware), float64(m.Rate)), part(float64(m.Moved), float64(m.Rate))
		r.CoverageMean += coverage / float64(len(moments))
		r.CoverageLeast = min(r.CoverageLeast, coverage)
		r.Muxes = max(r.Muxes, m.Muxes)
		if i > 0 {
			r.MovedMean += moved / float64(len(moments)-1)
			r.MovedMost = max(r.MovedMost, moved)
			r.TransitMost = max(r.TransitMost, part(float64(m.Transit), float64(m.Rate)))
		}
	}
	for _, p := range LatencyProfiles() {
		r.Latencies = append(r.Latencies, p.through(moments))
	}
	return r
}

// through is the latency of a trace.
func (p LatencyProfile) through(moments []Moment) TraceLatency {
	l := TraceLatency{
		Profile: p.Name, Source: p.Source, MuxRate: p.MuxRate, Switch: p.SwitchLatency(),
	}
	var most, left, total traffic.Rate // all traffic, and what is in software and all of it in that interval
	for _, m := range moments {
		l.Muxes = max(l.Muxes, placement.Muxes(m.Rate-m.Hardware+max(m.Failure, m.Transit), p.MuxRate))
		l.Without = max(l.Without, placement.Muxes(m.Rate, p.MuxRate))
		most = max(most, m.Rate)
		if total == 0 || m.Rate-m.Hardware > left {
			left, total = m.Rate-m.Hardware, m.Rate
		}
	}
	load := p.Load(left, int(l.Muxes))
	l.Software, l.Median = p.SoftwareLatency(load), p.weightedMedian(total, left, load)
	l.All = p.SoftwareLatency(p.Load(most, int(l.Without)))
	return l
}

// Chart draws a simulation through time.
func (r Report) Chart() Chart {
	on, moved := Line{Name: "on switches"}, Line{Name: "moved"}
	for _, m := range r.Moments {
		at := float64(m.Interval)
		on.Points = append(on.Points, Point{X: at, Y: 100 * part(float64(m.Hardware), float64(m.Rate))})
		moved.Points = append(moved.Points, Point{X: at, Y: 100 * part(float64(m.Moved), float64(m.Rate))})
	}
	return Chart{Title: "part of the traffic", Axis: "interval", UnitY: " %", Series: []Line{moved, on}}
}
