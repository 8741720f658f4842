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

// disturbance is what others changed since the switch was read.
type disturbance struct {
	is   bool
	calm time.Time // until when the switch is not read for it
}

// due says whether the switch is to be read for it.
func (d disturbance) due(now time.Time) bool { return d.is && !now.Before(d.calm) }

// rest begins the pause after a read that began then.
func (d *disturbance) rest(began, now time.Time) {
	d.calm = now.Add(max(watchPause, watchFactor*now.Sub(began)))
}

// watch has the switch be read at once when others change its tables, until ctx ends.
func watch(ctx context.Context, c *Controller) {
	w, can := c.config.Driver.(hardware.Watcher)
	if !can {
		return
	}
	err := w.Watch(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.others.is {
			c.others.is = true
			c.wake.Set()
		}
	})
	if err != nil && ctx.Err() == nil {
		c.config.Log.Warn("what others change is found by the audit alone", "err", err)
	}
}
