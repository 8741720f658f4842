package overload

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/model"
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
	talkers    = 3           // VIPs that are named
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

// Look takes the next sample, and says whether an overload began or ended with it.
func (d *Detector) Look(s Sample) (now State, changed bool) {
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

// busiest is the share of softirqs in the time of the CPU that has the largest.
func busiest(before, after []CPU) (most float64) {
	for i := range min(len(before), len(after)) {
		if all := after[i].All - before[i].All; all > 0 {
			most = max(most, float64(after[i].SoftIRQ-before[i].SoftIRQ)/float64(all))
		}
	}
	return most
}

// Talker is a VIP and what came for it.
type Talker struct {
	VIP     netip.Addr
	Packets float64 // a second
	Share   float64 // of what came for all VIPs
}

// Talkers are the VIPs for which most came between two readings of their counters, the busiest first.
func Talkers(before, after map[netip.Addr]model.Counter, took time.Duration) []Talker {
	all, total := make([]Talker, 0, len(after)), 0.0
	for vip, now := range after {
		if packets := float64(now.Packets) - float64(before[vip].Packets); packets > 0 && took > 0 {
			all = append(all, Talker{VIP: vip, Packets: packets / took.Seconds(), Share: packets})
			total += packets
		}
	}
	slices.SortFunc(all, func(a, b Talker) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.VIP.Compare(b.VIP))
	})
	all = all[:min(len(all), talkers)]
	for i := range all {
		all[i].Share /= total
	}
	return all
}

// Evidence tells people of an overload, in one line.
func (s State) Evidence(busy []Talker) string {
	var line strings.Builder
	fmt.Fprintf(&line, "overloaded: %.0f packets a second are lost before the program sees them (%.1f %% of all), softirqs take %.0f %% of the busiest CPU",
		s.Lost, 100*s.Share, 100*s.SoftIRQ)
	for i, t := range busy {
		line.WriteString([]string{"; most came for ", ", then "}[min(i, 1)])
		fmt.Fprintf(&line, "%s: %.0f a second, %.0f %%", t.VIP, t.Packets, 100*t.Share)
	}
	return line.String()
}
