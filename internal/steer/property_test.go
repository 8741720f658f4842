package steer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// run sends packets, with an event between every few of them, and reports what broke.
func (w *world) run(packets int) {
	const open, eventEvery = 40, 12
	for n := range packets {
		if n%eventEvery == 0 {
			w.event()
			w.compute()
		}
		switch {
		case len(w.flows) < open:
			w.begin()
		case w.IntN(32) == 0:
			w.end(w.flows[w.IntN(len(w.flows))])
		default:
			w.send(w.flows[w.IntN(len(w.flows))], false)
		}
	}
}

func (w *world) begin() {
	f := &flow{class: class(w.IntN(int(classes))), hash: w.Uint32(), id: w.Uint64()}
	w.flows = append(w.flows, f)
	w.began[f.class]++
	w.send(f, f.class != datagrams)
}

func (w *world) end(f *flow) {
	w.flows = slices.DeleteFunc(w.flows, func(other *flow) bool { return other == f })
	if f.server != nil {
		delete(f.server.knows, f)
	}
}

// event is one of those of a bad day.
func (w *world) event() {
	switch w.IntN(10) {
	case 0, 1, 2:
		w.place([]int{1, 2, 4}[w.IntN(3)])
	case 3: // back to the muxes
		if w.IntN(2) == 0 {
			w.placed = nil
		}
	case 4: // a switch dies, and the routers' hash is another
		w.routers = w.Uint64()
		if len(w.placed) > 0 {
			w.placed = slices.Delete(w.placed, 0, 1)
		}
	case 5:
		if len(w.hosts) < 9 {
			w.addHost()
		}
	case 6, 7:
		h := w.hosts[w.IntN(len(w.hosts))]
		h.backend.Weight = 1 - h.backend.Weight
		if !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.backend.Weight > 0 }) {
			h.backend.Weight = 1
		}
	case 8:
		if len(w.hosts) > 4 && w.IntN(3) == 0 {
			w.kill(w.IntN(len(w.hosts)))
		}
	case 9: // a mux comes, and knows no flow
		w.muxes[w.IntN(len(w.muxes))] = &mux{flows: map[*flow]model.Slot{}}
		w.routers = w.Uint64()
	}
	if w.IntN(2) == 0 { // else the switches still have the members from before
		w.program()
	}
}

// place has so many new switches attract the VIP, each whole or all with parts of it.
func (w *world) place(n int) {
	w.placed = nil
	split := w.IntN(2) == 0
	for i := range n {
		d := &device{salt: w.Uint64(), resilient: w.resilient, of: 1}
		if split {
			d.part, d.of = i, n
			w.splits++
		}
		w.placed = append(w.placed, d)
	}
	w.program()
}

func (w *world) program() {
	members := slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.backend.Weight == 0 })
	for _, d := range w.placed {
		if len(members) > 0 {
			d.hold(w.Rand, members)
		}
	}
}

// kill has a host die with its connections.
func (w *world) kill(i int) {
	h := w.hosts[i]
	h.dead = true
	w.hosts = slices.Delete(w.hosts, i, i+1)
	if !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.backend.Weight > 0 }) {
		w.hosts[0].backend.Weight = 1
	}
	for _, f := range slices.Clone(w.flows) {
		if f.server == h {
			w.end(f)
		}
	}
}

// send brings a packet to where it is served.
func (w *world) send(f *flow, syn bool) {
	w.packets++
	p := Packet{Protocol: f.class.protocol(), SYN: syn, Timestamps: f.class == timestamps, Hash: f.hash}
	if !syn {
		p.Cookie = f.cookie
	}
	d := Decision{}
	if len(w.placed) > 0 {
		at := w.placed[mix(f.id^w.routers)%uint64(len(w.placed))].pick(f)
		if at.dead {
			return // lost, until the switch knows
		}
		own := at.slots[p.Protocol]
		d = w.rules.decide(w.endpoints[p.Protocol], p, Arrival{
			Own: own, TakesNew: at.inBuckets[p.Protocol], Known: at.knows[f], Timestamps: at.learned,
		})
		if d.Slot != own {
			w.hops++
		}
	} else {
		d = w.muxes[mix(f.id^w.routers)%uint64(len(w.muxes))].choose(w, f, p)
	}
	h := w.at(p.Protocol, d.Slot)
	if h == nil {
		return
	}
	if before := w.at(p.Protocol, d.Previous); d.Previous != 0 && !h.knows[f] && before != nil && before.knows[f] {
		h = before
		w.hops++
	}
	w.deliver(h, f, syn)
}

// choose is what a mux does: the cookie, else what it remembers, else the bucket.
func (m *mux) choose(w *world, f *flow, p Packet) Decision {
	e := w.endpoints[p.Protocol]
	now, previous := e.Choice(p.Hash)
	switch remembered := m.flows[f]; {
	case p.SYN:
		return Decision{Slot: now}
	case p.Cookie != 0 && e.Lives(p.Cookie):
		return Decision{Slot: p.Cookie}
	case e.Lives(remembered):
		return Decision{Slot: remembered}
	case previous != 0 && previous != now && e.Lives(previous):
		return Decision{Slot: now, Previous: previous}
	}
	m.flows[f] = now
	return Decision{Slot: now}
}

// deliver hands a packet to a workload, which resets what is none of its connections.
func (w *world) deliver(h *host, f *flow, syn bool) {
	switch {
	case f.server == nil && (syn || f.class == datagrams):
		f.server = h
		h.knows[f] = true
		if f.class == timestamps && h.speaks {
			h.learned, f.cookie = true, h.slots[model.TCP]
		}
	case f.server == nil: // its SYN was lost
		w.end(f)
	case f.server != h:
		w.broken[f.class]++
		w.end(f)
	}
}

func (w *world) String() string {
	total := 0
	for _, n := range w.began {
		total += n
	}
	return fmt.Sprintf("%v of %v broken (TCP with timestamps, without, UDP), %.2f hops a packet", w.broken, w.began, float64(w.hops)/float64(w.packets))
}

// TestConnectionsOutliveSwitches has switches with hashes of their own, muxes and backends come and go: no connection
// breaks but those of dead backends.
func TestConnectionsOutliveSwitches(t *testing.T) {
	for seed := range uint64(2) {
		for _, resilient := range []bool{false, true} {
			w := newWorld(seed, rules{}, resilient)
			w.run(6000)
			t.Logf("seed %d, resilient %t: %v", seed, resilient, w)
			if w.broken != [classes]int{} {
				t.Errorf("seed %d, resilient %t: %v", seed, resilient, w)
			}
			if w.splits < 20 {
				t.Errorf("seed %d: only %d switches had a part of the backends", seed, w.splits)
			}
			for class, n := range w.began {
				if n < 50 {
					t.Errorf("seed %d: %d connections of class %d are too few to tell", seed, n, class)
				}
			}
		}
	}
}

// TestWhatSteeringNeeds leaves rules out: the simulation must see it.
func TestWhatSteeringNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		rules    rules
		concerns []class
	}{
		"hosts deliver what arrives":         {rules{deliverOnArrival: true}, []class{timestamps, plainTCP, datagrams}},
		"no chaining after steering":         {rules{noChaining: true}, []class{plainTCP, datagrams}},
		"SYNs without timestamps stay there": {rules{synsStay: true}, []class{plainTCP}},
		"moves end by time":                  {rules{movesEndByTime: true}, []class{datagrams}},
	} {
		w := newWorld(1, c.rules, false)
		w.run(6000)
		t.Logf("%s: %v", name, w)
		for _, class := range c.concerns {
			if 2*w.broken[class] < w.began[class] {
				t.Errorf("%s: only %v", name, w)
			}
		}
	}
}
