package synflood

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
)

// load is what an endpoint gets for a time.
type load struct {
	seconds float64
	real    float64 // SYN/s of clients that complete their handshakes after roundTrip
	forged  float64 // SYN/s of others
	acked   float64 // SYN/s of others that send a forged ACK behind each
}

const roundTrip = 100 * time.Millisecond

// told is the text of an event, and when it came.
type told struct {
	after time.Duration
	line  string
}

// runLoads plays loads to f by a clock of their own. As in the data plane, one connection in eight is
// followed while the endpoint is watched, and a forged ACK completes what was forwarded.
func runLoads(f *detector, limits Limits, loads ...load) (all []told, states []endpoint.SYNState) {
	return runLoadsFrom(f, roundTrip, limits, loads...)
}

// runLoadsFrom has the clients so far away.
func runLoadsFrom(
	f *detector, roundTrip time.Duration, limits Limits, loads ...load,
) (all []told, states []endpoint.SYNState) {
	now, began := time.Unix(1_700_000_000, 0), time.Unix(1_700_000_000, 0)
	var c endpoint.SYNCounter
	var syns, tried, completed float64
	var underWay []float64 // real ones that were followed, by step
	const step = 20 * time.Millisecond
	sampled := began
	for _, l := range loads {
		for end := now.Add(time.Duration(l.seconds * float64(time.Second))); now.Before(end); now = now.Add(step) {
			syns += (l.real + l.forged + l.acked) * step.Seconds()
			followed := 0.0
			if f.state.Watches {
				tried += (l.real + l.forged + l.acked) * step.Seconds() / 8
				if !f.state.Answers && !f.state.Tries {
					completed += l.acked * step.Seconds() / 8
				}
				followed = l.real * step.Seconds() / 8
			}
			underWay = append(underWay, followed)
			if n := int(roundTrip / step); len(underWay) > n {
				completed += underWay[len(underWay)-1-n]
			}
			if now.Sub(sampled) >= sampleInterval {
				sampled = now
				c = endpoint.SYNCounter{SYNs: uint64(syns), Tried: uint64(tried), Completed: uint64(completed)}
				if event, _ := f.sample(c, now, limits); event != "" {
					all = append(all, told{now.Sub(began), event})
				}
				states = append(states, f.state)
			}
		}
	}
	return all, states
}

func TestAFloodIsToldWithinASecondAndEnds(t *testing.T) {
	for name, quiet := range map[string]float64{"of a quiet endpoint": 0, "of a busy one": 5000} {
		t.Run(name, func(t *testing.T) {
			f := &detector{}
			all, states := runLoads(f, DefaultLimits, load{120, quiet, 0, 0}, load{10, quiet, 120_000, 0}, load{20, quiet, 0, 0})
			if len(all) != 2 || !strings.HasPrefix(all[0].line, "SYN cookies on: ") ||
				!strings.HasPrefix(all[1].line, "SYN cookies off after ") {
				t.Fatalf("%v", all)
			}
			if on := all[0].after - 120*time.Second; on < 0 || on > time.Second {
				t.Errorf("on after %s", on)
			}
			if off := all[1].after - 130*time.Second; off < 0 || off > 2*calmTime {
				t.Errorf("off after %s", off)
			}
			if last := states[len(states)-1]; last != (endpoint.SYNState{}) {
				t.Errorf("in the end: %+v", last)
			}
		})
	}
}

// A crowd of real clients, 200 times what is usual, is watched and left alone; so is what stays small.
func TestACrowdIsNoFlood(t *testing.T) {
	for name, loads := range map[string][]load{
		"a crowd":                {{120, 100, 0, 0}, {60, 20_000, 0, 0}, {20, 100, 0, 0}},
		"a crowd of an idle one": {{10, 0, 0, 0}, {30, 50_000, 0, 0}},
		"a few forged ones":      {{60, 10, 0, 0}, {30, 10, 900, 0}},
		"growth":                 {{60, 1000, 0, 0}, {60, 2000, 0, 0}, {60, 4000, 0, 0}},
		"some are lost":          {{60, 100, 0, 0}, {60, 10_000, 3000, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &detector{}
			if all, _ := runLoads(f, DefaultLimits, loads...); len(all) > 0 {
				t.Errorf("%v", all)
			}
		})
	}
}

// A flood that sends a forged ACK behind each SYN is told as well, beside real clients too. It does not end the
// answers, is told anew when it comes back, and nothing of it is learnt.
func TestForgedACKsHideNoFlood(t *testing.T) {
	for name, quiet := range map[string]float64{"of a quiet endpoint": 0, "of a busy one": 5000} {
		t.Run(name, func(t *testing.T) {
			f := &detector{}
			all, states := runLoads(f, DefaultLimits, load{120, quiet, 0, 0}, load{30, quiet, 0, 120_000},
				load{10, quiet, 0, 0}, load{30, quiet, 0, 120_000}, load{20, quiet, 0, 0})
			if len(all) != 4 {
				t.Fatalf("%v", all)
			}
			for i, begun := range []time.Duration{120 * time.Second, 160 * time.Second} {
				if on := all[2*i].after - begun; !strings.HasPrefix(all[2*i].line, "SYN cookies on: ") || on > 3*time.Second {
					t.Errorf("%s after %s", all[2*i].line, on)
				}
				if off := all[2*i+1].after - begun - 30*time.Second; off < 0 || off > 2*calmTime {
					t.Errorf("off after %s", off)
				}
			}
			if f.usual > max(10, 1.1*quiet) {
				t.Errorf("%.0f SYN/s are usual", f.usual)
			}
			if last := states[len(states)-1]; last != (endpoint.SYNState{}) {
				t.Errorf("in the end: %+v", last)
			}
		})
	}
}

// A crowd that has proven to be one does not hide a flood of its size.
func TestACrowdHidesNoFlood(t *testing.T) {
	all, _ := runLoads(&detector{}, DefaultLimits, load{60, 100, 0, 0}, load{10, 10_000, 0, 0}, load{5, 10_000, 0, 30_000})
	if len(all) != 1 || all[0].after < 70*time.Second || all[0].after > 73*time.Second {
		t.Errorf("%v", all)
	}
}

// Real clients are tried for little more than a second of each minute. Those that are far away are taken for a flood at
// most once, when they begin to come.
func TestACrowdIsTriedForAMoment(t *testing.T) {
	limits := Limits{Least: 100, Most: 20_000}
	for trip, most := range map[time.Duration]int{20 * time.Millisecond: 0, roundTrip: 0, 500 * time.Millisecond: 1} {
		all, states := runLoadsFrom(&detector{}, trip, limits, load{200, 30_000, 0, 0})
		tries := 0
		for _, state := range states {
			if state.Tries {
				tries++
			}
		}
		if tries < 2*trialSamples || tries > 4*trialSamples {
			t.Errorf("%s away: tried for %d samples", trip, tries)
		}
		if len(all) != 2*most {
			t.Errorf("%s away: %v", trip, all)
		}
	}
}

// What is usual is bounded on both sides: an endpoint that gets a lot has no flood at a little more, and none hides
// in what was learnt.
func TestWhatIsUsualIsBounded(t *testing.T) {
	f := &detector{}
	limits := Limits{Least: 100, Most: 20_000}
	if all, _ := runLoads(f, limits, load{300, 10_000, 0, 0}, load{10, 10_000, 5000, 0}); len(all) != 0 {
		t.Errorf("a little more: %v", all)
	}
	if f.usual < 9000 {
		t.Errorf("usual is %.0f", f.usual)
	}
	if all, _ := runLoads(&detector{usual: 10_000}, limits, load{5, 10_000, 0, 0}, load{5, 5000, 60_000, 0}); len(all) != 1 {
		t.Errorf("six times as many: %v", all)
	}
	if all, _ := runLoads(&detector{}, limits, load{5, 0, 0, 0}, load{5, 0, 1500, 0}); len(all) != 1 {
		t.Errorf("above the least: %v", all)
	}
}

// Of few SYNs few are followed: they are followed for longer.
func TestASmallFloodIsTold(t *testing.T) {
	limits := Limits{Least: 50, Most: 20_000}
	all, _ := runLoads(&detector{}, limits, load{5, 0, 0, 0}, load{5, 0, 75, 0})
	if len(all) != 1 || !strings.HasPrefix(all[0].line, "SYN cookies on: ") {
		t.Errorf("%v", all)
	}
	if all, _ := runLoads(&detector{}, limits, load{5, 0, 0, 0}, load{30, 75, 0, 0}); len(all) != 0 {
		t.Errorf("a small crowd: %v", all)
	}
}

// A successor goes on with what it finds, and ends it.
func TestASuccessorEndsWhatItFinds(t *testing.T) {
	f := &detector{state: endpoint.SYNState{Answers: true, Watches: true}}
	all, states := runLoads(f, DefaultLimits, load{5, 50, 120_000, 0}, load{20, 50, 0, 0})
	if len(all) != 1 || !strings.HasPrefix(all[0].line, "SYN cookies off: ") ||
		states[len(states)-1] != (endpoint.SYNState{}) {
		t.Errorf("%v", all)
	}
}
