package overload

import (
	"testing"
	"time"
)

// script gives a detector samples every Interval: so many packets come in each, so many of them are lost.
type script struct {
	detector Detector
	sample   Sample
}

func (s *script) run(took time.Duration, received, lost uint64) (changes []time.Duration) {
	for at := Interval; at <= took; at += Interval {
		s.sample.At = s.sample.At.Add(Interval)
		s.sample.Received += received
		s.sample.Lost += lost
		busy := CPU{SoftIRQ: Interval / 2, All: Interval}
		if len(s.sample.CPUs) > 0 {
			busy.SoftIRQ += s.sample.CPUs[0].SoftIRQ
			busy.All += s.sample.CPUs[0].All
		}
		s.sample.CPUs = []CPU{busy, {}}
		if _, changed := s.detector.Observe(s.sample); changed {
			changes = append(changes, at)
		}
	}
	return changes
}

func TestOverloadIsToldWithinASecondAndEndsByItself(t *testing.T) {
	s := script{sample: Sample{At: time.Unix(1, 0)}}
	if got := s.run(10*time.Second, 100_000, 0); got != nil {
		t.Fatalf("an overload without loss: %v", got)
	}
	if got := s.run(3*time.Second, 100_000, 5_000); len(got) != 1 || got[0] > time.Second {
		t.Fatalf("told at %v, want once within a second", got)
	}
	if state := s.detector.state; state.Lost < 24_000 || state.Lost > 26_000 || state.Share < 0.049 || state.SoftIRQ != 0.5 {
		t.Errorf("state is %+v", state)
	}
	if got := s.run(Calm-2*Interval, 100_000, 0); got != nil {
		t.Fatalf("over at %v: too soon", got)
	}
	if got := s.run(Interval, 100_000, 5_000); got != nil {
		t.Fatalf("more loss is another overload: %v", got)
	}
	got := s.run(3*Calm, 100_000, 0)
	if len(got) != 1 || got[0] < Calm || s.detector.state.Overloaded {
		t.Fatalf("over at %v, want once after %s", got, Calm)
	}
	if n := len(s.detector.samples); n > int(window/Interval)+2 {
		t.Errorf("%d samples are kept", n)
	}
}

func TestWhatIsNoOverload(t *testing.T) {
	for name, c := range map[string]struct{ received, lost uint64 }{
		"few":            {1000, 10},
		"few of many":    {10_000_000, 1000},
		"nothing at all": {0, 0},
	} {
		s := script{sample: Sample{At: time.Unix(1, 0)}}
		if got := s.run(5*time.Second, c.received, c.lost); got != nil {
			t.Errorf("%s: told at %v", name, got)
		}
	}
	s := script{sample: Sample{At: time.Unix(1, 0), Lost: 1 << 40, Received: 1 << 41}}
	s.run(time.Second, 1000, 0)
	s.sample.Lost, s.sample.Received = 5, 5 // another interface of the name
	if got := s.run(5*time.Second, 1000, 0); got != nil {
		t.Errorf("counters that begin anew: told at %v", got)
	}
}

func TestLossCountsOnlyWhatMatters(t *testing.T) {
	before := Sample{At: time.Unix(1, 0), Received: 1000, Lost: 10}
	after := func(received, lost uint64) Sample {
		return Sample{At: before.At.Add(2 * time.Second), Received: before.Received + received, Lost: before.Lost + lost}
	}
	for name, c := range map[string]struct {
		after Sample
		want  float64
	}{
		"much":         {after(10_000, 2500), 0.25},
		"few":          {after(1000, 150), 0},
		"few of many":  {after(10_000_000, 1000), 0},
		"nothing came": {after(0, 0), 0},
		"no time":      {before, 0},
		"begun anew":   {Sample{At: before.At.Add(time.Second), Received: 500, Lost: 5}, 0},
	} {
		if got := Loss(before, c.after); got != c.want {
			t.Errorf("%s: loss is %v, want %v", name, got, c.want)
		}
	}
}
