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
	none, err := router.Unreachable(ctx, tunnelsOf(toldNow(c)))
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
		tunnels := tunnelsOf(toldNow(c))
		none, err := router.Unreachable(ctx, tunnels)
		took := time.Since(began)
		if err == nil && loses(c, none) {
			pause(ctx, routeAgain)
			none, err = router.Unreachable(ctx, slices.DeleteFunc(tunnels, func(t hardware.Tunnel) bool { return !slices.Contains(none, t.Address) }))
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

// toldNow is what is told now: each message makes another map, so that nobody has to wait while this one is read.
func toldNow(c *Controller) map[netip.Addr]wire.SwitchEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

// tunnelsOf are the tunnels of all entries, in order. One that some entry has as a TIP is one.
func tunnelsOf(told map[netip.Addr]wire.SwitchEntry) []hardware.Tunnel {
	isTIP := map[netip.Addr]bool{}
	for _, e := range told {
		for _, m := range e.Members {
			isTIP[m.Tunnel] = isTIP[m.Tunnel] || m.TIP
		}
	}
	all := make([]hardware.Tunnel, 0, len(isTIP))
	for _, tunnel := range slices.SortedFunc(maps.Keys(isTIP), netip.Addr.Compare) {
		all = append(all, hardware.Tunnel{Address: tunnel, TIP: isTIP[tunnel]})
	}
	return all
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
	for vip, f := range c.failures { // what is without other members is tried at once
		if onlyLacks(c, vip) {
			f.next = time.Time{}
			c.failures[vip] = f
		}
	}
	c.announce(time.Now(), false)
	c.config.Changed()
	c.wake.Set()
}

// onlyLacks says whether all that an entry which the switch holds differs by from what it is to hold are members without a
// route that it still has: it is as the manager told it. The lock is held.
func onlyLacks(c *Controller, vip netip.Addr) bool {
	held, there := c.held[vip]
	told, is := c.told[vip]
	if !there || !is || len(c.unreachable) == 0 {
		return false
	}
	want := c.entry(vip)
	if len(held.Members) <= len(want.Members) {
		return false
	}
	held.Members = slices.DeleteFunc(slices.Clone(held.Members), func(m hardware.Member) bool {
		return c.unreachable[m.Tunnel] && slices.ContainsFunc(told.Members, func(t wire.SwitchMember) bool { return t.Tunnel == m.Tunnel })
	})
	return held.Equal(want)
}

// unroutedOf are the VIPs that are to be announced and are not for want of a route: to any of their tunnels, or to some that the
// switch does not take out of the entry. The lock is held.
func unroutedOf(c *Controller) (vips []netip.Addr) {
	if len(c.unreachable) == 0 {
		return nil
	}
	for vip, told := range c.told {
		if told.Announce && !c.announced[vip] && (c.unreachable.all(told) || onlyLacks(c, vip)) {
			vips = append(vips, vip)
		}
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	return vips
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
