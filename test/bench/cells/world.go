package main

import (
	"fmt"
	"math/rand/v2"
)

// Sizes of a world, small enough that everything meets, and times in ticks.
const (
	cells     = 3
	muxes     = 2
	addresses = 12
	tenants   = 2
	quota     = 6
	leaseTime = 30
	longest   = 25  // a message is under way
	healing   = 400 // in which a world without failures comes to rest
)

// message is under way, to the directory or to a cell.
type message struct {
	due    int
	view   *view // to a cell
	to     cellID
	report *report // to the directory
}

// counts are what happened, so that one sees that a run was no idle one.
type counts struct {
	Moves, Cancelled, Handed, Admitted, Refused, Deleted, Quotas, Lost, Ticks int
	CutOff                                                                    int // admitted while the directory was not heard
}

func (c *counts) add(o counts) {
	c.Moves, c.Cancelled, c.Handed, c.Admitted = c.Moves+o.Moves, c.Cancelled+o.Cancelled, c.Handed+o.Handed, c.Admitted+o.Admitted
	c.Refused, c.Deleted, c.Quotas, c.Lost = c.Refused+o.Refused, c.Deleted+o.Deleted, c.Quotas+o.Quotas, c.Lost+o.Lost
	c.Ticks, c.CutOff = c.Ticks+o.Ticks, c.CutOff+o.CutOff
}

// world is a directory and its cells, messages between them, and what fails.
type world struct {
	counts

	random    *rand.Rand
	now       int
	directory *directory
	down      bool // the directory
	cells     []*cell
	apart     []bool // of each cell: the directory and it do not reach each other
	under     []message
	oracle    *oracle
}

// newWorld has all addresses in the first cell, and no leases.
func newWorld(seed uint64, f faults) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), apart: make([]bool, cells)}
	w.directory = &directory{faults: f, versions: make([]version, cells), seen: make([]version, cells), heard: make([]int, cells)}
	for range addresses {
		w.directory.addresses = append(w.directory.addresses, record{owner: 0, to: nobody, epoch: 1, got: 1})
	}
	for range tenants {
		w.directory.accounts = append(w.directory.accounts, account{quota: quota, wanted: quota, leases: make([]lease, cells)})
	}
	for i := range cells {
		c := &cell{faults: f, id: cellID(i), vips: map[address]tenant{}, lowered: map[tenant]returned{}, wanted: map[tenant]int{}}
		for range muxes {
			c.muxes = append(c.muxes, mux{serves: map[address]bool{}})
		}
		w.cells = append(w.cells, c)
		w.directory.change(c.id)
	}
	w.oracle = newOracle(w)
	return w
}

// run breaks a world for so many ticks, heals it, and says what is wrong with it.
func (w *world) run(ticks int) error {
	for range ticks {
		w.fail()
		w.use()
		if err := w.tick(); err != nil {
			return fmt.Errorf("tick %d: %w", w.now, err)
		}
	}
	w.heal()
	for range healing {
		if err := w.tick(); err != nil {
			return fmt.Errorf("tick %d, after all failures: %w", w.now, err)
		}
	}
	w.Ticks = w.now
	if err := w.oracle.rest(); err != nil {
		return fmt.Errorf("at rest: %w", err)
	}
	return nil
}

// often says yes once in n times.
func (w *world) often(n int) bool { return w.random.IntN(n) == 0 }

// fail breaks or mends something.
func (w *world) fail() {
	if w.often(60) {
		w.down = !w.down
	}
	for i, c := range w.cells {
		if w.often(50) {
			w.apart[i] = !w.apart[i]
		}
		if w.often(80) {
			c.down = !c.down
		}
		for j := range c.muxes {
			if w.often(60) {
				c.muxes[j].cut = !c.muxes[j].cut
			}
		}
	}
}

func (w *world) heal() {
	w.down = false
	for i, c := range w.cells {
		w.apart[i], c.down = false, false
		for j := range c.muxes {
			c.muxes[j].cut = false
		}
	}
}

// use is what operators and tenants do.
func (w *world) use() {
	if !w.down && w.often(12) {
		w.moveSome()
	}
	if a := address(w.random.IntN(addresses)); !w.down && w.often(8) && w.directory.addresses[a].to != nobody {
		w.directory.cancel(a)
		w.Cancelled++
	}
	if !w.down && w.often(40) {
		w.directory.setQuota(tenant(w.random.IntN(tenants)), w.random.IntN(2*quota))
		w.Quotas++
	}
	// A client may ask a cell by what it was told long ago.
	for range 2 {
		w.apply(w.cells[w.random.IntN(cells)], address(w.random.IntN(addresses)), tenant(w.random.IntN(tenants)))
	}
	if w.often(6) {
		w.delete(w.cells[w.random.IntN(cells)], address(w.random.IntN(addresses)))
	}
}

// moveSome has some addresses that follow one another go to another cell: a prefix is split where they end.
func (w *world) moveSome() {
	first, n, to := w.random.IntN(addresses), 1+w.random.IntN(4), cellID(w.random.IntN(cells))
	for a := first; a < min(first+n, addresses); a++ {
		w.directory.move(address(a), to)
	}
	w.Moves++
}

func (w *world) apply(c *cell, a address, t tenant) {
	if !c.admits(a, t, w.now) {
		w.Refused++
		return
	}
	c.vips[a] = t
	w.oracle.vips[a] = t
	w.Admitted++
	if w.down || w.apart[c.id] {
		w.CutOff++
	}
}

func (w *world) delete(c *cell, a address) {
	if _, there := c.vips[a]; there && c.wants(a) && !c.down {
		delete(c.vips, a)
		delete(w.oracle.vips, a)
		w.Deleted++
	}
}

// send puts a message under way: lost, late, twice, in any order.
func (w *world) send(m message) {
	if w.often(8) {
		w.Lost++
		return
	}
	m.due = w.now + 1 + w.random.IntN(3)
	if w.often(4) {
		m.due = w.now + 1 + w.random.IntN(longest)
	}
	w.under = append(w.under, m)
	if w.often(10) {
		m.due += w.random.IntN(longest)
		w.under = append(w.under, m)
	}
}

// tick has everybody say what there is to say, and act by what they heard.
func (w *world) tick() error {
	w.now++
	if !w.down {
		w.directory.tick(w.now)
		for _, c := range w.cells {
			v := w.directory.told(c.id, w.now)
			w.send(message{view: &v, to: c.id})
		}
	}
	for _, c := range w.cells {
		c.drive(w.now)
		if !c.down {
			r := c.report()
			w.send(message{report: &r})
		}
	}
	if err := w.oracle.check(); err != nil {
		return err
	}
	w.deliver()
	return w.oracle.check()
}

// deliver has messages that are due reach whom they are for, if that is there. Others are lost.
func (w *world) deliver() {
	var under []message
	for _, m := range w.under {
		switch {
		case m.due > w.now:
			under = append(under, m)
		case m.view != nil && !w.apart[m.to] && !w.cells[m.to].down:
			w.cells[m.to].take(m.view.clone(), w.now)
		case m.report != nil && !w.apart[m.report.from] && !w.down:
			before := w.owners()
			w.directory.hear(*m.report, w.now)
			for a, owner := range w.owners() {
				if owner != before[a] {
					w.Handed++
				}
			}
		}
	}
	w.under = under
}

func (w *world) owners() (all [addresses]cellID) {
	for a, r := range w.directory.addresses {
		all[a] = r.owner
	}
	return all
}
