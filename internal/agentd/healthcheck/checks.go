package healthcheck

import (
	"container/heap"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/health"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wake"
)

// Probe runs one check of a backend and says why it failed.
type Probe func(ctx context.Context, backend model.HostBackend) error

// key identifies a backend to the manager, whatever tunnel its packets come through.
type key struct {
	endpoint model.EndpointKey
	backend  netip.AddrPort
}

// check is a backend with a health check. It is in the queue, or running, or removed.
type check struct {
	number  int // unique
	backend model.HostBackend
	tracker health.Tracker
	due     time.Time
	started time.Time // of the last run; zero before the first
	place   int       // in the queue; -1 when it is not there
	version int       // of the parameters: results of older ones are ignored
	removed bool
}

// Checks runs the health checks of all backends from one queue, ordered by time, at most limit
// of them at once. A check that is due while limit are running waits, and keeps its place.
type Checks struct {
	log     *slog.Logger
	probe   Probe
	jitter  func() float64 // in [0, 1)
	limit   int
	changed func() // called after a backend's state changed

	mu      sync.Mutex
	entries map[key]*check
	created int // checks so far
	queue   dueQueue
	wake    wake.Signal // the head of the queue may have changed

	Took *prometheus.HistogramVec // seconds, by result
}

// New returns Checks without a backend. jitter is in [0, 1), limit how many run at once; changed is called after the
// health of a backend changed.
func New(log *slog.Logger, probe Probe, jitter func() float64, limit int, changed func()) *Checks {
	return &Checks{
		log: log, probe: probe, jitter: jitter, limit: limit, changed: changed,
		entries: map[key]*check{}, wake: wake.New(),
		Took: NewDurations(),
	}
}

// Set replaces the checked backends: checks of new ones start, those of missing ones stop, and changed ones keep their
// state.
func (c *Checks) Set(backends []model.HostBackend, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := make(map[key]bool, len(backends))
	for _, b := range backends {
		if b.HealthCheck == nil {
			continue
		}
		k := key{b.Endpoint, b.Backend}
		wanted[k] = true
		if entry := c.entries[k]; entry != nil {
			c.update(entry, b, now)
			continue
		}
		c.created++
		entry := &check{number: c.created, backend: b, due: now.Add(health.First(b.HealthCheck.Interval, c.jitter()))}
		c.entries[k] = entry
		heap.Push(&c.queue, entry)
	}
	for k, entry := range c.entries {
		if wanted[k] {
			continue
		}
		delete(c.entries, k)
		entry.removed = true
		if entry.place >= 0 {
			heap.Remove(&c.queue, entry.place)
		}
	}
	c.wake.Set()
}

// update gives entry new parameters. Its state and streak stay.
func (c *Checks) update(entry *check, to model.HostBackend, now time.Time) {
	before := *entry.backend.HealthCheck
	entry.backend = to
	if before == *to.HealthCheck {
		return
	}
	entry.version++
	soon := now.Add(health.First(to.HealthCheck.Interval, c.jitter()))
	if entry.place >= 0 && entry.due.After(soon) {
		entry.due = soon
		heap.Fix(&c.queue, entry.place)
	}
}

// Finding is the result of one check, which its number identifies.
type Finding struct {
	Check  int
	Health model.BackendHealth
}

// Findings are the health of backends, sorted, without those that are unknown.
func (c *Checks) Findings() []Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make([]Finding, 0, len(c.entries))
	for k, entry := range c.entries {
		if state := entry.tracker.State(); state != model.HealthUnknown {
			known = append(known, Finding{entry.number, model.BackendHealth{
				Endpoint: k.endpoint, Backend: k.backend, Health: state, Reason: entry.tracker.Reason(),
			}})
		}
	}
	slices.SortFunc(known, func(a, b Finding) int {
		if order := a.Health.Endpoint.Compare(b.Health.Endpoint); order != 0 {
			return order
		}
		return a.Health.Backend.Compare(b.Health.Backend)
	})
	return known
}

// Run checks until ctx ends.
func (c *Checks) Run(ctx context.Context) error {
	places := make(chan struct{}, c.limit)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case places <- struct{}{}:
		}
		entry, job := c.next(ctx)
		if entry == nil {
			return nil
		}
		running.Go(func() {
			c.finish(ctx, entry, job, c.runProbe(ctx, job.backend))
			<-places
		})
	}
}

// runProbe runs the probe and observes its duration.
func (c *Checks) runProbe(ctx context.Context, backend model.HostBackend) error {
	began := time.Now()
	err := c.probe(ctx, backend)
	result := "passed"
	if err != nil {
		result = "failed"
	}
	c.Took.WithLabelValues(result).Observe(time.Since(began).Seconds())
	return err
}

// job is a copy of a check at the start of a run.
type job struct {
	backend model.HostBackend
	version int
}

// next waits until a check is due and takes it from the queue; nil when ctx ends.
func (c *Checks) next(ctx context.Context) (*check, job) {
	for {
		entry, job, wait := c.popDue(time.Now())
		if entry != nil {
			return entry, job
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil, job
		case <-c.wake:
		case <-timer:
		}
	}
}

// popDue removes the first check from the queue if it is due; else it says how long until then, or
// 0 when there is none.
func (c *Checks) popDue(now time.Time) (*check, job, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil, job{}, 0
	}
	first := c.queue[0]
	if first.due.After(now) {
		return nil, job{}, first.due.Sub(now)
	}
	heap.Pop(&c.queue)
	first.started = now
	return first, job{first.backend, first.version}, 0
}

// finish records the result of a run and queues the check again.
func (c *Checks) finish(ctx context.Context, entry *check, job job, err error) {
	if ctx.Err() != nil {
		return
	}
	if state, changed := c.observe(entry, job, err); changed {
		c.log.Info("backend's health changed", "endpoint", job.backend.Endpoint, "backend", job.backend.Backend,
			"health", state.String())
		c.changed()
	}
}

// observe returns the state after the result and whether that is new.
func (c *Checks) observe(entry *check, job job, err error) (state health.Tracker, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry.removed {
		return entry.tracker, false
	}
	check := entry.backend.HealthCheck
	if job.version == entry.version {
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		changed = entry.tracker.Observe(failure, health.Thresholds{Rise: check.Rise, Fall: check.Fall})
	}
	entry.due = entry.started.Add(health.Next(check.Interval, c.jitter()))
	heap.Push(&c.queue, entry)
	c.wake.Set()
	return entry.tracker, changed
}

// dueQueue is a heap of checks, the one that is due first on top.
type dueQueue []*check

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is for container/heap.
func (q *dueQueue) Push(x any) {
	entry := x.(*check)
	entry.place = len(*q)
	*q = append(*q, entry)
}

// Pop is for container/heap.
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	entry := (*q)[last]
	entry.place = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return entry
}

// NewDurations returns the metric of how long checks took.
func NewDurations() *prometheus.HistogramVec {
	return telemetry.Seconds("weir_agent_health_check_duration_seconds", "Time that health checks took.", "result")
}

// Sample tells the health of the backends.
func (c *Checks) Sample(to *telemetry.Sample) {
	for _, f := range c.Findings() {
		vip, protocol, port := telemetry.Endpoint(f.Health.Endpoint)
		telemetry.PutIf(to, "weir_agent_backend_healthy", f.Health.Health == model.HealthHealthy, vip, protocol, port, f.Health.Backend.String())
	}
}
