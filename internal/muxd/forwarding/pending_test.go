package forwarding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// listOf has the addresses of numbers, of IPv4 those that are even.
func listOf(name string, numbers ...int) model.MuxPrefixList {
	var all []netip.Prefix
	for _, n := range numbers {
		a := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		if n%2 == 1 {
			a = netip.AddrFrom16([16]byte{0x20, 1, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
		}
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return model.MuxPrefixList{Name: name, Prefixes: model.NewPrefixSet(all)}
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// naming is the endpoint with deny lists.
func naming(e model.MuxEndpoint, lists ...string) model.MuxEndpoint {
	e.DenyLists = lists
	return e
}

// write writes what waits, and says whether it is all.
func (b *bench) write() bool {
	w := newWriter(b.state)
	done := w.write(b.t.Context())
	if w.err != nil {
		b.t.Error(w.err)
	}
	return done
}

func (b *bench) runs(generation, ahead model.Generation) {
	b.t.Helper()
	if g, a, rejected := b.state.Generations(); g != generation || a != ahead || rejected != nil {
		b.t.Errorf("generation %d runs, %d but for what waits, refused is %+v; want %d and %d",
			g, a, rejected, generation, ahead)
	}
}

// newListBench writes four prefixes at once.
func newListBench(t *testing.T, live ...model.MuxEndpoint) *bench {
	b := newBench(t, live...)
	b.state.piece = 4
	b.datapath.room = 1000
	b.state.SetNextHops(resolved("10.2.0.1"))
	b.take()
	return b
}

// A long list is written in pieces, between which other updates are in force; the endpoint that comes to name it waits
// for all of it, and what is gone goes after that.
func TestLongListsAreWrittenInPieces(t *testing.T) {
	b := newListBench(t, newEndpoint(key(10), "10.2.0.1"), newEndpoint(key(12), "10.2.0.1"))
	b.must(wire.MuxUpdate{
		Generation: 8, Lists: []model.MuxPrefixList{listOf("old", 1, 2, 3)},
		Endpoints: []model.MuxEndpoint{naming(newEndpoint(key(10), "10.2.0.1"), "old")},
	})
	b.did("apply +1 -0", "list old has 3", "generation 8")
	b.runs(8, 8)

	b.must(wire.MuxUpdate{
		Generation: 9, Lists: []model.MuxPrefixList{listOf("blocked", upTo(9)...)}, ListsRemoved: []string{"old"},
		Endpoints: []model.MuxEndpoint{naming(newEndpoint(key(10), "10.2.0.1"), "blocked"), newEndpoint(key(11), "10.2.0.1")},
	})
	b.did("apply +1 -0", "announce [203.0.113.10/32 203.0.113.11/32 203.0.113.12/32]")
	b.runs(8, 9)
	b.must(wire.MuxUpdate{
		Generation: 10, Removed: []model.EndpointKey{key(12)}, Lists: []model.MuxPrefixList{listOf("other", 7)},
	})
	b.did("announce [203.0.113.10/32 203.0.113.11/32]", "apply +0 -1")
	b.runs(8, 10)
	if got := b.state.SNAT().GetGeneration(); got != 10 {
		t.Errorf("source NAT is said to be of generation %d, want that of the tables", got)
	}
	if !b.write() {
		t.Error("something still waits")
	}
	b.did("apply +0 -0", "list blocked has 4", "apply +0 -0", "list blocked has 8", "apply +0 -0", "list blocked has 9",
		"apply +0 -0", "list blocked has 9", "apply +0 -0", "list other has 1", "apply +0 -0", "list other has 1",
		"apply +1 -0", "apply +0 -0", "list old has 0", "apply +0 -0", "list old goes", "generation 10")
	b.runs(10, 10)
}

// A list that the table has no room for is refused with its update, and changes nothing.
func TestNoRoomForALongList(t *testing.T) {
	b := newListBench(t, newEndpoint(key(10), "10.2.0.1"))
	b.datapath.room, b.datapath.full = 8, errors.New("no room in table sources")
	update := wire.MuxUpdate{Generation: 9, Lists: []model.MuxPrefixList{listOf("blocked", upTo(9)...)}}
	if err := b.apply(update); !errors.Is(err, b.datapath.full) {
		t.Errorf("error %v", err)
	}
	if g, ahead, rejected := b.state.Generations(); g != 7 || ahead != 7 || rejected == nil || rejected.Generation != 9 {
		t.Errorf("generation %d, %d, refused %+v", g, ahead, rejected)
	}
}

// Lists that can't be written are told, and tried again.
func TestLongListThatFails(t *testing.T) {
	b := newListBench(t, newEndpoint(key(10), "10.2.0.1"))
	b.must(wire.MuxUpdate{Generation: 9, Lists: []model.MuxPrefixList{listOf("blocked", upTo(9)...)}})
	b.datapath.full = errors.New("no memory")
	w := newWriter(b.state)
	if w.write(t.Context()) || !errors.Is(w.err, b.datapath.full) {
		t.Errorf("error %v", w.err)
	}
	g, ahead, rejected := b.state.Generations()
	if g != 7 || ahead != 9 || rejected == nil || rejected.Generation != 9 || rejected.Reason != "no memory" {
		t.Errorf("generation %d, %d, refused %+v", g, ahead, rejected)
	}
	b.datapath.full = nil
	if !b.write() {
		t.Error("something still waits")
	}
	b.runs(9, 9)
	// What failed before a snapshot says nothing of that.
	b.must(wire.MuxUpdate{Generation: 10, Lists: []model.MuxPrefixList{listOf("blocked", upTo(20)...)}})
	b.datapath.full = errors.New("no memory")
	newWriter(b.state).write(t.Context())
	b.datapath.full = nil
	b.must(wire.MuxUpdate{Generation: 11, Snapshot: true})
	b.runs(11, 11)
}

// What waits is written without being asked to, and who tells the manager hears when it is whole, or can't be.
func TestListsAreWrittenBeside(t *testing.T) {
	b := newListBench(t, newEndpoint(key(10), "10.2.0.1"))
	whole, refused := make(chan struct{}, 1), make(chan struct{}, 1)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.state.WriteLists(ctx, func() { whole <- struct{}{} }, func() { refused <- struct{}{} })
	}()
	b.must(wire.MuxUpdate{Generation: 9, Lists: []model.MuxPrefixList{listOf("blocked", upTo(9)...)}})
	<-whole
	b.runs(9, 9)
	b.state.mu.Lock()
	b.datapath.full = errors.New("no memory")
	b.state.mu.Unlock()
	next := wire.MuxUpdate{Generation: 10, Lists: []model.MuxPrefixList{listOf("blocked", upTo(30)...)}}
	b.state.mu.Lock()
	_, b.state.pending = b.state.pending.split(next, b.datapath, 4)
	b.state.generations.ahead = 10
	b.state.mu.Unlock()
	b.state.fill.Set()
	<-refused
	if _, _, rejected := b.state.Generations(); rejected == nil || rejected.Generation != 10 {
		t.Errorf("refused is %+v", rejected)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A snapshot takes the place of what waits.
func TestSnapshotDoesNotWait(t *testing.T) {
	b := newListBench(t, newEndpoint(key(10), "10.2.0.1"))
	b.must(wire.MuxUpdate{Generation: 9, Lists: []model.MuxPrefixList{listOf("blocked", upTo(9)...)}})
	stale := newWriter(b.state)
	whole := snapshot(10, naming(newEndpoint(key(10), "10.2.0.1"), "blocked"))
	whole.Lists = []model.MuxPrefixList{listOf("blocked", upTo(12)...)}
	b.must(whole)
	b.runs(10, 10)
	b.take()
	if stale.write(t.Context()) || stale.err != nil {
		t.Errorf("it went on: %v", stale.err)
	}
	b.did()
}

func (b *bench) must(update wire.MuxUpdate) {
	b.t.Helper()
	if err := b.apply(update); err != nil {
		b.t.Fatal(err)
	}
}

// interrupted does something before each step.
type interrupted struct {
	context.Context

	step func()
}

func (i *interrupted) Err() error {
	i.step()
	return nil
}

// order makes random updates, and knows what they say.
type order struct {
	*bench

	r         *rand.Rand
	history   []map[string]model.PrefixSet // lists by update; what an endpoint is of is its tenant
	endpoints map[model.EndpointKey]model.MuxEndpoint
}

// holds holds that each endpoint has of its lists what was in them at each update since its own.
func (o *order) holds() {
	o.datapath.mu.Lock()
	defer o.datapath.mu.Unlock()
	for _, e := range o.datapath.endpoints {
		var since int
		if _, err := fmt.Sscan(e.Tenant, &since); err != nil {
			o.t.Fatal(err)
		}
		for _, name := range e.DenyLists {
			has, there := o.datapath.lists[name]
			all := o.history[since][name]
			for _, at := range o.history[since:] {
				all = all.Change(nil, all.Minus(at[name]))
			}
			if lacks := all.Minus(has); !there || len(lacks) > 0 {
				o.t.Fatalf("endpoint %s of update %d runs without %v of list %s, which is there: %t",
					e.Key, since, lacks, name, there)
			}
		}
	}
}

// next makes an update.
func (o *order) next() {
	update := wire.MuxUpdate{Generation: model.Generation(7 + len(o.history))}
	for n := range byte(4) {
		if o.r.IntN(3) > 0 {
			continue
		}
		e := newEndpoint(key(10+n), "10.2.0.1")
		e.Tenant = fmt.Sprint(len(o.history))
		for _, name := range []string{"a", "b", "c"} {
			if o.r.IntN(2) == 0 {
				e.DenyLists = append(e.DenyLists, name)
			}
		}
		if delete(o.endpoints, e.Key); o.r.IntN(4) == 0 {
			update.Removed = append(update.Removed, e.Key)
			continue
		}
		o.endpoints[e.Key] = e
		update.Endpoints = append(update.Endpoints, e)
	}
	o.history = append(o.history, o.lists(&update))
	o.must(update)
	o.holds()
}

// lists are those that endpoints name now. The update gets those that differ.
func (o *order) lists(update *wire.MuxUpdate) map[string]model.PrefixSet {
	lists, before := map[string]model.PrefixSet{}, o.history[len(o.history)-1]
	for _, name := range []string{"a", "b", "c"} {
		was, had := before[name]
		named := false
		for _, e := range o.endpoints {
			named = named || slices.Contains(e.DenyLists, name)
		}
		switch {
		case named && (!had || o.r.IntN(3) == 0):
			list := listOf(name, slices.DeleteFunc(upTo(24), func(int) bool { return o.r.IntN(2) == 0 })...)
			lists[name] = list.Prefixes
			update.Lists = append(update.Lists, list)
		case named:
			lists[name] = was
		case had:
			update.ListsRemoved = append(update.ListsRemoved, name)
		}
	}
	return lists
}

func samePrefixes(a, b model.PrefixSet) bool { return len(a.Minus(b))+len(b.Minus(a)) == 0 }

// TestWaitingKeepsOrder makes random updates before and while lists are written. In the end all is as they say.
func TestWaitingKeepsOrder(t *testing.T) {
	for seed := range uint64(60) {
		o := &order{
			bench: newListBench(t), r: rand.New(rand.NewPCG(seed, 1)), history: []map[string]model.PrefixSet{{}},
			endpoints: map[model.EndpointKey]model.MuxEndpoint{},
		}
		ctx := &interrupted{Context: t.Context(), step: func() {
			if o.holds(); len(o.history) < 40 && o.r.IntN(6) == 0 {
				o.next()
			}
		}}
		for len(o.history) < 40 {
			o.next()
			newWriter(o.state).write(ctx)
		}
		for newWriter(o.state).pending.any() {
			o.write()
		}
		o.runs(46, 46)
		if last := o.history[39]; !maps.EqualFunc(o.datapath.lists, last, samePrefixes) {
			t.Fatalf("seed %d: lists %v, want %v", seed, o.datapath.lists, last)
		}
		if !maps.EqualFunc(o.datapath.endpoints, o.endpoints, model.MuxEndpoint.Equal) {
			t.Fatalf("seed %d: endpoints %v, want %v", seed, o.datapath.endpoints, o.endpoints)
		}
	}
}
