package tokenbucket

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Buckets are token buckets by name. They are as many as there are callers that asked lately, and at most maxBuckets:
// those beyond share one.
type Buckets struct {
	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time
}

const (
	maxBuckets  = 16384
	sweepPause  = 10 * time.Second
	otherBucket = "others"
)

// Take takes n tokens of a bucket, or says how long there are not so many.
func (b *Buckets) Take(name string, perSecond float64, burst, n int, now time.Time) (wait time.Duration) {
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
