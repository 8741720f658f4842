package neighbor

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// world is a store, managers that read it, and muxes that ask them, in steps of ten milliseconds. Any of them may stand
// still for as long as it likes, and any message may take as long.
type world struct {
	r    *rand.Rand
	now  time.Duration
	vips []netip.Addr

	all      []Mux
	able     map[string]Mux // what the store has
	puts     map[string]Put
	managers []*managerSim
	muxes    []*muxSim
}

type managerSim struct {
	ledger  Ledger
	still   time.Duration // until then it does nothing
	asked   time.Duration // of a read under way
	answers time.Duration // when it ends; 0: there is none
	read    []Mux
	puts    []Put
	reads   time.Duration // when it reads what is there
	done    bool
}

type muxSim struct {
	name   string
	holder Holder
	still  time.Duration // its daemon; the program goes on by Until
	rows   []netip.Addr  // what the program answers for
	until  time.Duration

	digest  uint64
	sent    time.Duration
	at      *managerSim
	handles time.Duration // when the manager handles it; 0: there is none
	back    time.Duration // when the response is there; 0: not handled
	grant   Grant
	ok      bool
}

const step = 10 * time.Millisecond

var epoch = time.Unix(1e9, 0)

func (w *world) chance(n int) bool { return w.r.IntN(n) == 0 }

// delay is mostly short.
func (w *world) delay() time.Duration {
	if w.chance(40) {
		return time.Duration(w.r.IntN(200)) * step
	}
	return time.Duration(w.r.IntN(4)) * step
}

func (w *world) storeMuxes() (list []Mux) {
	for _, m := range w.all {
		if able, is := w.able[m.Name]; is {
			list = append(list, able)
		}
	}
	return list
}

func (w *world) storePuts() (list []Put) { return slices.Collect(maps.Values(w.puts)) }

// toggle has a mux come, with some prefixes, or go.
func (w *world) toggle(name string) {
	if _, is := w.able[name]; is {
		delete(w.able, name)
		return
	}
	m := Mux{Name: name}
	for _, text := range []string{"198.51.100.0/30", "198.51.100.4/31"} {
		if !w.chance(3) {
			m.Prefixes = append(m.Prefixes, netip.MustParsePrefix(text))
		}
	}
	w.able[name], w.puts[name] = m, Put{m, w.puts[name].Count + 1}
}

func (w *world) stepManager(m *managerSim) {
	if w.now < m.still {
		return
	}
	if w.chance(300) { // often for longer than muxes take to come and go
		m.still = w.now + time.Duration(w.r.IntN(400))*step
	}
	clock := epoch.Add(w.now)
	switch {
	case m.answers == 0:
		m.asked = w.now
		m.reads = w.now + w.delay()
		m.answers, m.done = m.reads+w.delay()+step, false
	case w.now >= m.answers:
		if !m.done {
			m.read, m.puts = w.storeMuxes(), w.storePuts() // it stood still
		}
		m.ledger.Confirm(m.read, m.puts, epoch.Add(m.asked), clock)
		m.answers = 0
	}
}

// readStore is what a read finds, when it gets to the store: also of a manager that stands still.
func (w *world) readStore(m *managerSim) {
	if m.answers != 0 && !m.done && w.now >= m.reads {
		m.read, m.puts, m.done = w.storeMuxes(), w.storePuts(), true
	}
}

func (w *world) stepMux(m *muxSim) {
	if m.handles != 0 && m.back == 0 && w.now >= m.handles && w.now >= m.at.still {
		m.grant, m.ok = m.at.ledger.Grant(m.name, epoch.Add(w.now))
		m.back = w.now + w.delay()
	}
	if w.now < m.still {
		return
	}
	if w.chance(300) {
		m.still = w.now + w.delay()*3
	}
	switch {
	case m.handles == 0:
		m.sent, m.at, m.back = w.now, w.managers[w.r.IntN(len(w.managers))], 0
		m.handles = w.now + w.delay() + step
	case m.back != 0 && w.now >= m.back:
		if m.ok {
			known := m.grant.Digest != 0 && m.grant.Digest == m.digest
			m.digest = m.grant.Digest
			m.holder.Renew(m.grant.VIPs, known, m.grant.Lease, m.sent, w.now)
		}
		m.handles = 0
	case w.now-m.sent > 2*time.Second: // it gives up
		m.handles = 0
	}
	m.rows, m.until = m.holder.Held(w.now), m.holder.Until
}

// TestNoTwoMuxesAnswer lets managers, muxes and messages stand still at random while muxes come and go, and wants of each VIP
// one that answers at most.
func TestNoTwoMuxesAnswer(t *testing.T) {
	answered, moves := 0, 0
	for seed := range uint64(60) {
		w := &world{r: rand.New(rand.NewPCG(seed, 1)), vips: vipsOf(5), all: muxesOf(3), able: map[string]Mux{}, puts: map[string]Put{}}
		for range 3 {
			m := &managerSim{}
			m.ledger.SetVIPs(w.vips, epoch)
			w.managers = append(w.managers, m)
		}
		for _, m := range w.all {
			w.able[m.Name], w.puts[m.Name] = m, Put{m, 1}
			w.muxes = append(w.muxes, &muxSim{name: m.Name})
		}
		last := map[netip.Addr]string{}
		for range 20000 {
			w.now += step
			if w.chance(100) {
				name := fmt.Sprintf("mux%d", 1+w.r.IntN(3))
				w.toggle(name)
				if w.chance(4) { // also between two reads
					w.toggle(name)
				}
			}
			for _, m := range w.managers {
				w.readStore(m)
				w.stepManager(m)
			}
			for _, m := range w.muxes {
				w.stepMux(m)
			}
			owners := map[netip.Addr]string{}
			for _, m := range w.muxes {
				if w.now >= m.until {
					continue
				}
				for _, vip := range m.rows {
					if other := owners[vip]; other != "" {
						t.Fatalf("seed %d, after %s: %s and %s answer for %s", seed, w.now, other, m.name, vip)
					}
					owners[vip] = m.name
				}
			}
			for vip, name := range owners {
				if answered++; last[vip] != name {
					last[vip] = name
					moves++
				}
			}
		}
	}
	if answered < 5e5 || moves < 1000 {
		t.Errorf("%d answered and %d moves: the world does too little to show anything", answered, moves)
	}
}

// An owner that goes on renewing answers without a pause.
func TestAnOwnerKeepsItsVIPs(t *testing.T) {
	var l Ledger
	var h Holder
	vips, muxes := vipsOf(3), muxesOf(1)
	l.SetVIPs(vips, epoch)
	digest := uint64(0)
	for now := time.Duration(0); now < 5*time.Second; now += Interval {
		l.Confirm(muxes, []Put{{muxes[0], 1}}, epoch.Add(now), epoch.Add(now+10*time.Millisecond))
		g, ok := l.Grant("mux1", epoch.Add(now+20*time.Millisecond))
		if !ok {
			t.Fatalf("after %s: no lease", now)
		}
		h.Renew(g.VIPs, g.Digest != 0 && g.Digest == digest, g.Lease, now, now+30*time.Millisecond)
		digest = g.Digest
		held := len(h.Held(now + 30*time.Millisecond))
		if want := map[bool]int{true: len(vips), false: 0}[now >= Lease+Margin+10*time.Millisecond]; held != want {
			t.Errorf("after %s it answers for %d VIPs, want %d", now, held, want)
		}
	}
	if digest == 0 {
		t.Error("the VIPs are sent with each lease")
	}
}

// A mux that comes and goes all the time delays no VIP but those that it would own: also not if it has other prefixes.
func TestAFlappingMuxDelaysItsOwnVIPsAlone(t *testing.T) {
	vips := vipsOf(20)
	all, lan := muxesOf(2), netip.MustParsePrefix("198.51.100.0/28")
	for _, prefixes := range [][]netip.Prefix{all[1].Prefixes, {lan}, {netip.MustParsePrefix("203.0.113.0/24")}} {
		var l Ledger
		l.SetVIPs(vips, epoch)
		steady, flaps := all[0], Mux{all[1].Name, prefixes}
		count := int64(0)
		for now := time.Duration(0); now < 3*Lease; now += Interval {
			muxes := []Mux{steady}
			if now/Interval%2 == 1 {
				muxes, count = append(muxes, flaps), count+1
			}
			l.Confirm(muxes, []Put{{steady, 1}, {flaps, count}}, epoch.Add(now), epoch.Add(now+10*time.Millisecond))
		}
		grant, _ := l.Grant(steady.Name, epoch.Add(3*Lease))
		waits := map[netip.Addr]time.Duration{}
		for _, w := range grant.VIPs {
			waits[w.VIP] = w.Wait
		}
		for _, vip := range vips {
			if wait, has := waits[vip]; Owner(vip, []Mux{steady, flaps}) == steady.Name && (!has || wait != 0) {
				t.Errorf("while one with %v comes and goes, %s is waited for: %s", prefixes, vip, wait)
			}
		}
	}
}

// Two reads that show one owner show that it was the owner in between, unless notes were written that may have made another.
func TestAnOwnerThatWasInterruptedWaits(t *testing.T) {
	vip := vipsOf(1)[0]
	all := muxesOf(2)
	owner, other := all[0], all[1] // other: one that comes before it
	if Owner(vip, all) == owner.Name {
		owner, other = other, owner
	}
	elsewhere := Mux{other.Name, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	for what, c := range map[string]struct {
		put   Put
		waits bool
	}{
		"nothing was noted":                        {Put{other, 1}, false},
		"the owner was":                            {Put{owner, 2}, true},
		"one before it was":                        {Put{other, 2}, true},
		"one without the vip was":                  {Put{elsewhere, 2}, false},
		"it was twice, at first maybe with others": {Put{elsewhere, 3}, true},
	} {
		var l Ledger
		l.SetVIPs([]netip.Addr{vip}, epoch)
		l.Confirm([]Mux{owner}, []Put{{owner, 1}, {other, 1}}, epoch, epoch)
		puts := map[string]Put{owner.Name: {owner, 1}, other.Name: {other, 1}}
		puts[c.put.Name] = c.put
		later := epoch.Add(3 * Lease)
		l.Confirm([]Mux{owner}, slices.Collect(maps.Values(puts)), later, later)
		grant, _ := l.Grant(owner.Name, later)
		if waits := grant.VIPs[0].Wait > 0; waits != c.waits {
			t.Errorf("%s: it waits: %v", what, waits)
		}
	}
}
