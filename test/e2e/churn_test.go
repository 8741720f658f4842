package e2e

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/testkit/stream"
)

// Muxes and backends come and go while thousands of connections are open, and none of them breaks.
//
//	                                 ┌── mux1 .. mux4     mux5 joins
//	client1  timestamps ── router ───┤
//	client2  none                    └── host1 .. host3   host4 joins
//	                                       └── w1 .. w4: odd ones behind interfaces, even ones native
func TestChurn(t *testing.T) {
	l := newChurnLab(t)
	t.Run("nothing happens", func(t *testing.T) {
		c := l.gather(t, modern, l.serve(t), stream.TCP)
		after(t, 5*time.Second)
		c.unbroken(t)
	})
	t.Run("connections", func(t *testing.T) {
		s := l.serve(t)
		c := l.gather(t, modern, s, stream.TCP)
		during(t,
			step{"mux1 dies", func() { l.die(t, "mux1") }},
			step{"mux5 and host4 join", func() { l.join(t, spareMux, spareHost) }},
			step{"four backends drain", func() { l.change(t, s, 0, "host1-w1", "host1-w2", "host2-w1", "host3-w2") }},
			step{"four backends join", func() { l.change(t, s, 1, "host4-w1", "host4-w2", "host4-w3", "host4-w4") }},
			step{"a weight doubles", func() { l.change(t, s, 2, "host2-w3") }},
		)
		after(t, 5*time.Second)
		c.unbroken(t)
		l.back(t, "mux1")
	})
}
