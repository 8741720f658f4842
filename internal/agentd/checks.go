package agentd

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
)

// Probe runs one check of a backend and says why it failed.
type Probe func(ctx context.Context, backend model.HostBackend) error

// checkKey identifies a backend to the manager, whatever tunnel its packets come through.
type checkKey struct {
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

// checks runs the health checks of all backends from one queue, ordered by time, at most limit
// of them at once. A check that is due while limit are running waits, and keeps its place.
type checks struct {
	log     *slog.Logger
	probe   Probe
	jitter  func() float64 // in [0, 1)
	limit   int
	changed func() // called after a backend's state changed

	mu      sync.Mutex
	entries map[checkKey]*check
	created int // checks so far
	queue   dueQueue
	wake    chan struct{} // holds at most one: the head of the queue may have changed

	took *prometheus.HistogramVec // by result
}

func newChecks(log *slog.Logger, probe Probe, jitter func() float64, limit int, changed func()) *checks {
	return &checks{
		log: log, probe: probe, jitter: jitter, limit: limit, changed: changed,
		entries: map[checkKey]*check{}, wake: make(chan struct{}, 1),
		took: newCheckTimes(),
	}
}

// set replaces the checked backends: checks of new ones start, those of missing ones stop, and changed ones keep their
// state.
func (c *checks) set(backends []model.HostBackend, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := make(map[checkKey]bool, len(backends))
	for _, b := range backends {
		if b.HealthCheck == nil {
			continue
		}
		key := checkKey{b.Endpoint, b.Backend}
		wanted[key] = true
		if entry := c.entries[key]; entry != nil {
			c.update(entry, b, now)
			continue
		}
		c.created++
		entry := &check{number: c.created, backend: b, due: now.Add(health.First(b.HealthCheck.Interval, c.jitter()))}
		c.entries[key] = entry
		heap.Push(&c.queue, entry)
	}
	for key, entry := range c.entries {
		if wanted[key] {
			continue
		}
		delete(c.entries, key)
		entry.removed = true
		if entry.place >= 0 {
			heap.Remove(&c.queue, entry.place)
		}
	}
	c.wakeQueue()
}

// update gives entry new parameters. Its state and streak stay.
func (c *checks) update(entry *check, to model.HostBackend, now time.Time) {
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

// finding is the result of one check, which its number identifies.
type finding struct {
	check  int
	health model.BackendHealth
}

// findings are the health of backends, sorted, without those that are unknown.
func (c *checks) findings() []finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make([]finding, 0, len(c.entries))
	for key, entry := range c.entries {
		if state := entry.tracker.State(); state != model.HealthUnknown {
			known = append(known, finding{entry.number, model.BackendHealth{
				Endpoint: key.endpoint, Backend: key.backend, Health: state, Reason: entry.tracker.Reason(),
			}})
		}
	}
	slices.SortFunc(known, func(a, b finding) int {
		if order := a.health.Endpoint.Compare(b.health.Endpoint); order != 0 {
			return order
		}
		return a.health.Backend.Compare(b.health.Backend)
	})
	return known
}

// run checks until ctx ends.
func (c *checks) run(ctx context.Context) error {
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
func (c *checks) runProbe(ctx context.Context, backend model.HostBackend) error {
	began := time.Now()
	err := c.probe(ctx, backend)
	result := "passed"
	if err != nil {
		result = "failed"
	}
	c.took.WithLabelValues(result).Observe(time.Since(began).Seconds())
	return err
}

// job is a copy of a check at the start of a run.
type job struct {
	backend model.HostBackend
	version int
}

// next waits until a check is due and takes it from the queue; nil when ctx ends.
func (c *checks) next(ctx context.Context) (*check, job) {
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
func (c *checks) popDue(now time.Time) (*check, job, time.Duration) {
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
func (c *checks) finish(ctx context.Context, entry *check, job job, err error) {
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
func (c *checks) observe(entry *check, job job, err error) (state health.Tracker, changed bool) {
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
	c.wakeQueue()
	return entry.tracker, changed
}

// wakeQueue tells run that the queue's head may have changed.
func (c *checks) wakeQueue() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
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
