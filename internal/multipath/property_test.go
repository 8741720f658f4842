package multipath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

var endpoint = model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}

// host has one backend of the endpoint.
type host struct {
	tunnel netip.Addr
	homes  *Homes // by its own table, which may be of another time than others'
	tokens map[Token]bool
	names  *Directory
	dead   bool
}

// world is the endpoint's hosts. Each of its rules can be left out, as a control.
type world struct {
	*rand.Rand
	hosts   []*host
	now     time.Duration
	holders map[Token][]*host // of live connections; more than one: equal tokens
	guess   bool              // control: hosts deliver what nobody knows
	single  bool              // control: there is no second home
}

func tunnelAt(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 7, byte(n >> 8), byte(n)}) }

func newWorld(seed uint64, hosts int) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), holders: map[Token][]*host{}}
	for range hosts {
		w.add()
	}
	w.spread()
	return w
}

func (w *world) add() {
	w.hosts = append(w.hosts, &host{
		tunnel: tunnelAt(len(w.hosts) + 1), homes: &Homes{}, tokens: map[Token]bool{},
		names: NewDirectory(func(netip.Addr) int { return 1 << 16 }),
	})
}

func (w *world) live() (all []netip.Addr) {
	for _, h := range w.hosts {
		if !h.dead {
			all = append(all, h.tunnel)
		}
	}
	return all
}

// spread has all hosts hear who is there, and tell their tokens to homes that are new to them.
func (w *world) spread() {
	for _, h := range w.hosts {
		h.homes = HomesOf(w.live())
	}
	for _, h := range w.hosts {
		w.refresh(h)
	}
}

func (w *world) at(tunnel netip.Addr) *host {
	at := slices.IndexFunc(w.hosts, func(h *host) bool { return h.tunnel == tunnel && !h.dead })
	if at < 0 {
		return nil
	}
	return w.hosts[at]
}

func (w *world) refresh(h *host) {
	if !h.dead {
		for token := range h.tokens {
			w.tell(h, token)
		}
	}
}

func (w *world) tell(h *host, token Token) {
	for i, home := range h.homes[token.Cell()] {
		if to := w.at(home); to != nil && (i == 0 || !w.single) {
			to.names.Note(Name{endpoint, token}, h.tunnel, w.now)
		}
	}
}

// begin begins a connection; told: its first messages arrive.
func (w *world) begin(h *host, token Token, told bool) {
	h.tokens[token] = true
	w.holders[token] = append(w.holders[token], h)
	if told {
		w.tell(h, token)
	}
}

// join sends a SYN to a host, and returns who delivers it; nil: nobody.
func (w *world) join(t *rapid.T, first *host, token Token) *host {
	step := StepNone
	for at, hops := first, 0; at != nil; hops++ {
		if hops > 3 {
			t.Fatalf("%d hops", hops)
		}
		here := func(a netip.Addr) bool { return a == at.tunnel }
		arrival := Arrival{Tunnel: at.tunnel, Homes: at.homes[token.Cell()], Named: at.names.Find(Name{endpoint, token}, w.now), Here: here}
		if at.tokens[token] {
			arrival.Own = at.tunnel
		}
		d := Join(step, arrival)
		switch {
		case d.Verdict == Deliver, d.Verdict == DropUnknown && w.guess:
			return at
		case d.Verdict == DropUnknown:
			return nil
		case d.Step <= step:
			t.Fatalf("step %d after %d", d.Step, step)
		}
		at, step = w.at(d.To), d.Step
	}
	return nil
}

// event changes the hosts, which hear of it at times of their own.
func (w *world) event(t *rapid.T) {
	living := w.live()
	switch h := w.hosts[w.IntN(len(w.hosts))]; rapid.IntRange(0, 5).Draw(t, "event") {
	case 0:
		w.add()
	case 1:
		if len(living) > 3 {
			h.dead = true
			for token, holders := range w.holders {
				w.holders[token] = slices.DeleteFunc(holders, func(other *host) bool { return other == h })
			}
		}
	case 2: // one hears of what has been, and tells its tokens
		h.homes = HomesOf(living)
		w.refresh(h)
	case 3:
		w.now += time.Minute
	case 4:
		for _, each := range w.hosts {
			w.refresh(each)
			each.names.Sweep(w.now)
		}
	case 5: // a row is evicted
		h.names = NewDirectory(func(netip.Addr) int { return 1 << 16 })
	}
}

// check joins each connection at some hosts: whoever delivers has it. Reached are all that must be.
func (w *world) check(t *rapid.T, all bool) {
	for token, holders := range w.holders {
		for range 3 {
			first := w.at(w.live()[w.IntN(len(w.live()))])
			got := w.join(t, first, token)
			switch {
			case got == nil && (all && len(holders) > 0):
				t.Fatalf("token %08x reaches nobody from %s", token, first.tunnel)
			case got != nil && !got.tokens[token]:
				t.Fatalf("token %08x is delivered at %s, which does not have it", token, got.tunnel)
			}
		}
	}
}

// run is a bad day: hosts come and go, messages get lost, tables are of several times.
func (w *world) run(t *rapid.T) {
	for range 60 {
		h := w.at(w.live()[w.IntN(len(w.live()))])
		w.begin(h, Token(w.Uint32()), w.IntN(4) > 0)
		w.event(t)
		w.check(t, false)
	}
	w.spread()
	w.check(t, true)
}

// TestAJoinReachesItsHostOrNobody has no join be delivered where its connection is not, whatever happens, and all of them
// arrive once hosts agree.
func TestAJoinReachesItsHostOrNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 9).Draw(t, "hosts")).run(t)
	})
}

// TestOneHostComesOrGoes has all joins arrive while one host is new, or is gone, and nobody has told its tokens anew.
func TestOneHostComesOrGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(3, 9).Draw(t, "hosts"))
		for range 200 {
			w.begin(w.hosts[w.IntN(len(w.hosts))], Token(w.Uint32()), true)
		}
		if rapid.Bool().Draw(t, "comes") {
			w.add()
		} else {
			gone := w.hosts[0]
			gone.dead = true
			for token := range gone.tokens {
				delete(w.holders, token)
			}
		}
		for _, h := range w.hosts {
			h.homes = HomesOf(w.live())
		}
		w.check(t, true)
	})
}

// TestControls has the simulation find what is wrong where a rule is left out.
func TestControls(t *testing.T) {
	guessed, lost := 0, 0
	for seed := range uint64(20) {
		w := newWorld(seed, 5)
		w.guess = true
		token := Token(w.Uint32())
		w.begin(w.hosts[0], token, false)
		if got := w.join(nil, w.hosts[1], token); got != nil && !got.tokens[token] {
			guessed++
		}
		w = newWorld(seed, 5)
		w.single = true
		w.begin(w.hosts[0], token, true)
		gone := w.hosts[0].homes[token.Cell()][0]
		if gone == w.hosts[0].tunnel {
			continue
		}
		w.at(gone).dead = true
		for _, h := range w.hosts {
			h.homes = HomesOf(w.live())
		}
		first := slices.IndexFunc(w.hosts, func(h *host) bool { return !h.dead && !h.tokens[token] })
		if w.join(nil, w.hosts[first], token) == nil {
			lost++
		}
	}
	if guessed == 0 || lost == 0 {
		t.Errorf("guesses delivered wrongly: %d, joins lost without a second home: %d", guessed, lost)
	}
}

// TestHomesMoveLittle has the homes of a cell change only where the host that comes or goes is one of them, and spread evenly.
func TestHomesMoveLittle(t *testing.T) {
	hosts := make([]netip.Addr, 9)
	for i := range hosts {
		hosts[i] = tunnelAt(i + 1)
	}
	all, less := HomesOf(hosts), HomesOf(hosts[1:])
	first := map[netip.Addr]int{}
	for cell := range all {
		first[all[cell][0]]++
		if all[cell][0] == all[cell][1] {
			t.Fatalf("cell %d has one home twice", cell)
		}
		switch hosts[0] {
		case all[cell][0]:
			if less[cell][0] != all[cell][1] {
				t.Errorf("cell %d: the second home did not become the first", cell)
			}
		case all[cell][1]:
			if less[cell][0] != all[cell][0] {
				t.Errorf("cell %d: the first home moved", cell)
			}
		default:
			if less[cell] != all[cell] {
				t.Errorf("cell %d moved", cell)
			}
		}
	}
	for _, host := range hosts {
		if n := first[host]; n < 10 || n > 60 {
			t.Errorf("%s is the first home of %d cells of %d", host, n, Cells)
		}
	}
	slices.Reverse(hosts)
	if *HomesOf(hosts) != *all {
		t.Error("homes depend on the order of hosts")
	}
	if one := HomesOf(hosts[:1]); one[7] != [2]netip.Addr{hosts[0]} {
		t.Errorf("homes of one host are %v", one[7])
	}
}

// TestTokenOf compares with sha256sum.
func TestTokenOf(t *testing.T) {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], 0x0102030405060708)
	if got := TokenOf(key); got != 0x66840dda { // first 32 bits of SHA-256
		t.Errorf("token is %08x", got)
	}
}

// TestDirectoryKeepsTheFirst has a row outlive another's claim, and end by age; and the VIP's limit hold.
func TestDirectoryKeepsTheFirst(t *testing.T) {
	d := NewDirectory(func(netip.Addr) int { return 2 })
	a, b, name := tunnelAt(1), tunnelAt(2), Name{endpoint, 7}
	for i, c := range []struct {
		name   Name
		tunnel netip.Addr
		at     time.Duration
		want   Noted
		found  netip.Addr
	}{
		{name, a, 0, NotedNew, a},
		{name, b, time.Minute, NotedConflict, a},
		{name, a, 2 * time.Minute, NotedAgain, a},
		{name, b, NameLife + time.Minute, NotedConflict, a},
		{name, b, NameLife + 2*time.Minute, NotedNew, b},
		{Name{endpoint, 8}, a, 0, NotedNew, a},
		{Name{endpoint, 9}, a, 0, NotedFull, netip.Addr{}},
	} {
		if got, found := d.Note(c.name, c.tunnel, c.at), d.Find(c.name, c.at); got != c.want || found != c.found {
			t.Errorf("%d: %s, found %s", i, got, found)
		}
	}
	d.Sweep(NameLife + time.Minute)
	if d.Len() != 1 {
		t.Errorf("%d rows are left", d.Len())
	}
}
