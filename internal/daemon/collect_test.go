package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 12800}, {mib, 12800}, {64 * mib, 200}, {128 * mib, 100}, {256 * mib, 50}, {4096 * mib, 50},
	} {
		if got := garbagePercent(c.live); got != c.want {
			t.Errorf("with %d MiB live: %d %%, want %d %%", c.live/mib, got, c.want)
		}
	}
}

// The percentage follows the heap, after each collection and more than once.
func TestCollectorFollowsTheHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "")
	t.Cleanup(TuneGC())
	for _, size := range []int{64 << 20, 1 << 20, 300 << 20} {
		held := make([]byte, size)
		runtime.GC()
		deadline := time.Now().Add(10 * time.Second)
		for !pacedFor(size) {
			if time.Now().After(deadline) {
				t.Fatalf("%d MiB are live, and the percentage is %d", size>>20, readMetric("/gc/gogc:percent"))
			}
			time.Sleep(time.Millisecond)
		}
		runtime.KeepAlive(held)
	}
}

// pacedFor tells whether the percentage is for a heap of so many bytes, and what a test's process holds beside them.
func pacedFor(size int) bool {
	percent := int(readMetric("/gc/gogc:percent"))
	return percent <= garbagePercent(uint64(size)) && percent >= garbagePercent(uint64(size)+64<<20)
}

func readMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestCollectorIsLeftToTheOperator(t *testing.T) {
	before := debug.SetGCPercent(77)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "77")
	t.Cleanup(TuneGC())
	if got := readMetric("/gc/gogc:percent"); got != 77 {
		t.Errorf("GOGC=77, and the percentage is %d", got)
	}
}
