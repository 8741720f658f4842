package synflood

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
)

// runNetwork plays SYNs of virtual networks, of real clients and forged ones, for some seconds. Their handshakes are
// followed only while the mux answers: else it sees no ACK.
func runNetwork(f *detector, c *endpoint.SYNCounter, now time.Time, seconds, real, forged float64) (events []told, tries time.Duration) {
	began := now
	due := 0.0
	for end := now.Add(time.Duration(seconds * float64(time.Second))); now.Before(end); now = now.Add(sampleInterval) {
		step := sampleInterval.Seconds()
		c.SYNs += uint64((real + forged) * step)
		c.Completed += uint64(due) // a round trip later
		due = 0
		if f.state.Watches && (f.state.Answers || f.state.Tries) {
			c.Tried += uint64((real + forged) * step / 8)
			due = real * step / 8
		}
		if f.state.Tries {
			tries += sampleInterval
		}
		if event, _ := f.sample(*c, now, DefaultLimits); event != "" {
			events = append(events, told{now.Sub(began), event})
		}
	}
	return events, tries
}

// A flood through attachments is found by a trial, within seconds; a crowd is tried and learnt.
func TestAFloodOfNetworksIsFoundByATrial(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, flood := range map[string][3]float64{
		"forged alone": {0, 0, 5000}, "beside real ones": {100, 100, 5000}, "much of it": {1000, 1000, 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := &detector{}, &endpoint.SYNCounter{}
			if events, _ := runNetwork(f, c, now, 120, flood[0], 0); len(events) > 0 {
				t.Fatalf("%v", events)
			}
			events, _ := runNetwork(f, c, now.Add(120*time.Second), 10, flood[1], flood[2])
			if len(events) != 1 || events[0].after > 4*time.Second || !f.state.Answers {
				t.Fatalf("%v, %+v", events, f.state)
			}
			events, _ = runNetwork(f, c, now.Add(130*time.Second), 20, flood[1], 0)
			if len(events) != 1 || events[0].after > 2*calmTime || f.state != (endpoint.SYNState{}) {
				t.Errorf("%v, %+v", events, f.state)
			}
		})
	}
	t.Run("a crowd", func(t *testing.T) {
		f, c := &detector{}, &endpoint.SYNCounter{}
		events, tries := runNetwork(f, c, now, 600, 20_000, 0)
		if len(events) > 0 || tries > 10*2*time.Second || f.state != (endpoint.SYNState{}) {
			t.Errorf("%v, tried for %s, %+v", events, tries, f.state)
		}
	})
}
