// Package synflood detects SYN floods of a mux's endpoints, and has the mux answer with SYN cookies while one lasts, or while
// the manager says that the backlog of a backend is full.
//
// A rate of SYNs far beyond the usual one has handshakes followed. If few are completed it is a flood. If most are, a
// short trial with cookies tells real clients from forged ACKs (docs/design/syn-cookies.md).
package synflood

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// Datapath has the counters of SYNs and answers SYNs.
type Datapath interface {
	// SetSYNSecrets takes over the secrets of SYN cookies, and the time of day.
	SetSYNSecrets([]model.SYNSecret) error
	// SYNStates, SYNCounters and SetSYNState are of the endpoints whose SYNs the mux may answer when it thinks fit.
	SYNStates() map[model.EndpointKey]endpoint.SYNState
	SYNCounters() (map[model.EndpointKey]endpoint.SYNCounter, error)
	SetSYNState(model.EndpointKey, endpoint.SYNState) error
	Verdicts() (map[string]model.Counter, error)
}

// Watcher has the SYNs of flooded endpoints answered, of those that leave it to the mux, and of those with a full backlog.
type Watcher struct {
	datapath Datapath
	limits   Limits
	report   func(*weirv1.MuxEvent)
	log      *slog.Logger

	mu        sync.Mutex
	secrets   []model.SYNSecret
	renewed   time.Time // when a manager sent them
	detectors map[model.EndpointKey]*detector
	backlogs  map[model.EndpointKey]*backlog
	changed   bool // backlogs are, since the last sample
	sampled   time.Time
	total     uint64    // SYNs of all endpoints when that was last read
	totalAt   time.Time // when that was

	began, answered, full atomic.Int64 // floods so far; endpoints whose SYNs are answered for a flood, and for a backlog
}

// New returns a watcher that reports the begin and the end of floods. Zero limits are DefaultLimits.
func New(datapath Datapath, limits Limits, report func(*weirv1.MuxEvent), log *slog.Logger) *Watcher {
	return &Watcher{
		datapath: datapath, limits: cmp.Or(limits, DefaultLimits), report: report, log: log,
		detectors: map[model.EndpointKey]*detector{}, backlogs: map[model.EndpointKey]*backlog{},
	}
}

// SetSecrets takes over the secrets that are valid from now on.
func (w *Watcher) SetSecrets(secrets []model.SYNSecret) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets, w.renewed = secrets, time.Now()
	return w.datapath.SetSYNSecrets(secrets)
}

// Run samples until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			// Not the tick's own time: of a late one that is before what was counted meanwhile.
			if err := w.sampleEndpoints(time.Now()); err != nil {
				w.log.Warn("sample endpoints for syn floods", "err", err)
			}
		}
	}
}

// sampleEndpoints evaluates all endpoints, unless there were too few SYNs for a flood.
func (w *Watcher) sampleEndpoints(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle, err := w.idle(now)
	if err != nil || idle {
		return err
	}
	w.sampled, w.changed = now, false
	w.forgetBacklogs(now)
	if len(w.secrets) > 0 { // for the time of day, which may have been set
		if err := w.datapath.SetSYNSecrets(w.secrets); err != nil {
			return err
		}
	}
	counters, err := w.datapath.SYNCounters()
	if err != nil {
		return err
	}
	maps.DeleteFunc(w.detectors, func(key model.EndpointKey, _ *detector) bool {
		_, there := counters[key]
		return !there
	})
	states := w.datapath.SYNStates()
	answered := 0
	for _, key := range slices.SortedFunc(maps.Keys(counters), model.EndpointKey.Compare) {
		if err := w.sampleEndpoint(key, states[key], counters[key], now); err != nil {
			return err
		}
		if w.detectors[key].state.Answers {
			answered++
		}
	}
	w.answered.Store(int64(answered))
	w.full.Store(w.countBacklogs())
	return nil
}

// sampleEndpoint evaluates one endpoint. A state set by the process before, or by a change of the endpoint, is kept.
func (w *Watcher) sampleEndpoint(
	key model.EndpointKey, is endpoint.SYNState, c endpoint.SYNCounter, now time.Time,
) error {
	one := w.detectors[key]
	if one == nil {
		one = &detector{}
		w.detectors[key] = one
	}
	one.state = w.ofDetector(key, is)
	event, warning := one.sample(c, now, w.limits)
	if now.Sub(w.renewed) > secretLifetime {
		one.state.Tries = false // hosts may not take the cookies any more: clients would lose their connections
	}
	next := w.withBacklog(key, one.state, now)
	if next != is {
		if err := w.datapath.SetSYNState(key, next); err != nil {
			return err
		}
	}
	if !warning && next.Answers {
		event = "" // the flood is over, and the backlog is still full
	}
	if warning {
		w.began.Add(1)
	}
	w.tell(key, event, warning)
	return nil
}

// tell reports that SYN cookies are on, as a warning, or off; empty: there is nothing to tell.
func (w *Watcher) tell(key model.EndpointKey, event string, warning bool) {
	if event == "" {
		return
	}
	turned := reason.SYNCookiesOff
	if warning {
		turned = reason.SYNCookiesOn
	}
	w.log.Warn(event, "vip", key.VIP, "endpoint", key)
	w.report(&weirv1.MuxEvent{Endpoint: wire.EndpointKeyToProto(key), Reason: turned, Message: event, Warning: warning})
}

// idle says whether no endpoint can be flooded, none was at the last sample, and that was not long ago.
func (w *Watcher) idle(now time.Time) (bool, error) {
	verdicts, err := w.datapath.Verdicts()
	if err != nil {
		return false, err
	}
	before, at := w.total, w.totalAt
	w.total, w.totalAt = verdicts["forward_syn"].Packets+verdicts["reply_syn"].Packets+verdicts["drop_syn"].Packets, now
	if w.changed || len(w.backlogs) > 0 || now.Sub(w.sampled) >= idleInterval || float64(w.total-before) > w.limits.Least*now.Sub(at).Seconds() {
		return false, nil
	}
	for _, one := range w.detectors {
		if one.state != (endpoint.SYNState{}) {
			return false, nil
		}
	}
	return true, nil
}

// Pressures are the VIPs of the endpoints whose SYNs are answered, a line for each endpoint.
func (w *Watcher) Pressures() (all []*weirv1.VIPPressure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(w.detectors), model.EndpointKey.Compare) {
		if one := w.detectors[key]; one.state.Answers {
			all = append(all, &weirv1.VIPPressure{
				Vip: key.VIP.String(), Cause: string(model.CauseSYNFlood), Endpoint: wire.EndpointKeyToProto(key),
				Evidence: key.String() + ": " + cmp.Or(one.evidence, "SYN cookies on"),
			})
		}
	}
	return append(all, w.backlogPressures()...)
}

// Sample puts the metrics of floods.
func (w *Watcher) Sample(to *telemetry.Sample) {
	telemetry.Put(to, "weir_mux_syn_floods_total", uint64(w.began.Load()))
	telemetry.Put(to, "weir_mux_syn_flooded_endpoints", uint64(w.answered.Load()))
	telemetry.Put(to, "weir_mux_syn_backlog_endpoints", uint64(w.full.Load()))
}
