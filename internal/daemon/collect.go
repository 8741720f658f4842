package daemon

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// Bounds of the memory that a program may fill with garbage before it is collected, in bytes: a small heap is given
// more than Go's own rule would, which is as much again as it holds, and a large one less.
const (
	garbageAtLeast = 128 << 20
	garbageShare   = 0.5 // of what is live
)

// TuneGC paces the garbage collector for a heap that may be anything between a few MiB and many GiB, after each
// collection anew: CPU counts while it is small, memory when it is large. It does nothing where the operator has set
// GOGC; GOMEMLIMIT holds beside it, or else the bound of the program's cgroup. What it returns ends that.
func TuneGC() (stop func()) {
	limitMemory()
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	var stopped atomic.Bool
	var collected func()
	collected = func() {
		if stopped.Load() {
			return
		}
		pace()
		afterCollection(collected)
	}
	collected()
	return func() { stopped.Store(true) }
}

// pace sets the percentage for what was live at the last collection.
func pace() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(garbagePercent(live[0].Value.Uint64()))
}

// garbagePercent is how much garbage there may be beside so many live bytes, in percent of them.
func garbagePercent(live uint64) int {
	live = max(live, 1<<20)
	garbage := max(garbageAtLeast, garbageShare*float64(live))
	return int(math.Round(100 * garbage / float64(live)))
}

// afterCollection calls do after the next collection, in a goroutine of the runtime that a short function may use.
func afterCollection(do func()) {
	mark := new([16]byte) // too large for the tiny allocator, which would keep it alive with its neighbours
	runtime.AddCleanup(mark, func(do func()) { do() }, do)
}
