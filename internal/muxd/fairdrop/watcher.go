// Package fairdrop detects overloads of a mux's interface. While one lasts, it limits VIPs to their fair share of what
// the mux can forward (docs/design/fairness.md).
package fairdrop

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	// readInterval is the time between two readings of the VIPs' counters during an overload. Without one they are not
	// read.
	readInterval = time.Second
	// firstReadings is the number of first readings that follow each other faster, so that sources are known within a
	// second.
	firstReadings, firstReadInterval = 3, 2 * overload.Interval
)

// Datapath counts the load of VIPs, and drops what exceeds their shares.
type Datapath interface {
	// OfferedLoad is what has come for VIPs so far, and the workloads of tenants.
	OfferedLoad() (vips map[netip.Addr]endpoint.OfferedLoad, tenants map[string]int, err error)
	// SetShares has these VIPs alone lose packets, and their sources noted, which Sources tells since the last call.
	SetShares(map[netip.Addr]overload.Cut) error
	Sources() (map[netip.Addr][]overload.Source, error)
}

// Config configures a Watcher.
type Config struct {
	Datapath Datapath
	// Load samples the interface; nil: overloads are not noticed.
	Load func() (overload.Sample, error)
	// ReportOnly has overloads reported, and no VIP limited.
	ReportOnly bool
	Event      func(*weirv1.MuxEvent) // reports one
	Report     func()                 // has the mux report at once
	Log        *slog.Logger
}

// Watcher detects overloads of the mux's interface, and enforces fair shares while one lasts.
type Watcher struct {
	config   Config
	detector overload.Detector
	budget   overload.Budget
	shares   shares
	readings int                                 // since the overload began; 0: there is none
	before   map[netip.Addr]endpoint.OfferedLoad // at the last of them
	at       overload.Sample                     // likewise

	mu    sync.Mutex
	lost  uint64
	line  string // the evidence; empty: no overload
	press []*weirv1.VIPPressure
}

// New returns a watcher, which samples the interface while Run runs.
func New(config Config) *Watcher {
	return &Watcher{config: config, shares: newShares(config)}
}

// Run samples until ctx ends. Fair dropping ends with it, as its rates need the samples.
func (w *Watcher) Run(ctx context.Context) error {
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
func (w *Watcher) evaluate(sample overload.Sample) error {
	state, changed := w.detector.Observe(sample)
	if !state.Overloaded && !state.Suspected && !w.budget.Bound() && !w.shares.any() {
		if w.readings == 0 {
			w.setState(sample.Lost, "")
			return nil
		}
		w.readings, w.before = 0, nil
		if err := w.config.Datapath.SetShares(nil); err != nil {
			return err
		}
		was := w.Warning()
		w.setState(sample.Lost, "")
		if was != "" {
			w.config.Log.Info("overload is over")
			w.config.Report()
		}
		return nil
	}
	between := readInterval
	if w.readings < firstReadings {
		between = firstReadInterval
	}
	if w.readings > 0 && !changed && sample.At.Sub(w.at.At) < between {
		w.setState(sample.Lost, w.Warning())
		return nil
	}
	return w.enforce(sample, state)
}

// enforce reads the VIPs' load, and sets their fair shares.
func (w *Watcher) enforce(sample overload.Sample, state overload.State) error {
	vips, tenants, err := w.config.Datapath.OfferedLoad()
	if err != nil {
		return err
	}
	sources, err := w.config.Datapath.Sources()
	if err != nil {
		return err
	}
	demands, done, all := demandsBetween(w.before, vips, sources, sample.At.Sub(w.at.At))
	lost := overload.Loss(w.at, sample)
	received := float64(sample.Received-w.at.Received) / sample.At.Sub(w.at.At).Seconds()
	if w.readings == 0 { // no reading to compare with yet
		demands = nil
	} else if !w.config.ReportOnly && (state.Overloaded || w.budget.Bound()) {
		if 2*all.Packets < received*(1-lost) {
			lost = 0 // most is for no VIP: none of them can help it
		}
		w.budget.Observe(sample.At, done, all, lost)
	}
	w.readings, w.before, w.at = w.readings+1, vips, sample
	busy, cuts := overload.HeavyHitters(demands), w.budget.Cuts(demands, tenants)
	if err := w.shares.set(sample.At, demands, busy, cuts); err != nil {
		return err
	}
	was := w.Warning()
	line := was
	if state.Overloaded || w.budget.Bound() {
		line = state.Evidence(busy, len(cuts))
	}
	w.setState(sample.Lost, line)
	if was == "" && line != "" {
		w.config.Log.Warn("overload began", "reason", line)
	}
	if line != was && w.readings <= firstReadings {
		w.config.Report()
	}
	return nil
}

// demandsBetween are the VIPs with packets between two readings, with the rates that were forwarded and offered.
func demandsBetween(
	before, after map[netip.Addr]endpoint.OfferedLoad, sources map[netip.Addr][]overload.Source, took time.Duration,
) (demands []overload.Demand, done, all overload.Rate) {
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
			Offered: overload.Rate{
				Packets: rate(now.All.Packets, was.All.Packets), Bytes: rate(now.All.Bytes, was.All.Bytes),
			},
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
func (w *Watcher) setState(lost uint64, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.line, w.press = lost, line, w.shares.pressures(w.at.At)
}

// Pressures are the VIPs that exceed their share by most.
func (w *Watcher) Pressures() []*weirv1.VIPPressure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.press)
}

// Warning is the evidence of an overload; empty: there is none.
func (w *Watcher) Warning() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line
}

// Sample puts the metrics of overloads.
func (w *Watcher) Sample(to *telemetry.Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	telemetry.PutIf(to, "weir_mux_overloaded", w.line != "")
	telemetry.Put(to, "weir_mux_interface_dropped_packets_total", w.lost)
}
