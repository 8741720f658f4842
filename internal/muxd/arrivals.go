package muxd

import (
	"strings"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// arrivals notices whether packets of VIPs come: that BGP sessions are up says nothing of what routers do with the routes.
type arrivals struct {
	begun bool
	seen  uint64    // packets of VIPs, at the last look
	last  time.Time // when a look found more than the one before; zero: none did
}

// toTheMux begin the names of verdicts on packets that are sent to the mux's own addresses.
var toTheMux = []string{"pass_", "drop_not_a_", "drop_relay_", "drop_vxlan"}

// look takes the counters of verdicts, which outlive the daemon, and returns when packets of VIPs last came.
func (a *arrivals) look(verdicts map[string]model.Counter, now time.Time) time.Time {
	var sum uint64
	for name, c := range verdicts {
		own := false
		for _, prefix := range toTheMux {
			own = own || strings.HasPrefix(name, prefix)
		}
		if !own {
			sum += c.Packets
		}
	}
	if a.begun && sum > a.seen {
		a.last = now
	}
	a.begun, a.seen = true, sum
	return a.last
}
