package health

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestScheduleKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "interval"))
		jitter := rapid.Float64Range(0, 0.999999).Draw(t, "jitter")
		if first := First(interval, jitter); first < 0 || first > interval || first > firstWindow {
			t.Fatalf("first check after %s", first)
		}
		if next := Next(interval, jitter); next > interval || next < interval-interval/10 || next <= 0 {
			t.Fatalf("next check after %s of %s", next, interval)
		}
	})
}

// A thousand backends that come at once: no hundredth of the time holds more than a hundredth of
// the checks, give or take one, and ten rounds later they fill more than the window they began in.
func TestChecksAreSpread(t *testing.T) {
	const backends, interval = 1000, 2 * time.Second
	due := make([]time.Duration, backends)
	slots := make([]int, 100)
	for i := range due {
		due[i] = First(interval, float64(i)/backends)
		slots[due[i]*100/firstWindow]++
	}
	if most := slices.Max(slots); most > backends/100+1 {
		t.Errorf("%d of %d first checks fall into one hundredth of the window", most, backends)
	}
	for round := range 10 {
		for i := range due {
			due[i] += Next(interval, float64((i*7919+round*104729)%backends)/backends)
		}
	}
	if width := slices.Max(due) - slices.Min(due); width <= firstWindow {
		t.Errorf("after ten rounds the checks still fall into %s", width)
	}
}
