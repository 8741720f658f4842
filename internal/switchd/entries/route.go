package entries

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/wire"
)

// Routes to tunnels are looked up from time to time: there may be many, and these lookups take a hundredth of the time at most.
const (
	routePause  = 500 * time.Millisecond
	routeFactor = 100
	// routeAgain is when routes that are missing are looked up again before that counts: who replaces a route may delete it first.
	routeAgain = 50 * time.Millisecond
	// routesFirst bounds the look-up of a start.
	routesFirst = 2 * time.Second
)

// readRoutes looks up which tunnels have no route before anything is announced or withdrawn: the switch may hold entries
// without them.
func readRoutes(ctx context.Context, c *Controller) {
	router, can := c.config.Driver.(hardware.Router)
	if !can {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, routesFirst)
	defer cancel()
	none, err := router.Unreachable(ctx, tunnelsOf(c))
	if err != nil {
		c.config.Log.Warn("which tunnels have a route is not known, trying again", "err", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unreachable = unreachableOf(none)
}

// watchRoutes looks up which tunnels the switch has no route to, until ctx ends.
func watchRoutes(ctx context.Context, c *Controller) {
	router, can := c.config.Driver.(hardware.Router)
	if !can {
		return
	}
	failed := false
	for ctx.Err() == nil {
		began := time.Now()
		none, err := router.Unreachable(ctx, tunnelsOf(c))
		took := time.Since(began)
		if err == nil && loses(c, none) {
			pause(ctx, routeAgain)
			none, err = router.Unreachable(ctx, none)
		}
		switch {
		case err == nil:
			noteUnreachable(c, none)
		case ctx.Err() == nil && !failed:
			c.config.Log.Warn("which tunnels have a route is not known, trying again", "err", err)
		}
		failed = err != nil
		pause(ctx, max(routePause, routeFactor*took))
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// loses says whether there are tunnels among none that had a route.
func loses(c *Controller, none []netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(none, func(tunnel netip.Addr) bool { return !c.unreachable[tunnel] })
}

// tunnelsOf are the tunnels of all entries, in order.
func tunnelsOf(c *Controller) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[netip.Addr]bool{}
	for _, e := range c.told {
		for _, m := range e.Members {
			all[m.Tunnel] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

// noteUnreachable takes over which tunnels have no route. What no tunnel is reachable of is withdrawn at once.
func noteUnreachable(c *Controller, none []netip.Addr) {
	next := unreachableOf(none)
	c.mu.Lock()
	defer c.mu.Unlock()
	if maps.Equal(next, c.unreachable) {
		return
	}
	c.config.Log.Warn("other tunnels have no route than before", "old", len(c.unreachable), "new", len(next))
	c.unreachable = next
	c.announce(time.Now(), false)
	c.config.Changed()
	c.wake.Set()
}

// unreachable are tunnels that the switch has no route to.
type unreachable map[netip.Addr]bool

func unreachableOf(tunnels []netip.Addr) unreachable {
	u := make(unreachable, len(tunnels))
	for _, tunnel := range tunnels {
		u[tunnel] = true
	}
	return u
}

// all says whether they are all members of an entry.
func (u unreachable) all(e wire.SwitchEntry) bool {
	return len(u) > 0 && len(e.Members) > 0 && !slices.ContainsFunc(e.Members, func(m wire.SwitchMember) bool { return !u[m.Tunnel] })
}
