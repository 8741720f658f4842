package slowpath

import (
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/mux"
)

// Counters count what the slow path did. They may be read at any time.
type Counters struct {
	Fragments, Errors, Splits atomic.Uint64 // punted packets, by reason
	Sent                      atomic.Uint64 // frames: packets, fragments and copies
	Failed                    atomic.Uint64 // frames that could not be sent
	Held                      atomic.Int64  // fragments that wait for the first one of their datagram
	Overflowed                atomic.Uint64 // fragments dropped for want of room
	Expired                   atomic.Uint64 // fragments whose first one did not arrive in time
	Limited                   atomic.Uint64 // errors beyond the rate limit of copies
}

// arrived counts a punted packet.
func (c *Counters) arrived(why mux.PuntReason) {
	switch why {
	case mux.PuntFragment:
		c.Fragments.Add(1)
	case mux.PuntError:
		c.Errors.Add(1)
	case mux.PuntSplit:
		c.Splits.Add(1)
	}
}

// sent counts a frame that was handed to the kernel, or not.
func (c *Counters) sent(err error) {
	if err != nil {
		c.Failed.Add(1)
		return
	}
	c.Sent.Add(1)
}
