package manager

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/rpc/bound"
	"github.com/weirlb/weir/internal/trust"
)

// buckets are token buckets by name. They are as many as there are callers that asked lately, and at most maxBuckets:
// those beyond share one.
type buckets struct {
	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time
}

const (
	maxBuckets  = 16384
	sweepPause  = 10 * time.Second
	otherBucket = "others"
)

// take takes n tokens of a bucket, or says how long there are not so many.
func (b *buckets) take(name string, perSecond float64, burst, n int, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]*rate.Limiter{}
	}
	if now.Sub(b.swept) > sweepPause {
		b.swept = now
		maps.DeleteFunc(b.of, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= float64(l.Burst()) })
	}
	limit := b.of[name]
	if limit == nil && len(b.of) >= maxBuckets {
		name = otherBucket
		limit = b.of[name]
	}
	if limit == nil {
		limit = rate.NewLimiter(rate.Limit(perSecond), burst)
		b.of[name] = limit
	}
	taken := limit.ReserveN(now, min(n, burst))
	if wait = taken.DelayFrom(now); wait > 0 {
		taken.CancelAt(now)
	}
	return wait
}

// kindOf is what the table of bounds calls a caller.
func kindOf(caller trust.Identity) bound.Kind {
	switch caller.Kind {
	case trust.Mux:
		return bound.Mux
	case trust.Host:
		return bound.Host
	case trust.Manager:
		return bound.Manager
	case trust.User:
		if caller.May(trust.Viewer, trust.AllTenants) {
			return bound.Operator
		}
		return bound.User
	}
	return bound.Stranger
}

// sourceOf is the part of the network that a stranger's bounds are of: an address of IPv4, a /64 of IPv6.
func sourceOf(from string) string {
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return "unknown"
	}
	a := at.Addr().Unmap()
	if a.Is4() {
		return a.String()
	}
	p, _ := a.WithZone("").Prefix(64) // an IPv6 address has so many bits
	return p.String()
}

// limited says why a caller may not make a call now: it, or its tenant, makes too many.
func (m *Manager) limited(caller trust.Identity, procedure string) error {
	kind := kindOf(caller)
	if caller.Method == trust.Insecure || kind == bound.Manager || kind == bound.Stranger { // strangers are judged before
		return nil
	}
	now, cost := m.now(), bound.Of(procedure).Cost
	refuse := func(who string, wait time.Duration) error {
		return rpc.RetryAfter(connect.CodeResourceExhausted, fmt.Errorf("%s makes too many requests: try again in %s", who, wait.Round(time.Millisecond)), wait)
	}
	b := bound.Callers[kind]
	if wait := m.rates.take(caller.String(), b.Rate, b.Burst, cost, now); wait > 0 {
		return refuse(caller.String(), wait)
	}
	if b.Opening > 0 && streams(procedure) {
		if wait := m.rates.take("streams of "+caller.String(), b.Streams, b.Opening, 1, now); wait > 0 {
			return refuse(caller.String()+", which opens streams,", wait)
		}
	}
	if tenant := caller.Share(); kind == bound.User && tenant != caller.String() {
		b := bound.Callers[bound.Tenant]
		if wait := m.rates.take(tenant, b.Rate, b.Burst, cost, now); wait > 0 {
			return refuse(tenant, wait)
		}
	}
	return nil
}
