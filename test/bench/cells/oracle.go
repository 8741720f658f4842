package main

import "fmt"

// oracle sees everything at once, which nobody in a real installation does, and says what must never be.
type oracle struct {
	w       *world
	vips    map[address]tenant // that users were told are theirs
	allowed []int              // of each tenant: the quota, or what was leased when it was lowered
	served  [cells][muxes]map[address]bool
}

func newOracle(w *world) *oracle {
	o := &oracle{w: w, vips: map[address]tenant{}, allowed: make([]int, tenants)}
	for t := range o.allowed {
		o.allowed[t] = quota
	}
	for c := range o.served {
		for m := range o.served[c] {
			o.served[c][m] = map[address]bool{}
		}
	}
	return o
}

// check says what is wrong now.
func (o *oracle) check() error {
	for _, check := range []func() error{o.oneOwner, o.oneServes, o.quotasHold, o.nothingIsWithdrawn} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// oneOwner: no two cells believe that an address is theirs to write and to announce.
func (o *oracle) oneOwner() error { return o.one("own", (*cell).wants) }

// oneServes: no VIP is served by muxes of two cells.
func (o *oracle) oneServes() error { return o.one("serve", (*cell).isServed) }

// one: there are no two cells of which something is so of the same address.
func (o *oracle) one(what string, is func(*cell, address) bool) error {
	for a := range address(addresses) {
		first := nobody
		for _, c := range o.w.cells {
			switch {
			case !is(c, a):
			case first != nobody:
				return fmt.Errorf("cells %d and %d both %s address %d", first, c.id, what, a)
			default:
				first = c.id
			}
		}
	}
	return nil
}

// quotasHold: what cells may use of a tenant's quota is no more than what is leased, and that no more than the quota. A VIP
// that was handed over is of its new cell, though the old one has not heard of it.
func (o *oracle) quotasHold() error {
	for t := range tenant(tenants) {
		account := o.w.directory.accounts[t]
		leased := account.leased()
		if leased > max(account.wanted, o.allowed[t]) {
			return fmt.Errorf("%d of tenant %d are leased, the quota is %d", leased, t, account.wanted)
		}
		o.allowed[t] = max(account.wanted, leased)
		may := 0
		for _, c := range o.w.cells {
			may += c.limit(t)
			for a, of := range c.vips {
				if r := o.w.directory.addresses[a]; of == t && (r.owner != c.id || r.got != c.view.holds[a].got) {
					may--
				}
			}
		}
		if may > leased {
			return fmt.Errorf("cells may use %d of tenant %d, %d are leased", may, t, leased)
		}
		if used := o.used(t); used > leased {
			return fmt.Errorf("tenant %d has %d VIPs, %d are leased", t, used, leased)
		}
	}
	return nil
}

func (o *oracle) used(t tenant) (n int) {
	for _, of := range o.vips {
		if of == t {
			n++
		}
	}
	return n
}

// nothingIsWithdrawn: a mux goes on serving what it serves, whatever is cut off, until the VIP is deleted or its cell was
// told to release it.
func (o *oracle) nothingIsWithdrawn() error {
	for _, c := range o.w.cells {
		for i, m := range c.muxes {
			before := o.served[c.id][i]
			for a := range before {
				if _, there := c.vips[a]; there && c.wants(a) && !m.serves[a] {
					return fmt.Errorf("mux %d of cell %d withdrew address %d, which is its own", i, c.id, a)
				}
			}
			clear(before)
			for a := range m.serves {
				before[a] = true
			}
		}
	}
	return nil
}

// rest: without failures everything comes to its place. No VIP was lost, none is twice, each is served by all muxes of the
// cell that the directory names.
func (o *oracle) rest() error {
	total := 0
	for _, c := range o.w.cells {
		total += len(c.vips)
	}
	if total != len(o.vips) {
		return fmt.Errorf("cells have %d VIPs, users have %d", total, len(o.vips))
	}
	for a, r := range o.w.directory.addresses {
		if r.to != nobody || len(r.carried) > 0 {
			return fmt.Errorf("address %d is still on its way from cell %d to %d", a, r.owner, r.to)
		}
		c := o.w.cells[r.owner]
		t, there := o.vips[address(a)]
		if of, has := c.vips[address(a)]; has != there || of != t {
			return fmt.Errorf("cell %d does not have what users have at address %d", c.id, a)
		}
		for i, m := range c.muxes {
			if m.serves[address(a)] != there {
				return fmt.Errorf("address %d: mux %d of cell %d serves it: %v, want %v", a, i, c.id, m.serves[address(a)], there)
			}
		}
	}
	return nil
}
