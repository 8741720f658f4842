package entries

import (
	"context"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

// After a read that somebody's change led to, the next such one waits for a while, and for a multiple of what it took: whoever
// changes tables all the time makes the switch be read for a tenth of the time at most.
const (
	watchPause  = 100 * time.Millisecond
	watchFactor = 10
)

// watch has the switch be read at once when others change its tables, until ctx ends.
func (c *Controller) watch(ctx context.Context) {
	w, can := c.config.Driver.(hardware.Watcher)
	if !can {
		return
	}
	if err := w.Watch(ctx, c.disturb); err != nil && ctx.Err() == nil {
		c.config.Log.Warn("what others change is found by the audit alone", "err", err)
	}
}

// disturb says that a table may be other than it was read.
func (c *Controller) disturb() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.disturbed {
		c.disturbed = true
		c.wake.Set()
	}
}

// rest begins the pause after a read that began then. The lock is held.
func (c *Controller) rest(began, now time.Time) {
	c.calm = now.Add(max(watchPause, watchFactor*now.Sub(began)))
}
