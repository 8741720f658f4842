package manager

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/rpc/bound"
)

// congested is a manager's line, with two places while a crowd lasts, and with four behind it.
func congested(lasts time.Duration) *portLine {
	begun := time.Now()
	return &newPortRequests(func() (int, bool) {
		if time.Since(begun) < lasts {
			return 2, true
		}
		return 4, false
	}).line
}

// In a crowd port requests that are too many wait, and have their turn in order; those that waited elsewhere go ahead.
func TestPortRequestsWaitInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := congested(time.Hour)
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
				if line.enter(t.Context(), "red", ahead, nil) {
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
			if line.leave("red"); len(served()) != 2+n {
				t.Errorf("at once when one has ended %v have been served", served())
			}
			time.Sleep(lineLook)
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
		line := congested(time.Hour)
		for range 2 {
			line.enter(t.Context(), "red", false, nil)
		}
		begun := time.Now()
		if line.enter(t.Context(), "red", false, nil) || time.Since(begun) != lineTime {
			t.Errorf("waited %s without a place", time.Since(begun))
		}
		gone, giveUp := context.WithTimeout(t.Context(), lineTime/2)
		defer giveUp()
		if line.enter(gone, "red", false, nil) || time.Since(begun) != lineTime*3/2 {
			t.Error("a host that gave up waits on")
		}
		stops := make(chan struct{})
		close(stops)
		if line.enter(t.Context(), "red", false, stops) {
			t.Error("a manager that stops gives a place")
		}
		if len(line.waiting) != 0 || line.open != 2 {
			t.Errorf("%d wait, and %d have a place", len(line.waiting), line.open)
		}
	})
}

// So many wait, and no more.
func TestTheLineOfPortRequestsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := congested(time.Hour)
		for range 2 + lineMost {
			go line.enter(t.Context(), "red", false, nil)
		}
		synctest.Wait()
		if len(line.waiting) != bound.Part(lineMost) {
			t.Fatalf("of one tenant %d wait", len(line.waiting))
		}
		for range lineMost {
			go line.enter(t.Context(), "blue", false, nil)
		}
		synctest.Wait()
		if len(line.waiting) != lineMost {
			t.Fatalf("%d wait", len(line.waiting))
		}
		begun := time.Now()
		if line.enter(t.Context(), "red", false, nil) || time.Since(begun) != 0 {
			t.Error("one more waits")
		}
		time.Sleep(lineTime)
	})
}

// Who waits with many others of its tenant does not keep another tenant waiting.
func TestTenantsHaveTheirTurnsInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := congested(time.Hour)
		for range 2 + 100 {
			go line.enter(t.Context(), "red", false, nil)
		}
		synctest.Wait()
		served := false
		go func() { served = line.enter(t.Context(), "blue", false, nil) }()
		synctest.Wait()
		line.leave("red")
		time.Sleep(lineLook)
		synctest.Wait()
		if !served {
			t.Error("a request of blue waits behind those of red")
		}
		time.Sleep(lineTime)
	})
}

// When the crowd is over those who wait have what places there are, though nobody tells them.
func TestTheEndOfACrowdServesPortRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := congested(lineTime / 2)
		var served atomic.Int64
		for range 5 {
			go func() {
				if line.enter(t.Context(), "red", false, nil) {
					served.Add(1)
				}
			}()
		}
		time.Sleep(lineTime/2 + lineLook)
		synctest.Wait()
		if served.Load() != 4 {
			t.Errorf("%d have one of four places", served.Load())
		}
		time.Sleep(lineTime)
	})
}
