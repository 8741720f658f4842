package entries

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

// reading is what the switch says of itself.
type reading struct {
	boot    string
	entries []hardware.Entry
	able    hardware.Capabilities
}

// errDiffers means that the switch says that it took an entry, and holds another.
var errDiffers = errors.New("HardwareDiffers: the switch took the entry, and holds another")

// look reads the switch. What the driver took since the last look is in tried: the zero entry if it was removed. What differs
// without our doing is announced no more until it is as it was. It returns false if the switch did not answer.
func (c *Controller) look(ctx context.Context, tried map[netip.Addr]hardware.Entry) bool {
	began := time.Now()
	c.mu.Lock()
	c.others.is = false
	c.mu.Unlock()
	r, err := call(ctx, c.busy, func(ctx context.Context) (r reading, err error) {
		if r.boot, err = c.config.Driver.Boot(ctx); err != nil {
			return r, err
		}
		if r.entries, err = c.config.Driver.Read(ctx); err != nil {
			return r, err
		}
		r.able, err = c.config.Driver.Capabilities(ctx)
		return r, err
	})
	if err != nil {
		c.inTrouble(ctx, "read", err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.trouble.wait > 0 {
		c.config.Log.Info("the switch answers again")
	}
	c.trouble, c.able, c.read = failure{}, r.able, now
	c.others.rest(began, now)
	if c.boot != "" && c.boot != r.boot {
		c.reboots++
		clear(c.good)
		c.config.Log.Warn("the switch has lost its tables: all is withdrawn, and programmed anew", "old", c.boot, "new", r.boot)
	}
	c.boot = r.boot
	clear(c.held)
	for _, e := range r.entries {
		c.held[e.VIP] = e
	}
	c.compare(tried, now)
	c.announce(now, true)
	return true
}

// compare says what is good of what is held. The lock is held.
func (c *Controller) compare(tried map[netip.Addr]hardware.Entry, now time.Time) {
	room := false
	for vip, e := range tried {
		held := c.held[vip]
		if !held.Equal(e) {
			delete(c.good, vip)
			c.fail(vip, errDiffers, now)
			continue
		}
		delete(c.failures, vip)
		delete(c.good, vip)
		if e.VIP.IsValid() {
			c.good[vip] = held
		} else {
			delete(c.leaving, vip)
			room = true
		}
	}
	for vip, f := range c.failures {
		if room && f.refusal.Table != "" {
			f.next = time.Time{}
			c.failures[vip] = f
		}
	}
	for vip, good := range c.good {
		if !c.held[vip].Equal(good) {
			c.differences++
			delete(c.good, vip)
			c.config.Log.Warn("HardwareDiffers: the switch's entry is not as it was programmed: it is withdrawn and programmed anew", "vip", vip.String())
		}
	}
	for vip := range c.told { // as a daemon before this one left it, or somebody put it back
		if e := c.entry(vip); c.held[vip].Equal(e) && c.config.check(e) == nil {
			c.good[vip] = e
			delete(c.failures, vip)
		}
	}
}
