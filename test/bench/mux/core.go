package main

import (
	"runtime"
	"time"

	"github.com/weirlb/weir/internal/testkit/turns"
)

// core tells whether the CPU that this thread is pinned to runs at full speed. The machine may
// share its physical core with others: then a loop of pure arithmetic takes up to twice as long.
type core struct {
	cpu  int
	best time.Duration // of the loop, on a quiet core
}

const (
	loopTurns = 500_000
	tolerance = 1.07 // a core this much slower than its best is busy
)

func loop() time.Duration {
	start := time.Now()
	for n := loopTurns; n > 0; n-- {
	}
	return time.Since(start)
}

// pinQuietCore binds the calling goroutine to the CPU that is the quieter one now.
func pinQuietCore() (*core, error) {
	runtime.LockOSThread()
	c := &core{best: time.Hour}
	fastest, chosen := time.Hour, 0
	for cpu := range runtime.NumCPU() {
		if err := turns.Pin(cpu); err != nil {
			return nil, err
		}
		var sum time.Duration
		for range 100 {
			took := loop()
			sum += took
			c.best = min(c.best, took)
		}
		if sum < fastest {
			fastest, chosen = sum, cpu
		}
	}
	c.cpu = chosen
	return c, c.take()
}

// take binds the calling thread to the core, and lets nothing else of this machine run there in a burst.
func (c *core) take() error { return turns.TakeCPU(c.cpu) }

func (c *core) quiet() bool {
	took := loop()
	c.best = min(c.best, took)
	return float64(took) <= tolerance*float64(c.best)
}
