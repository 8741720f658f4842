package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is the n-th of an endpoint, checked every two seconds with rise 2 and fall 3.
func backend(n int) model.HostBackend {
	dip := netip.AddrFrom4([4]byte{10, 3, byte(n >> 8), byte(n)})
	return model.HostBackend{
		Endpoint: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80},
		Tunnel:   dip, Backend: netip.AddrPortFrom(dip, 8080),
		HealthCheck: &model.HealthCheck{
			Type: model.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
		},
	}
}

func backends(n int) []model.HostBackend {
	all := make([]model.HostBackend, n)
	for i := range all {
		all[i] = backend(i)
	}
	return all
}

// probes counts the checks of each backend and answers as told.
type probes struct {
	mu      sync.Mutex
	count   map[netip.AddrPort]int
	running int
	most    int           // running at once
	takes   time.Duration // of each check
	failure string
}

func (p *probes) run(ctx context.Context, b model.HostBackend) error {
	p.mu.Lock()
	p.count[b.Backend]++
	p.running++
	p.most = max(p.most, p.running)
	takes := p.takes
	p.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(takes):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if p.failure != "" {
		return errors.New(p.failure)
	}
	return nil
}

func (p *probes) answer(failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = failure
}

func (p *probes) of(b model.HostBackend) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[b.Backend]
}

// inBubble runs body with running checks, in a bubble of its own time. Jitter goes evenly round.
func inBubble(t *testing.T, limit int, body func(c *Checks, p *probes, changes *atomic.Int32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &probes{count: map[netip.AddrPort]int{}}
		var changes, draws atomic.Int32
		jitter := func() float64 { return float64(draws.Add(1)*37%100) / 100 }
		c := New(slog.New(slog.DiscardHandler), p.run, jitter, limit, func() { changes.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		body(c, p, &changes)
		cancel()
		<-done
	})
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// states are the findings as text, in order.
func states(c *Checks) []string {
	var all []string
	for _, f := range c.Findings() {
		all = append(all, fmt.Sprintf("%s %s %s", f.Health.Backend, f.Health.Health, f.Health.Reason))
	}
	return all
}

func wantStates(t *testing.T, c *Checks, want ...string) {
	t.Helper()
	if got := fmt.Sprintf("%q", states(c)); got != fmt.Sprintf("%q", want) {
		t.Errorf("findings are %s, want %q", got, want)
	}
}

func TestThousandsKeepTheirInterval(t *testing.T) {
	const n = 3000
	inBubble(t, 1024, func(c *Checks, p *probes, changes *atomic.Int32) {
		p.takes = 10 * time.Millisecond
		c.Set(backends(n), time.Now())
		advance(time.Second)
		if len(c.Findings()) != n || changes.Load() != n {
			t.Fatalf("after a second %d of %d are known, %d changes", len(c.Findings()), n, changes.Load())
		}
		advance(59 * time.Second)
		for _, b := range backends(n) {
			if checks := p.of(b); checks < 30 || checks > 34 {
				t.Fatalf("%s was checked %d times in a minute at an interval of 2s", b.Backend, checks)
			}
		}
		if changes.Load() != n {
			t.Errorf("%d changes in a quiet minute", changes.Load()-n)
		}
	})
}

func TestHangingChecksAreBoundedAndAllGetTheirTurn(t *testing.T) {
	const n, limit = 400, 20
	inBubble(t, limit, func(c *Checks, p *probes, _ *atomic.Int32) {
		p.takes = time.Second
		c.Set(backends(n), time.Now())
		advance(3 * n / limit * time.Second)
		if p.most != limit {
			t.Errorf("%d ran at once, want %d", p.most, limit)
		}
		for _, b := range backends(n) {
			if p.of(b) < 2 {
				t.Errorf("%s was checked %d times", b.Backend, p.of(b))
			}
		}
	})
}

func TestFallAndRise(t *testing.T) {
	inBubble(t, 1024, func(c *Checks, p *probes, changes *atomic.Int32) {
		b := backend(1)
		c.Set([]model.HostBackend{b}, time.Now())
		advance(time.Second)
		wantStates(t, c, "10.3.0.1:8080 healthy ")
		p.answer("connection refused")
		before := p.of(b)
		for p.of(b) < before+2 {
			advance(100 * time.Millisecond)
		}
		wantStates(t, c, "10.3.0.1:8080 healthy ")
		advance(2 * time.Second)
		wantStates(t, c, "10.3.0.1:8080 unhealthy connection refused")
		p.answer("")
		advance(4 * time.Second)
		wantStates(t, c, "10.3.0.1:8080 healthy ")
		if changes.Load() != 3 {
			t.Errorf("%d changes, want 3", changes.Load())
		}
	})
}

func TestChangedParametersKeepTheState(t *testing.T) {
	inBubble(t, 1024, func(c *Checks, p *probes, changes *atomic.Int32) {
		b := backend(1)
		b.HealthCheck.Interval = time.Hour
		c.Set([]model.HostBackend{b}, time.Now())
		advance(time.Second)
		wantStates(t, c, "10.3.0.1:8080 healthy ")

		faster := backend(1)
		p.answer("status 503")
		c.Set([]model.HostBackend{faster}, time.Now())
		wantStates(t, c, "10.3.0.1:8080 healthy ")
		advance(7 * time.Second)
		wantStates(t, c, "10.3.0.1:8080 unhealthy status 503")

		unchecked := backend(1)
		unchecked.HealthCheck = nil
		c.Set([]model.HostBackend{unchecked}, time.Now())
		wantStates(t, c)
		if changes.Load() != 2 {
			t.Errorf("%d changes, want 2", changes.Load())
		}
	})
}

// A check that was running when its parameters changed says nothing of the new ones.
func TestResultOfAnOldVersionDoesNotCount(t *testing.T) {
	inBubble(t, 1024, func(c *Checks, p *probes, _ *atomic.Int32) {
		p.takes = time.Second
		c.Set([]model.HostBackend{backend(1)}, time.Now())
		advance(600 * time.Millisecond) // the first check runs
		other := backend(1)
		other.HealthCheck.Port = 9090
		c.Set([]model.HostBackend{other}, time.Now())
		advance(time.Second)
		if p.of(other) != 1 {
			t.Fatalf("checked %d times, want 1", p.of(other))
		}
		wantStates(t, c)
		advance(3 * time.Second)
		wantStates(t, c, "10.3.0.1:8080 healthy ")
	})
}

func TestRemovedChecksStop(t *testing.T) {
	inBubble(t, 1024, func(c *Checks, p *probes, changes *atomic.Int32) {
		p.takes = time.Second
		c.Set(backends(10), time.Now())
		advance(600 * time.Millisecond) // all run
		c.Set(backends(1), time.Now())
		advance(time.Minute)
		for _, b := range backends(10)[1:] {
			if p.of(b) != 1 {
				t.Errorf("%s was checked %d times though it was removed", b.Backend, p.of(b))
			}
		}
		wantStates(t, c, "10.3.0.0:8080 healthy ")
		if changes.Load() != 1 {
			t.Errorf("%d changes, want 1", changes.Load())
		}
	})
}

// Whatever sets follow each other: exactly the checked backends of the last one are known, and
// each is in the queue once.
func TestSetsFollowEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(slog.New(slog.DiscardHandler), nil, func() float64 { return 0.5 }, 1, func() {})
		for range rapid.IntRange(1, 6).Draw(t, "sets") {
			wanted := map[key]bool{}
			var set []model.HostBackend
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 12), 0, 12, rapid.ID).Draw(t, "backends") {
				b := backend(n)
				if b.HealthCheck.Interval *= time.Duration(rapid.IntRange(1, 3).Draw(t, "interval")); n%5 == 0 {
					b.HealthCheck = nil
				} else {
					wanted[key{b.Endpoint, b.Backend}] = true
				}
				set = append(set, b)
			}
			c.Set(set, time.Unix(int64(rapid.IntRange(0, 100).Draw(t, "now")), 0))
			if len(c.entries) != len(wanted) || len(c.queue) != len(wanted) {
				t.Fatalf("%d entries and %d in the queue, want %d", len(c.entries), len(c.queue), len(wanted))
			}
			for place, entry := range c.queue {
				if entry.place != place || entry.removed || !wanted[key{entry.backend.Endpoint, entry.backend.Backend}] {
					t.Fatalf("place %d of the queue holds %+v", place, entry)
				}
			}
		}
	})
}
