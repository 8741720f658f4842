package muxd

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	// talkTime is the time between two readings of the VIPs' counters during an overload. Without one they are not read.
	talkTime = time.Second
	// firstTalks is the number of first readings that follow each other faster, so that sources are known within a second.
	firstTalks, firstTalkTime = 3, 2 * overload.Interval
)

// watch detects overloads of the mux's interface, and enforces fair shares while one lasts.
type watch struct {
	config   Config
	reports  *reports
	detector overload.Detector
	budget   overload.Budget
	shares   shares
	talks    int                            // readings since the overload began; 0: there is none
	before   map[netip.Addr]mux.OfferedLoad // at the last of them
	at       overload.Sample                // likewise

	mu    sync.Mutex
	state overload.State
	lost  uint64
	line  string // the evidence; empty: no overload
	press []*weirv1.VIPPressure
}

func newWatch(config Config, r *reports) *watch {
	return &watch{config: config, reports: r, shares: newShares(config, r.addEvent)}
}

// run samples until ctx ends. Fair dropping ends with it, as its rates need the samples.
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
			return w.config.Datapath.SetShares(nil)
		case <-ticker.C:
		}
		sample, err := w.config.Load()
		if err == nil {
			err = w.evaluate(sample)
		}
		if err != nil && !failed {
			w.config.Log.Warn("overloads are not noticed", "err", err)
		}
		failed = err != nil
	}
}

// evaluate evaluates a sample of the interface.
func (w *watch) evaluate(sample overload.Sample) error {
	state, changed := w.detector.Observe(sample)
	if !state.Overloaded && !state.Suspected && !w.budget.Bound() && !w.shares.told() {
		if w.talks == 0 {
			w.setState(state, sample.Lost, "")
			return nil
		}
		w.talks, w.before = 0, nil
		if err := w.config.Datapath.SetShares(nil); err != nil {
			return err
		}
		was := w.warning()
		w.setState(state, sample.Lost, "")
		if was != "" {
			w.config.Log.Info("overload is over")
			w.reports.trigger()
		}
		return nil
	}
	between := talkTime
	if w.talks < firstTalks {
		between = firstTalkTime
	}
	if w.talks > 0 && !changed && sample.At.Sub(w.at.At) < between {
		w.setState(state, sample.Lost, w.warning())
		return nil
	}
	return w.report(sample, state)
}

// report reads the VIPs' load, and sets their fair shares.
func (w *watch) report(sample overload.Sample, state overload.State) error {
	vips, tenants, err := w.config.Datapath.OfferedLoad()
	if err != nil {
		return err
	}
	sources, err := w.config.Datapath.Sources()
	if err != nil {
		return err
	}
	demands, done, all := asks(w.before, vips, sources, sample.At.Sub(w.at.At))
	lost, received := overload.Loss(w.at, sample), float64(sample.Received-w.at.Received)/sample.At.Sub(w.at.At).Seconds()
	if w.talks == 0 { // no reading to compare with yet
		demands = nil
	} else if !w.config.NoShares && (state.Overloaded || w.budget.Bound()) {
		if 2*all.Packets < received*(1-lost) {
			lost = 0 // most is for no VIP: none of them can help it
		}
		w.budget.Observe(sample.At, done, all, lost)
	}
	w.talks, w.before, w.at = w.talks+1, vips, sample
	busy, cuts := overload.HeavyHitters(demands), w.budget.Cuts(demands, tenants)
	if err := w.shares.set(sample.At, demands, busy, cuts); err != nil {
		return err
	}
	was := w.warning()
	line := was
	if state.Overloaded || w.budget.Bound() {
		line = state.Evidence(busy, len(cuts))
	}
	w.setState(state, sample.Lost, line)
	if was == "" && line != "" {
		w.config.Log.Warn("overload began", "reason", line)
	}
	if line != was && w.talks <= firstTalks {
		w.reports.trigger()
	}
	return nil
}

// asks are the VIPs with packets between two readings, with the packet rates that were offered and forwarded.
func asks(before, after map[netip.Addr]mux.OfferedLoad, sources map[netip.Addr][]overload.Source, took time.Duration) (demands []overload.Demand, done, all overload.Rate) {
	rate := func(now, was uint64) float64 {
		if now <= was || took <= 0 { // an endpoint was removed
			return 0
		}
		return float64(now-was) / took.Seconds()
	}
	for vip, now := range after {
		was := before[vip]
		a := overload.Demand{
			VIP: vip, Tenant: now.Tenant, Workloads: now.Workloads,
			Offered: overload.Rate{Packets: rate(now.All.Packets, was.All.Packets), Bytes: rate(now.All.Bytes, was.All.Bytes)},
		}
		if a.Offered.Packets == 0 {
			continue
		}
		a.Sources, a.Unnamed = overload.SourceShares(sources[vip], a.Offered.Packets*took.Seconds())
		demands = append(demands, a)
		done.Packets += rate(now.Done.Packets, was.Done.Packets)
		done.Bytes += rate(now.Done.Bytes, was.Done.Bytes)
		all.Packets += a.Offered.Packets
		all.Bytes += a.Offered.Bytes
	}
	slices.SortFunc(demands, func(a, b overload.Demand) int { return a.VIP.Compare(b.VIP) })
	return demands, done, all
}

// setState sets the evidence and the pressures for reports. The evidence stays while VIPs are limited to their share,
// as that may be all that prevents loss.
func (w *watch) setState(state overload.State, lost uint64, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.lost, w.line, w.press = state, lost, line, w.shares.pressures(w.at.At)
}

// pressures are the VIPs that exceed their share by most.
func (w *watch) pressures() []*weirv1.VIPPressure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.press)
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
	telemetry.PutIf(to, "weir_mux_overloaded", w.line != "")
	telemetry.Put(to, "weir_mux_interface_dropped_packets_total", w.lost)
}
