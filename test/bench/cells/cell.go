package main

import "maps"

// cell is one cell: its managers, whose state is in their etcd, and its muxes, which serve by what they were told last.
type cell struct {
	faults

	id      cellID
	view    view
	vips    map[address]tenant
	lowered map[tenant]returned // leases that the cell keeps below what the directory has
	muxes   []mux
	down    bool // its managers: the muxes go on
	asked   int  // ticks, when the directory was heard last
	wanted  map[tenant]int
}

// mux is one mux of a cell.
type mux struct {
	cut    bool // from the managers
	serves map[address]bool
}

// take takes over a view of the directory, unless a newer one was.
func (c *cell) take(v view, now int) {
	c.asked = now
	if v.version <= c.view.version && !c.versionsIgnored {
		if v.version == c.view.version {
			c.view.until = max(c.view.until, v.until)
		}
		return
	}
	isNew := func(a address) bool {
		before, held := c.view.holds[a]
		return !held || before.got != v.holds[a].got && !c.returnsForgot
	}
	for a := range c.vips {
		if _, holds := v.holds[a]; !holds || isNew(a) {
			delete(c.vips, a) // it was released, and is or was another cell's
		}
	}
	for a, t := range v.vips {
		if isNew(a) {
			c.vips[a] = t
		}
	}
	c.view = v.clone()
}

// limit is how much of a tenant's quota the cell may use, of what it has and has not released.
func (c *cell) limit(t tenant) int {
	l := c.view.leases[t]
	if low, is := c.lowered[t]; is && low.number == l.number {
		return min(l.amount, low.amount)
	}
	return l.amount
}

// used is what the cell uses of a tenant's quota.
func (c *cell) used(t tenant) (n int) {
	for _, of := range c.vips {
		if of == t {
			n++
		}
	}
	return n
}

// admits says whether a tenant may have a VIP at the address, by what the cell knows.
func (c *cell) admits(a address, t tenant, now int) bool {
	held, holds := c.view.holds[a]
	_, there := c.vips[a]
	if c.down || !holds || held.leaving || there || now > c.view.until {
		return false
	}
	if c.used(t) < c.limit(t) {
		return true
	}
	c.wanted[t] = c.used(t) + 4
	return false
}

// wants says whether the muxes shall serve an address.
func (c *cell) wants(a address) bool {
	held, holds := c.view.holds[a]
	return holds && !held.leaving
}

// drive tells the muxes that it reaches what they shall serve.
func (c *cell) drive(now int) {
	if c.down {
		return
	}
	for i := range c.muxes {
		m := &c.muxes[i]
		if m.cut {
			continue
		}
		clear(m.serves)
		if c.cutOffWithdraws && now-c.asked > leaseTime {
			continue
		}
		for a := range c.vips {
			if c.wants(a) {
				m.serves[a] = true
			}
		}
	}
}

// isServed says whether a mux of the cell serves an address, reached or not.
func (c *cell) isServed(a address) bool {
	for _, m := range c.muxes {
		if m.serves[a] {
			return true
		}
	}
	return false
}

// report is what the directory shall hear.
func (c *cell) report() report {
	r := report{from: c.id, seen: c.view.version, released: map[address]release{}, returned: map[tenant]returned{}, wants: maps.Clone(c.wanted)}
	for a, held := range c.view.holds {
		if !held.leaving || c.isServed(a) && !c.muxesNotAwaited {
			continue
		}
		t, used := c.vips[a]
		r.released[a] = release{held.epoch, t, used}
	}
	for t, l := range c.view.leases {
		if l.ask < l.amount {
			low := returned{l.number, max(c.used(t), min(l.ask, c.limit(t)))}
			c.lowered[t] = low // before the directory hears of it
			r.returned[t] = low
		}
	}
	return r
}
