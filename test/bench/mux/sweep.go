package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// sweep is how many live frames a second the mux takes, by one thing that changes.
type sweep struct {
	Points []sweepPoint `json:"points"`
	// LeastToMost is the lowest rate to the highest; FromBatchOn is that of the rates of batches of 64 frames and more.
	LeastToMost float64 `json:"least_to_most"`
	FromBatchOn float64 `json:"from_batch_64_on_to_most"`
}

type sweepPoint struct {
	Bytes int     `json:"bytes"` // of a frame
	Batch int     `json:"batch"` // frames that come at once
	Mpps  float64 `json:"mpps"`
	Gbit  float64 `json:"gbit_per_s"` // of Ethernet's frames, without what is before and between them
}

// sizes are of frames, up to the one that has 1500 bytes of IP behind an outer header.
var sizes = []int{86, 128, 256, 512, 1024, 1494}

var batches = []int{1, 2, 4, 8, 16, 32, 64, 128, 256}

func sizeLanes() (lanes []lane) {
	for _, bytes := range sizes {
		lanes = append(lanes, sweepLane(dataClass, bytes, liveBatch))
	}
	return lanes
}

func batchLanes() (lanes []lane) {
	for _, batch := range batches {
		lanes = append(lanes, sweepLane("tcp-mpc", 0, batch))
	}
	return lanes
}

func sweepLane(class string, bytes, batch int) lane {
	whole := func(h *harness) *ebpf.Program { return h.Whole }
	return lane{name: class, class: class, flows: 1, program: whole, batch: batch, bytes: bytes}
}

// sweep runs lanes. The rates of a turn are told to their mean, so that what slows all of it slows none.
func (w *world) sweep(core *core, lanes []lane) (*sweep, error) {
	if err := w.runLanes(core, lanes); err != nil {
		return nil, err
	}
	var means []float64
	for turn := range liveTurns {
		sum := 0.0
		for i := range lanes {
			sum += lanes[i].rates[turn]
		}
		means = append(means, sum/float64(len(lanes)))
	}
	var s sweep
	usual := median(slices.Clone(means))
	for i := range lanes {
		l := &lanes[i]
		for turn := range l.rates {
			l.rates[turn] /= means[turn]
		}
		p := sweepPoint{Bytes: l.bytes, Batch: l.batch, Mpps: median(l.rates) * usual}
		if p.Bytes == 0 {
			all := classes(v4)
			p.Bytes = len(named(all, l.class).frame())
		}
		p.Gbit = p.Mpps * float64(8*p.Bytes) / 1000
		s.Points = append(s.Points, p)
	}
	s.LeastToMost = s.least(0) / s.most()
	s.FromBatchOn = s.least(liveBatch) / s.most()
	return &s, nil
}

// least is the lowest rate of batches of so many frames and more.
func (s *sweep) least(batch int) float64 {
	low := s.most()
	for _, p := range s.Points {
		if p.Batch >= batch {
			low = min(low, p.Mpps)
		}
	}
	return low
}

func (s *sweep) most() (high float64) {
	for _, p := range s.Points {
		high = max(high, p.Mpps)
	}
	return high
}

// curve has a value of each point, by what changes.
func (s *sweep) curve(at func(sweepPoint) int, of func(sweepPoint) float64) []plan.Line {
	var line plan.Line
	for _, p := range s.Points {
		line.Points = append(line.Points, plan.Point{X: float64(at(p)), Y: of(p)})
	}
	return []plan.Line{line}
}

// plotSweeps draws what there is, if there is a folder for it.
func plotSweeps(dir string, all *report) error {
	var errs []error
	mpps := func(p sweepPoint) float64 { return p.Mpps }
	if all.Batches != nil {
		errs = append(errs, benchlab.Draw(dir, "mplb-7.svg", plan.Chart{
			Title: "SYNs of Multipath TCP through a mux, Mpps", Axis: "frames that come at once", LogX: true,
			Series: all.Batches.curve(func(p sweepPoint) int { return p.Batch }, mpps),
		}))
	}
	if all.Sizes != nil {
		bytes := func(p sweepPoint) int { return p.Bytes }
		errs = append(errs,
			benchlab.Draw(dir, "mplb-10.svg", plan.Chart{
				Title: "packets through a mux, Gbit/s", Axis: "bytes of a frame", Series: all.Sizes.curve(bytes, func(p sweepPoint) float64 { return p.Gbit }),
			}),
			benchlab.Draw(dir, "mplb-10-packets.svg", plan.Chart{
				Title: "packets through a mux, Mpps", Axis: "bytes of a frame", Series: all.Sizes.curve(bytes, mpps),
			}))
	}
	return errors.Join(errs...)
}

func printSweep(name string, s *sweep) {
	for _, p := range s.Points {
		fmt.Printf("%s: %4d bytes, %3d at once: %.2f Mpps, %.1f Gbit/s\n", name, p.Bytes, p.Batch, p.Mpps, p.Gbit)
	}
}
