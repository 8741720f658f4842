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
	t.Run("paths", l.testPaths)
	t.Run("flood", l.testFlood)
	t.Run("upgrade", l.testUpgrade)
	for _, scenario := range []struct {
		name    string
		client  string
		network stream.Network
		victim  string // none: nothing happens
	}{
		{"nothing happens", modern, stream.TCP, ""},
		{"connections", modern, stream.TCP, "mux1"},
		{"connections without timestamps", noTimestamp, stream.TCP, "mux2"},
		{"flows", modern, stream.UDP, "mux3"},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			s := l.serve(t)
			c := l.gather(t, scenario.client, s, scenario.network)
			if scenario.victim != "" {
				l.upheaval(t, s, scenario.victim)
			}
			after(t, settle)
			c.unbroken(t)
		})
	}
}

// settle is how long streams are held behind the last step: each has some blocks more.
const settle = 5 * time.Second
