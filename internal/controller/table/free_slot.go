package table

import (
	"context"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// freeSlots are when this manager first saw slots free. How long they are reserved counts from then: the clock of the
// leader that freed them may be another. After a change of the leader they may be reserved for longer, never for less.
type freeSlots map[freeSlot]time.Time

type freeSlot struct {
	endpoint model.EndpointKey
	slot     model.Slot
	freed    int64 // by the leader that wrote it: a name, no time
}

func freeSlotOf(key model.EndpointKey, r desired.Row) freeSlot {
	return freeSlot{key, r.Slot, r.Freed.UnixNano()}
}

// observe returns when each slot that is free now was first seen free.
func (seen freeSlots) observe(s *store.State, now time.Time) freeSlots {
	next := freeSlots{}
	for key := range s.Tables.WithFreedSlots() {
		for _, r := range s.Tables.At(key).Rows {
			if !r.Retired() {
				continue
			}
			at := freeSlotOf(key, r)
			if next[at] = now; !seen[at].IsZero() {
				next[at] = seen[at]
			}
		}
	}
	return next
}

// lookForFreeSlots is how often a leader looks for slots that are free.
const lookForFreeSlots = time.Minute

// WatchFreeSlots notes slots that are free while this manager leads. What it has seen in an earlier term counts.
func (c *Controller) WatchFreeSlots(ctx context.Context) error {
	tick := time.NewTicker(lookForFreeSlots)
	defer tick.Stop()
	for {
		var seen freeSlots
		if before := c.free.Load(); before != nil {
			seen = *before
		}
		seen = seen.observe(c.Store.State(), c.Now())
		c.free.Store(&seen)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// FreeFor is how long this manager knows a slot to be free.
func (c *Controller) FreeFor(key model.EndpointKey, r desired.Row) time.Duration {
	seen := c.free.Load()
	if seen == nil {
		return 0
	}
	first, known := (*seen)[freeSlotOf(key, r)]
	if !known {
		return 0
	}
	return c.Now().Sub(first)
}
