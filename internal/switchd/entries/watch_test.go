package entries

import (
	"testing"
	"time"
)

// What a driver hears of is mended at once, and whoever changes something all the time has the switch be read for a part of it.
func TestChangesByOthersAreMendedAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1), entry(2, true, 2))
		r.takeEvents()
		r.sw.RemoveByHand(vip(1))
		r.othersDo()
		r.settle()
		if got, want := r.takeEvents(), "announce [203.0.113.2]; program 203.0.113.1; announce [203.0.113.1 203.0.113.2]"; got != want {
			t.Errorf("did %q, want %q", got, want)
		}
		r.mu.Lock()
		r.reads = 0
		r.mu.Unlock()
		for range 5000 {
			r.othersDo()
			r.pass(time.Millisecond)
		}
		r.mu.Lock()
		reads := r.reads
		r.mu.Unlock()
		if most := int(5*time.Second/watchPause) + 1; reads < most/2 || reads > most {
			t.Errorf("read %d times in 5 s, want at most %d, and not much less", reads, most)
		}
	})
}
