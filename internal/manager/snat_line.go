package manager

import (
	"context"
	"slices"
	"sync"
	"time"
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

// portLine bounds how many port requests are under way. In a crowd of users' changes those that are too many wait for
// their turn: one that waits costs nothing, and one that is refused comes again.
type portLine struct {
	places   func() (n int, crowd bool) // that there are
	patience time.Duration

	mu      sync.Mutex
	open    int
	waiting []chan struct{} // in order; each is closed when its turn has come
	looks   bool            // a look is due
}

// enter takes a place, which leave gives back, and says whether there was one until ctx or the patience ended, or stop
// was closed. What another manager has handed on goes ahead: it has waited there.
func (l *portLine) enter(ctx context.Context, ahead bool, stop <-chan struct{}) bool {
	turn := l.join(ahead)
	if turn == nil {
		return false
	}
	select {
	case <-turn:
		return true
	default:
	}
	patience := time.NewTimer(l.patience)
	defer patience.Stop()
	select {
	case <-turn:
		return true
	case <-patience.C:
	case <-ctx.Done():
	case <-stop:
	}
	return !l.part(turn)
}

// join is what is closed when the turn has come; nil: there is neither a place nor a line to wait in.
func (l *portLine) join(ahead bool) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, crowd := l.places()
	if !crowd {
		l.serve(n)
	}
	turn := make(chan struct{})
	switch {
	case l.open < n && (ahead || len(l.waiting) == 0):
		l.open++
		close(turn)
	case !crowd || len(l.waiting) >= lineMost:
		return nil
	case ahead:
		l.waiting = slices.Insert(l.waiting, 0, turn)
	default:
		l.waiting = append(l.waiting, turn)
	}
	l.watch()
	return turn
}

// part leaves the line without a place. It fails if the turn has come just now.
func (l *portLine) part(turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.waiting, turn)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return true
}

// leave gives a place back. In a crowd nobody takes it at once: those who are refused for another reason would make room
// for all that wait as fast as they come.
func (l *portLine) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if n, crowd := l.places(); !crowd {
		l.serve(n)
	}
}

// serve gives places to so many of those who wait, as far as there are any.
func (l *portLine) serve(turns int) {
	n, _ := l.places()
	for len(l.waiting) > 0 && l.open < n && turns > 0 {
		l.open++
		turns--
		close(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
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
