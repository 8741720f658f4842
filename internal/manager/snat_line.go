package manager

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/rpc/bound"
)

const (
	// lineTime is how long a port request waits for its turn at most, while users' changes crowd: less than its host
	// waits for the answer.
	lineTime = 2 * time.Second
	// lineMost is how many wait at a manager at most.
	lineMost = 1024
	// lineLook is how often those who wait have turns in a crowd, each time for lineTurns-th of the places.
	lineLook  = 50 * time.Millisecond
	lineTurns = 4
)

// portLine bounds how many port requests are under way, in all and of each tenant. In a crowd of users' changes those that
// are too many wait for their turn: one that waits costs nothing, and one that is refused comes again.
type portLine struct {
	places   func() (n int, crowd bool) // that there are
	patience time.Duration

	mu      sync.Mutex
	open    int
	of      map[string]int // open, by tenant
	waiting []*waiter      // in order
	looks   bool           // a look is due
}

// waiter is a request that waits.
type waiter struct {
	who  string
	turn chan struct{} // closed when it has come
}

// enter takes a place, which leave gives back, and says whether there was one until ctx or the patience ended, or stop
// was closed. What another manager has handed on goes ahead: it has waited there.
func (l *portLine) enter(ctx context.Context, who string, ahead bool, stop <-chan struct{}) bool {
	w := l.join(who, ahead)
	if w == nil {
		return false
	}
	select {
	case <-w.turn:
		return true
	default:
	}
	patience := time.NewTimer(l.patience)
	defer patience.Stop()
	select {
	case <-w.turn:
		return true
	case <-patience.C:
	case <-ctx.Done():
	case <-stop:
	}
	return !l.part(w)
}

// join is a request with its turn, or one that waits for it; nil: there is neither a place nor a line to wait in.
func (l *portLine) join(who string, ahead bool) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, crowd := l.places()
	if !crowd {
		l.serve(n)
	}
	w := &waiter{who: who, turn: make(chan struct{})}
	switch {
	case l.fits(who, n) && (ahead || l.next(n) < 0):
		l.take(w)
	case !crowd || len(l.waiting) >= lineMost || l.waitingOf(who) >= bound.Part(lineMost):
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
func (l *portLine) fits(who string, n int) bool { return l.open < n && l.of[who] < bound.Part(n) }

func (l *portLine) take(w *waiter) {
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.open++
	l.of[w.who]++
	close(w.turn)
}

func (l *portLine) waitingOf(who string) (n int) {
	for _, w := range l.waiting {
		if w.who == who {
			n++
		}
	}
	return n
}

// next is which of those who wait has the next turn: the first of the tenant that has the fewest places; -1: none fits.
func (l *portLine) next(n int) int {
	best := -1
	for i, w := range l.waiting {
		if l.fits(w.who, n) && (best < 0 || l.of[w.who] < l.of[l.waiting[best].who]) {
			best = i
		}
	}
	return best
}

// part leaves the line without a place. It fails if the turn has come just now.
func (l *portLine) part(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, w)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return true
}

// leave gives a place back. In a crowd nobody takes it at once: those who are refused for another reason would make room
// for all that wait as fast as they come.
func (l *portLine) leave(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.of[who]--; l.of[who] == 0 {
		delete(l.of, who)
	}
	if n, crowd := l.places(); !crowd {
		l.serve(n)
	}
}

// serve gives places to so many of those who wait, as far as there are any.
func (l *portLine) serve(turns int) {
	n, _ := l.places()
	for ; turns > 0; turns-- {
		at := l.next(n)
		if at < 0 {
			return
		}
		l.take(l.waiting[at])
		l.waiting = slices.Delete(l.waiting, at, at+1)
	}
}

// watch looks at the line for as long as somebody waits: the end of a crowd is told by nobody.
func (l *portLine) watch() {
	if l.looks || len(l.waiting) == 0 {
		return
	}
	l.looks = true
	time.AfterFunc(lineLook, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looks = false
		n, crowd := l.places()
		if crowd {
			n = max(1, n/lineTurns)
		}
		l.serve(n)
		l.watch()
	})
}
