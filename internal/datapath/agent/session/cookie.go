package session

import (
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// DefaultCookieTick is agent.Config.CookieTick if that is 0: the tick of every host.
const DefaultCookieTick = 8 * time.Millisecond

// Ticks are powers of two of a millisecond: TSval of Linux counts these. A tick below one makes the
// clients' clock run faster than the workload's, for tests that cross its bound.
const (
	minCookieTick = time.Millisecond / 64
	maxCookieTick = 1024 * time.Millisecond
	CookieBits    = int(bpf.AgentSessionLayoutCOOKIE_BITS) // of TSval, below the ticks
)

// CookieScale is how far the workload's TSval is shifted left so that bit 13 counts ticks.
func CookieScale(tick time.Duration) (uint32, error) {
	for scale := uint32(0); scale < 32; scale++ {
		if tick == CookieTick(scale) && tick >= minCookieTick && tick <= maxCookieTick {
			return scale, nil
		}
	}
	return 0, fmt.Errorf("must be a power of two of a millisecond, from %s to %s, is %s",
		minCookieTick, maxCookieTick, tick)
}

// CookieTick is the tick of a scale.
func CookieTick(scale uint32) time.Duration { return time.Millisecond << CookieBits >> scale }

// CookieBound is for how long a workload may be silent before its client takes its next segment for
// an old one (RFC 7323, section 5): half of what the ticks that TSval has room for last.
func CookieBound(tick time.Duration) time.Duration { return tick << 18 }
