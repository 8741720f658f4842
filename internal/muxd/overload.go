package muxd

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/telemetry"
)

// talkTime is the least time between two readings of the VIPs' counters while packets are lost. Else nobody
// reads them.
const talkTime = time.Second

// watch follows the load of the mux's interface.
type watch struct {
	config   Config
	tell     func() // that what warning says has changed
	detector overload.Detector
	before   map[netip.Addr]model.Counter // what came for the VIPs so far; nil: nothing is lost
	read     time.Time

	mu    sync.Mutex
	state overload.State
	lost  uint64
	line  string // the evidence; empty: no overload
}

func newWatch(config Config, tell func()) *watch { return &watch{config: config, tell: tell} }

// run samples until ctx ends.
func (w *watch) run(ctx context.Context) error {
	if w.config.Load == nil {
		return nil
	}
	ticker := time.NewTicker(overload.Interval)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		sample, err := w.config.Load()
		if err == nil {
			err = w.look(sample)
		}
		if err != nil && !failed {
			w.config.Log.Warn("overloads are not noticed", "err", err)
		}
		failed = err != nil
	}
}

// look takes a sample.
func (w *watch) look(sample overload.Sample) error {
	state, changed := w.detector.Look(sample)
	w.mu.Lock()
	w.state, w.lost = state, sample.Lost
	w.mu.Unlock()
	if !state.Overloaded && !state.Suspected {
		w.before = nil
		if changed {
			w.note("")
			w.config.Log.Info("overload is over")
			w.tell()
		}
		return nil
	}
	if w.before != nil && !changed && sample.At.Sub(w.read) < talkTime {
		return nil
	}
	now, err := w.offered()
	if err != nil {
		return err
	}
	busy := overload.Talkers(w.before, now, sample.At.Sub(w.read))
	if w.before == nil {
		busy = nil // there is nothing to compare with yet
	}
	w.before, w.read = now, sample.At
	if state.Overloaded {
		w.note(state.Evidence(busy))
	}
	if changed {
		w.config.Log.Warn("overload began", "reason", w.warning())
		w.tell()
	}
	return nil
}

// offered is what came for the VIPs so far.
func (w *watch) offered() (map[netip.Addr]model.Counter, error) {
	sum := map[netip.Addr]model.Counter{}
	add := func(vip netip.Addr, c model.Counter) {
		was := sum[vip]
		sum[vip] = model.Counter{Packets: was.Packets + c.Packets, Bytes: was.Bytes + c.Bytes}
	}
	forwarded, err := w.config.Datapath.EndpointCounters()
	if err != nil {
		return nil, err
	}
	for key, c := range forwarded {
		add(key.VIP, c)
	}
	refused, err := w.config.Datapath.RefusedCounters()
	for vip, c := range refused {
		add(vip, c)
	}
	return sum, err
}

func (w *watch) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = line
}

// warning is the evidence of an overload; empty: there is none.
func (w *watch) warning() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line
}

func (w *watch) sample(to *telemetry.Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	telemetry.PutIf(to, "weir_mux_overloaded", w.state.Overloaded)
	telemetry.Put(to, "weir_mux_lost_packets_total", w.lost)
}
