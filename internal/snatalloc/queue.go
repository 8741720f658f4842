package snatalloc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/limits"
)

const (
	// queueTimeout is how long a port request waits for its turn at most, while users' changes are congested: less than
	// its host waits for the answer.
	queueTimeout = 2 * time.Second
	// maxQueued is how many wait at a manager at most.
	maxQueued = 1024
	// queueInterval is how often those who wait have turns under congestion, each time for queueTurns-th of the places.
	queueInterval = 50 * time.Millisecond
	queueTurns    = 4
)

// Queue bounds how many port requests are under way, in all and of each tenant. While users' changes are congested
// those that are too many wait for their turn: one that waits costs nothing, and one that is refused comes again.
type Queue struct {
	places  func() (n int, congested bool) // that there are
	timeout time.Duration

	mu        sync.Mutex
	open      int
	of        map[string]int // open, by tenant
	waiting   []*waiter      // in order
	scheduled bool           // a look is due
}

// waiter is a request that waits.
type waiter struct {
	who  string
	turn chan struct{} // closed when it has come
}

// Acquire takes a place, which leave gives back, and says whether there was one until ctx or the timeout ended, or stop
// was closed. What another manager has handed on goes ahead: it has waited there.
func (l *Queue) Acquire(ctx context.Context, who string, ahead bool, stop <-chan struct{}) bool {
	w := l.join(who, ahead)
	if w == nil {
		return false
	}
	select {
	case <-w.turn:
		return true
	default:
	}
	timeout := time.NewTimer(l.timeout)
	defer timeout.Stop()
	select {
	case <-w.turn:
		return true
	case <-timeout.C:
	case <-ctx.Done():
	case <-stop:
	}
	return !l.cancel(w)
}

// join is a request with its turn, or one that waits for it; nil: there is neither a place nor room in the queue.
func (l *Queue) join(who string, ahead bool) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, congested := l.places()
	if !congested {
		l.admitWaiting(n)
	}
	w := &waiter{who: who, turn: make(chan struct{})}
	switch {
	case l.fits(who, n) && (ahead || l.next(n) < 0):
		l.admit(w)
	case !congested || len(l.waiting) >= maxQueued || l.waitingOf(who) >= limits.Part(maxQueued):
		return nil
	case ahead:
		l.waiting = slices.Insert(l.waiting, 0, w)
	default:
		l.waiting = append(l.waiting, w)
	}
	l.watch()
	return w
}

// fits says whether there is a place for a tenant.
func (l *Queue) fits(who string, n int) bool { return l.open < n && l.of[who] < limits.Part(n) }

func (l *Queue) admit(w *waiter) {
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.open++
	l.of[w.who]++
	close(w.turn)
}

func (l *Queue) waitingOf(who string) (n int) {
	for _, w := range l.waiting {
		if w.who == who {
			n++
		}
	}
	return n
}

// next is the index of the next waiter: the first one of the tenant with the fewest places; -1: none fits.
func (l *Queue) next(n int) int {
	best := -1
	for i, w := range l.waiting {
		if l.fits(w.who, n) && (best < 0 || l.of[w.who] < l.of[l.waiting[best].who]) {
			best = i
		}
	}
	return best
}

// cancel removes a waiter. It fails if the waiter has just been admitted.
func (l *Queue) cancel(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, w)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return true
}

// Release frees a place. Under congestion no waiter gets it at once: else requests that are refused for another reason
// would drain the queue as fast as they arrive.
func (l *Queue) Release(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.of[who]--; l.of[who] == 0 {
		delete(l.of, who)
	}
	if n, congested := l.places(); !congested {
		l.admitWaiting(n)
	}
}

// Open is how many requests are under way.
func (l *Queue) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// admitWaiting admits up to so many waiters, as far as there are places.
func (l *Queue) admitWaiting(turns int) {
	n, _ := l.places()
	for ; turns > 0; turns-- {
		at := l.next(n)
		if at < 0 {
			return
		}
		l.admit(l.waiting[at])
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
}

// watch admits waiters periodically while there are any: nothing signals the end of congestion.
func (l *Queue) watch() {
	if l.scheduled || len(l.waiting) == 0 {
		return
	}
	l.scheduled = true
	time.AfterFunc(queueInterval, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.scheduled = false
		n, congested := l.places()
		if congested {
			n = max(1, n/queueTurns)
		}
		l.admitWaiting(n)
		l.watch()
	})
}
