package snatalloc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/limits"
)

// congested is a manager's queue, with two places while congestion lasts, and with four behind it.
func congested(lasts time.Duration) *Queue {
	begun := time.Now()
	return &Queue{timeout: queueTimeout, places: func() (int, bool) {
		if time.Since(begun) < lasts {
			return 2, true
		}
		return 4, false
	}}
}

// Under congestion port requests that are too many wait, and have their turn in order; those that waited elsewhere go
// ahead.
func TestPortRequestsWaitUnderCongestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := congested(time.Hour)
		var mu sync.Mutex
		var names []string
		served := func(name ...string) []string {
			mu.Lock()
			defer mu.Unlock()
			names = append(names, name...)
			return slices.Clone(names)
		}
		ask := func(name string, ahead bool) {
			go func() {
				if queue.Acquire(t.Context(), "red", ahead, nil) {
					served(name)
				}
			}()
			synctest.Wait()
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			ask(name, false)
		}
		ask("handed on", true)
		if !slices.Equal(served(), []string{"a", "b"}) {
			t.Fatalf("with two places %v have one", served())
		}
		for n := range 3 {
			if queue.Release("red"); len(served()) != 2+n {
				t.Errorf("at once when one has ended %v have been served", served())
			}
			time.Sleep(queueInterval)
			synctest.Wait()
		}
		if !slices.Equal(served(), []string{"a", "b", "handed on", "c", "d"}) {
			t.Errorf("served in the order %v", served())
		}
	})
}

// Who waits is refused when it took too long, when its host gave up, and when the manager stops.
func TestPortRequestsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := congested(time.Hour)
		for range 2 {
			queue.Acquire(t.Context(), "red", false, nil)
		}
		begun := time.Now()
		if queue.Acquire(t.Context(), "red", false, nil) || time.Since(begun) != queueTimeout {
			t.Errorf("waited %s without a place", time.Since(begun))
		}
		gone, giveUp := context.WithTimeout(t.Context(), queueTimeout/2)
		defer giveUp()
		if queue.Acquire(gone, "red", false, nil) || time.Since(begun) != queueTimeout*3/2 {
			t.Error("a host that gave up waits on")
		}
		stops := make(chan struct{})
		close(stops)
		if queue.Acquire(t.Context(), "red", false, stops) {
			t.Error("a manager that stops gives a place")
		}
		if len(queue.waiting) != 0 || queue.open != 2 {
			t.Errorf("%d wait, and %d have a place", len(queue.waiting), queue.open)
		}
	})
}

// So many wait, and no more.
func TestTheQueueOfPortRequestsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := congested(time.Hour)
		for range 2 + maxQueued {
			go queue.Acquire(t.Context(), "red", false, nil)
		}
		synctest.Wait()
		if len(queue.waiting) != limits.Part(maxQueued) {
			t.Fatalf("of one tenant %d wait", len(queue.waiting))
		}
		for range maxQueued {
			go queue.Acquire(t.Context(), "blue", false, nil)
		}
		synctest.Wait()
		if len(queue.waiting) != maxQueued {
			t.Fatalf("%d wait", len(queue.waiting))
		}
		begun := time.Now()
		if queue.Acquire(t.Context(), "red", false, nil) || time.Since(begun) != 0 {
			t.Error("one more waits")
		}
		time.Sleep(queueTimeout)
	})
}

// Who waits with many others of its tenant does not keep another tenant waiting.
func TestTenantsHaveTheirTurnsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := congested(time.Hour)
		for range 2 + 100 {
			go queue.Acquire(t.Context(), "red", false, nil)
		}
		synctest.Wait()
		served := false
		go func() { served = queue.Acquire(t.Context(), "blue", false, nil) }()
		synctest.Wait()
		queue.Release("red")
		time.Sleep(queueInterval)
		synctest.Wait()
		if !served {
			t.Error("a request of blue waits behind those of red")
		}
		time.Sleep(queueTimeout)
	})
}

// When congestion is over those who wait have what places there are, though nobody tells them.
func TestTheEndOfCongestionServesPortRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := congested(queueTimeout / 2)
		var served atomic.Int64
		for range 5 {
			go func() {
				if queue.Acquire(t.Context(), "red", false, nil) {
					served.Add(1)
				}
			}()
		}
		time.Sleep(queueTimeout/2 + queueInterval)
		synctest.Wait()
		if served.Load() != 4 {
			t.Errorf("%d have one of four places", served.Load())
		}
		time.Sleep(queueTimeout)
	})
}

// While users' changes are not congested, a manager has so many port requests under way, and no more until one ends. A
// tenant leaves some to others.
func TestPortRequestsUnderWayAreBounded(t *testing.T) {
	queue := &Queue{places: func() (int, bool) { return maxOpen, false }, timeout: time.Hour}
	enter := func(who string) bool { return queue.Acquire(t.Context(), who, false, nil) }
	for i := range limits.Part(maxOpen) {
		if !enter("red") {
			t.Fatalf("request %d finds no place", i)
		}
	}
	if enter("red") {
		t.Error("one tenant has more than its part")
	}
	for i := limits.Part(maxOpen); i < maxOpen; i++ {
		if !enter("blue") {
			t.Fatalf("request %d, of another tenant, finds no place", i)
		}
	}
	if enter("green") {
		t.Error("one too many finds a place")
	}
	queue.Release("red")
	if !enter("green") {
		t.Error("when one has ended there is no place")
	}
}
