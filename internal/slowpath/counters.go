package slowpath

import (
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/mux"
)

// Counters count what the slow path did. They may be read at any time.
type Counters struct {
	Fragments, Errors, Splits atomic.Uint64 // that the program handed over, by why
	Sent                      atomic.Uint64 // frames, whole, parts and copies
	Failed                    atomic.Uint64 // frames that could not be sent
	Held                      atomic.Int64  // fragments that wait for the first one of their datagram
	Overflowed                atomic.Uint64 // fragments that there was no room to hold for
	Expired                   atomic.Uint64 // fragments whose first one did not come
	Limited                   atomic.Uint64 // errors that were too many to copy
}

// arrived counts a packet that the program handed over.
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
