package floodpolicy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var at = time.Unix(1_700_000_000, 0)

func TestEachStep(t *testing.T) {
	long := floodTime
	for what, c := range map[string]struct {
		from  State
		after time.Duration
		seen  Seen
		out   bool
		times uint32
		event Event
	}{
		"calm":                         {State{}, 0, Seen{Room: true}, false, 0, ""},
		"flooded for a moment":         {State{}, 0, Seen{Flooded: long - 1, Room: true}, false, 0, ""},
		"flooded":                      {State{}, 0, Seen{Flooded: long, Room: true}, true, 1, Withdrawn},
		"flooded, muxes are full":      {State{}, 0, Seen{Flooded: long}, false, 0, NoRoom},
		"flooded, and to stay":         {State{}, 0, Seen{Flooded: long, Room: true, Stays: true}, false, 0, ""},
		"out, back-off not over":       {State{true, at, 1}, firstBackOff - 1, Seen{Room: true}, true, 1, ""},
		"out, back-off over":           {State{true, at, 1}, firstBackOff, Seen{}, false, 1, Returns},
		"out, still flooded":           {State{true, at, 1}, firstBackOff, Seen{Flooded: 1}, true, 1, ""},
		"out, muxes are full":          {State{true, at, 1}, 0, Seen{Flooded: long}, true, 1, ""},
		"out a second time":            {State{true, at, 2}, 2*firstBackOff - 1, Seen{}, true, 2, ""},
		"out, and to stay":             {State{true, at, 1}, 0, Seen{Flooded: long, Stays: true}, false, 1, Returns},
		"back, and flooded again":      {State{false, at, 1}, 0, Seen{Flooded: long, Room: true}, true, 2, Withdrawn},
		"back for less than an hour":   {State{false, at, 3}, lastBackOff - 1, Seen{}, false, 3, ""},
		"back for an hour":             {State{false, at, 3}, lastBackOff, Seen{}, false, 0, ""},
		"back for an hour, flooded":    {State{false, at, 3}, lastBackOff, Seen{Flooded: 1}, false, 3, ""},
		"withdrawn more often than it": {State{false, at, maxTimes}, 0, Seen{Flooded: long, Room: true}, true, maxTimes, Withdrawn},
	} {
		got, event := c.from.Next(c.seen, at.Add(c.after))
		if got.Withdrawn != c.out || got.Times != c.times || event != c.event {
			t.Errorf("%s: leads to %+v (%q)", what, got, event)
		}
	}
	for times, want := range map[uint32]time.Duration{0: firstBackOff, 1: firstBackOff, 3: 4 * firstBackOff, maxTimes: lastBackOff, 1 << 31: lastBackOff} {
		if got := BackOff(times); got != want {
			t.Errorf("the back-off after %d is %s", times, got)
		}
	}
}

// Whatever comes: a VIP that went leaves for its back-off, and comes back; one that is to stay is never out.
func TestAVIPComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		now := at
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 600).Draw(t, "seconds")) * time.Second)
			seen := Seen{
				Flooded: time.Duration(rapid.IntRange(0, 20).Draw(t, "flooded")) * time.Second,
				Room:    rapid.Bool().Draw(t, "room"), Stays: rapid.IntRange(0, 9).Draw(t, "stays") == 0,
			}
			next, event := s.Next(seen, now)
			switch {
			case next.Withdrawn && seen.Stays:
				t.Fatalf("%+v: out although it is to stay", next)
			case next.Withdrawn && !s.Withdrawn && !seen.Room:
				t.Fatalf("%+v: out although muxes have no room", next)
			case event == Returns && !seen.Stays && now.Sub(s.Since) < firstBackOff:
				t.Fatalf("%+v: back after %s", next, now.Sub(s.Since))
			}
			s = next
		}
		for range 4 {
			now = now.Add(lastBackOff)
			s, _ = s.Next(Seen{Room: true}, now)
		}
		if s != (State{}) {
			t.Fatalf("in the end %+v", s)
		}
	})
}
