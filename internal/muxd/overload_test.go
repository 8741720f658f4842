package muxd

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

// countingDatapath has counters that grow with each reading.
type countingDatapath struct {
	fakeDatapath
	readings uint64
}

func (d *countingDatapath) EndpointCounters() (map[model.EndpointKey]model.Counter, error) {
	d.readings++
	return map[model.EndpointKey]model.Counter{key(10): {Packets: 900 * d.readings}, key(11): {Packets: 100 * d.readings}}, nil
}

// An overload is told with its evidence as it begins, and no counter is read while there is none.
func TestOverloadIsToldWithItsEvidence(t *testing.T) {
	d := &countingDatapath{fakeDatapath: fakeDatapath{journal: &journal{}}}
	told := 0
	w := newWatch(Config{Datapath: d, Log: slog.New(slog.DiscardHandler)}, func() { told++ })
	sample := overload.Sample{At: time.Unix(1, 0)}
	pass := func(took time.Duration, lost uint64) {
		t.Helper()
		for at := time.Duration(0); at < took; at += overload.Interval {
			sample.At = sample.At.Add(overload.Interval)
			sample.Received += 10_000
			sample.Lost += lost
			if err := w.look(sample); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass(10*time.Second, 0)
	if d.readings != 0 || told != 0 || w.warning() != "" {
		t.Fatalf("without loss: %d readings, told %d times: %s", d.readings, told, w.warning())
	}
	pass(time.Second, 1000)
	if line := w.warning(); told != 1 || !strings.Contains(line, "most came for 203.0.113.10: ") || !strings.Contains(line, "90 %, then 203.0.113.11: ") {
		t.Fatalf("told %d times within a second: %s", told, line)
	}
	before := d.readings
	pass(10*time.Second, 1000)
	if more := d.readings - before; told != 1 || more > 11 {
		t.Errorf("told %d times, %d more readings in 10 s", told, more)
	}
	pass(2*overload.Calm, 0)
	if told != 2 || w.warning() != "" {
		t.Errorf("told %d times, still says %q", told, w.warning())
	}
}
