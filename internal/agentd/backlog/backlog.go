package backlog

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	facts "github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

const (
	interval = time.Second
	// minSamples in a row make a full queue a finding: a burst that is accepted at once is none.
	minSamples = 2
	// calmTime is how long a finding lasts after it was seen last.
	calmTime = 8 * time.Second
	// minUnanswered SYNs, of connections that began lately, are a finding.
	minUnanswered = 16
)

// Config says what a Watcher looks at.
type Config struct {
	Listeners func() ([]netlink.Listener, error) // of the host's own stack
	Native    func() []model.HostBackend         // those that it serves
	Changed   func()                             // a finding has come or gone
	Log       *slog.Logger
}

// Finding is a backend whose backlog is full.
type Finding struct {
	Key     model.HostBackendKey
	Cause   facts.Cause
	Waiting uint32 // connections or SYNs, when it began
	Limit   uint32 // of the accept queue, likewise
}

// row is what is known of a backend and a cause.
type row struct {
	Finding
	samples     int // in a row
	begun, last time.Time
}

// id names a row.
type id struct {
	key   model.HostBackendKey
	cause facts.Cause
}

// Watcher has the findings of a host.
type Watcher struct {
	config Config
	failed bool

	mu   sync.Mutex
	rows map[id]*row
}

// New finds nothing before Run.
func New(config Config) *Watcher { return &Watcher{config: config, rows: map[id]*row{}} }

// Run looks at accept queues until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.look(time.Now())
		}
	}
}

// look looks at the accept queues of native backends, if there are any.
func (w *Watcher) look(now time.Time) {
	defer w.end(now)
	native := w.config.Native()
	if len(native) == 0 {
		return
	}
	listeners, err := w.config.Listeners()
	if err != nil {
		if !w.failed {
			w.config.Log.Warn("accept queues are not watched", "err", err)
		}
		w.failed = true
		return
	}
	w.failed = false
	full := map[id]bool{}
	for _, b := range native {
		waiting, limit := queueOf(listeners, b)
		if waiting > 0 && waiting >= limit {
			full[id{b.Key(), facts.AcceptQueue}] = true
			w.see(Finding{b.Key(), facts.AcceptQueue, waiting, limit}, minSamples, now)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, r := range w.rows {
		if at.cause == facts.AcceptQueue && !full[at] {
			r.samples = 0
		}
	}
}

// queueOf is the accept queue of a backend: of all sockets that its connections may come to, which are several with
// SO_REUSEPORT. One of the address itself is asked before one of all.
func queueOf(listeners []netlink.Listener, b model.HostBackend) (waiting, limit uint32) {
	own := slices.ContainsFunc(listeners, func(l netlink.Listener) bool { return l.Address == b.Backend })
	for _, l := range listeners {
		if l.Takes(b.Backend) && (!own || l.Address == b.Backend) {
			waiting, limit = waiting+l.Waiting, limit+l.Limit
		}
	}
	return waiting, limit
}

// CountSYNs takes what a sweep found of SYNs.
func (w *Watcher) CountSYNs(counted []facts.SYNs, now time.Time) {
	for _, c := range counted {
		if c.Unanswered >= minUnanswered && c.Answers > 0 {
			w.see(Finding{Key: c.Key, Cause: facts.Unanswered, Waiting: c.Unanswered}, 1, now)
		}
	}
}

// see notes that a backend's backlog is full.
func (w *Watcher) see(f Finding, samples int, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := id{f.Key, f.Cause}
	r := w.rows[at]
	if r == nil {
		r = &row{}
		w.rows[at] = r
	}
	r.last = now
	if r.samples++; r.samples < samples || !r.begun.IsZero() {
		return
	}
	r.Finding, r.begun = f, now
	w.config.Log.Warn("the backlog of a backend is full", "endpoint", f.Key.Endpoint, "backend", f.Key.Tunnel, "reason", f.Cause)
	w.config.Changed()
}

// end forgets what was not seen for a while.
func (w *Watcher) end(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.rows, func(_ id, r *row) bool {
		over := now.Sub(r.last) >= calmTime
		if over && !r.begun.IsZero() {
			w.config.Log.Info("the backlog of a backend has room again", "endpoint", r.Key.Endpoint, "backend", r.Key.Tunnel, "reason", r.Cause)
			w.config.Changed()
		}
		return over
	})
}

// Findings are what is to be reported, for longest first.
func (w *Watcher) Findings() []Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	var begun []*row
	for _, r := range w.rows {
		if !r.begun.IsZero() {
			begun = append(begun, r)
		}
	}
	slices.SortFunc(begun, func(a, b *row) int {
		return cmp.Or(a.begun.Compare(b.begun), a.Key.Endpoint.Compare(b.Key.Endpoint), a.Key.Tunnel.Compare(b.Key.Tunnel), cmp.Compare(a.Cause, b.Cause))
	})
	all := make([]Finding, 0, min(len(begun), facts.MaxReported))
	for _, r := range begun[:min(len(begun), facts.MaxReported)] {
		all = append(all, r.Finding)
	}
	return all
}

// Report is Findings for the manager.
func (w *Watcher) Report() (all []*weirv1.BackendBacklog) {
	for _, f := range w.Findings() {
		all = append(all, &weirv1.BackendBacklog{
			Endpoint: wire.EndpointKeyToProto(f.Key.Endpoint), Tunnel: f.Key.Tunnel.String(), Cause: string(f.Cause), Waiting: f.Waiting, Limit: f.Limit,
		})
	}
	return all
}

// Sample puts how many there are.
func (w *Watcher) Sample(to *telemetry.Sample) {
	n := map[facts.Cause]int{}
	for _, f := range w.Findings() {
		n[f.Cause]++
	}
	for _, cause := range facts.Causes {
		telemetry.Put(to, "weir_agent_backlog_full_backends", n[cause], string(cause))
	}
}
