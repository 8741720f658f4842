package overload

import (
	"slices"
	"time"
)

const (
	// Interval is the time between two samples.
	Interval = 200 * time.Millisecond
	// Calm is how long nothing is lost until an overload is over.
	Calm = 5 * time.Second

	window     = time.Second // that rates are of
	leastLost  = 100         // packets a second: fewer are no overload
	leastShare = 0.001       // of all packets, likewise
	looks      = 2           // in a row that must agree
)

// Sample is what is known of an interface's packets and of the CPUs at one time.
type Sample struct {
	At       time.Time
	Received uint64 // packets that came, those that were lost too
	Lost     uint64 // of them, those that the program never saw: no room, or no time
	CPUs     []CPU  // in the same order each time
}

// CPU is how a CPU spent its time so far.
type CPU struct{ SoftIRQ, All time.Duration }

// State is what a Detector knows.
type State struct {
	Overloaded bool
	Suspected  bool    // the last look found too much lost
	Lost       float64 // packets a second, over the last second
	Share      float64 // of all packets
	SoftIRQ    float64 // share of the busiest CPU's time
}

// Detector follows the samples. The zero value has seen none.
type Detector struct {
	samples []Sample // of the window, the oldest first
	agree   int      // looks in a row that found too much lost
	last    time.Time
	state   State
}

// Observe takes the next sample, and says whether an overload began or ended with it.
func (d *Detector) Observe(s Sample) (now State, changed bool) {
	d.samples = append(d.samples, s)
	for len(d.samples) > 2 && s.At.Sub(d.samples[1].At) >= window {
		d.samples = slices.Delete(d.samples, 0, 1)
	}
	first := d.samples[0]
	took := s.At.Sub(first.At).Seconds()
	if took <= 0 || s.Lost < first.Lost || s.Received < first.Received { // the first one, or the interface is another
		d.samples = []Sample{s}
		return d.state, false
	}
	lost, received := float64(s.Lost-first.Lost), float64(s.Received-first.Received)
	d.state.Lost, d.state.Share, d.state.SoftIRQ = lost/took, lost/max(received, 1), busiest(first.CPUs, s.CPUs)
	d.agree++
	if d.state.Lost < leastLost || d.state.Share < leastShare {
		d.agree = 0
	}
	d.state.Suspected = d.agree > 0
	was := d.state.Overloaded
	switch {
	case d.agree >= looks:
		d.state.Overloaded, d.last = true, s.At
	case d.agree == 0 && s.At.Sub(d.last) >= Calm:
		d.state.Overloaded = false
	}
	return d.state, d.state.Overloaded != was
}

// Loss is the share of packets that were lost between two samples; 0: none, or so few that they do not count.
func Loss(before, after Sample) float64 {
	took := after.At.Sub(before.At).Seconds()
	if took <= 0 || after.Lost < before.Lost || after.Received <= before.Received {
		return 0
	}
	lost := float64(after.Lost - before.Lost)
	share := lost / float64(after.Received-before.Received)
	if lost/took < leastLost || share < leastShare {
		return 0
	}
	return min(share, 1)
}

// busiest is the share of softirqs in the time of the CPU that has the largest.
func busiest(before, after []CPU) (most float64) {
	for i := range min(len(before), len(after)) {
		if all := after[i].All - before[i].All; all > 0 {
			most = max(most, float64(after[i].SoftIRQ-before[i].SoftIRQ)/float64(all))
		}
	}
	return most
}
