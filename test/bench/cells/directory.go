package main

import "maps"

// directory says which cell has an address, and which part of each tenant's quota. What it says is durable: it is down and
// comes back, and forgets nothing.
type directory struct {
	faults

	addresses []record
	accounts  []account
	versions  []version // of each cell's view
	seen      []version // that each cell took over
	heard     []int     // ticks, when each cell was heard last
}

// record is of one address.
type record struct {
	owner, to cellID // to: nobody, or the cell that gets it once the owner released it
	epoch     epoch
	got       epoch              // with which the owner got it
	carried   map[address]tenant // the VIP on its way to the owner; empty: there is none
	since     version            // of the owner's view that has it first
}

// account is of one tenant.
type account struct {
	quota  int // that is in force
	wanted int // by the operator: a lower one is in force when the cells have returned what is beyond it
	leases []lease
}

func (a *account) leased() (sum int) {
	for _, l := range a.leases {
		sum += l.amount
	}
	return sum
}

// change notes that cells must be told something new.
func (d *directory) change(cells ...cellID) {
	for _, c := range cells {
		d.versions[c]++
	}
}

// move has an address go to another cell, as soon as its owner has released it.
func (d *directory) move(a address, to cellID) {
	r := &d.addresses[a]
	if r.to != nobody || r.owner == to || len(r.carried) > 0 {
		return
	}
	r.to = to
	d.change(r.owner)
}

// cancel leaves an address where it is. Its owner may have released it already: it gets it anew.
func (d *directory) cancel(a address) {
	r := &d.addresses[a]
	if r.to == nobody {
		return
	}
	r.to = nobody
	r.epoch++
	d.change(r.owner)
}

// setQuota is the operator's.
func (d *directory) setQuota(t tenant, quota int) {
	d.accounts[t].wanted = quota
	d.divide(t)
}

// divide puts a quota in force as far as leases allow, and asks for what is beyond it.
func (d *directory) divide(t tenant) {
	a := &d.accounts[t]
	leased := a.leased()
	a.quota = max(a.wanted, leased)
	beyond := leased - a.wanted
	for c := range a.leases {
		l := &a.leases[c]
		ask := l.amount
		if beyond > 0 {
			ask = max(0, l.amount-beyond)
			beyond -= l.amount - ask
		}
		if ask != l.ask {
			l.ask = ask
			d.change(cellID(c))
		}
	}
}

// set changes a lease.
func (d *directory) set(t tenant, c cellID, amount int) {
	l := &d.accounts[t].leases[c]
	*l = lease{amount: amount, number: l.number + 1, ask: amount}
	d.change(c)
}

// told is what a cell shall know.
func (d *directory) told(c cellID, now int) view {
	v := view{version: d.versions[c], holds: map[address]holding{}, vips: map[address]tenant{}, leases: map[tenant]lease{}, until: now + leaseTime}
	for a, r := range d.addresses {
		if r.owner == c {
			v.holds[address(a)] = holding{r.epoch, r.got, r.to != nobody}
			maps.Copy(v.vips, r.carried)
		}
	}
	for t, a := range d.accounts {
		v.leases[tenant(t)] = a.leases[c]
	}
	return v
}

// hear takes a cell's report.
func (d *directory) hear(r report, now int) {
	d.heard[r.from] = now
	d.seen[r.from] = max(d.seen[r.from], r.seen)
	for a := range d.addresses {
		if at := &d.addresses[a]; at.owner == r.from && d.seen[r.from] >= at.since {
			at.carried = nil // its owner has it
		}
	}
	for a, released := range r.released {
		d.release(a, released, r.from)
	}
	for t, back := range r.returned {
		if l := d.accounts[t].leases[r.from]; (l.number == back.number || d.numbersIgnored) && back.amount < l.amount {
			d.set(t, r.from, back.amount)
			d.divide(t)
		}
	}
	for t, want := range r.wants {
		a := &d.accounts[t]
		room := min(a.quota, a.wanted) - a.leased()
		if more := min(want-a.leases[r.from].amount, room); more > 0 {
			d.set(t, r.from, a.leases[r.from].amount+more)
		} else if want > a.leases[r.from].amount {
			d.askOthers(t, r.from)
		}
	}
}

// askOthers asks the cells for half of what they may still use, for one that has too little.
func (d *directory) askOthers(t tenant, but cellID) {
	a := &d.accounts[t]
	for c := range a.leases {
		if l := &a.leases[c]; cellID(c) != but && l.ask == l.amount && l.amount > 0 {
			l.ask = l.amount / 2
			d.change(cellID(c))
		}
	}
}

// release gives an address to the cell that waits for it, with the VIP's part of the quota.
func (d *directory) release(a address, released release, from cellID) {
	r := &d.addresses[a]
	if r.owner != from || r.to == nobody || r.epoch != released.epoch && !d.epochsIgnored {
		return
	}
	to := r.to
	*r = record{owner: to, to: nobody, epoch: r.epoch + 1, got: r.epoch + 1}
	if released.used {
		t := released.tenant
		r.carried = map[address]tenant{a: t}
		d.set(t, from, d.accounts[t].leases[from].amount-1)
		d.set(t, to, d.accounts[t].leases[to].amount+1)
		d.divide(t)
	}
	d.change(from, to)
	r.since = d.versions[to]
}

// tick is what the directory does by itself: nothing, unless a fault was put in. No safety hangs on a clock.
func (d *directory) tick(now int) {
	for c := range d.heard {
		if now-d.heard[c] <= leaseTime {
			continue
		}
		for a := range d.addresses {
			if r := &d.addresses[a]; d.silentReplaced && r.owner == cellID(c) && r.to != nobody {
				d.release(address(a), release{epoch: r.epoch}, r.owner)
			}
		}
		for t := range d.accounts {
			if d.expiredCounted && d.accounts[t].leases[c].amount > 0 {
				d.set(tenant(t), cellID(c), 0)
			}
		}
	}
}
