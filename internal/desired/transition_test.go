package desired

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

// names says whether the bucket names a slot that it named before.
func names(t Table, bucket uint32) (model.Slot, bool) {
	for _, m := range t.Moves {
		if m.Bucket == bucket {
			return m.From, true
		}
	}
	return 0, false
}

// Backends come, go, drain, change weight and health. A bucket whose move goes on stays, unless its
// backend died; a backend that died is named no more; what moved away from a living one names it; and
// once the moves have ended, one more computation balances the table, and the next changes nothing.
func TestTransitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		var vip model.VIP
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds")) * time.Second)
			vip = drawShop(t)
			for _, b := range vip.Endpoints[0].Backends {
				if rapid.Bool().Draw(t, "reports") {
					w.report(vip, b, rapid.SampledFrom([]model.Health{model.HealthHealthy, model.HealthUnhealthy}).Draw(t, "health"))
				}
			}
			w.ended = Ended{Key(vip, vip.Endpoints[0]): {
				model.Slot(rapid.IntRange(1, 8).Draw(t, "ended slot")): w.now.Add(-time.Duration(rapid.IntRange(0, 3600).Draw(t, "ended before")) * time.Second),
			}}
			old := w.Tables.At(Key(vip, vip.Endpoints[0]))
			checkStep(t, w, vip.Endpoints[0], old, w.apply(vip))
			w.ended = nil
			if again := w.ChangedTables(vip, w.now, nil, w.free); len(again) != 0 {
				t.Fatal("computing again changed the table")
			}
		}
		for range 2 {
			w.end(vip)
			w.apply(vip)
		}
		checkMembers(t, w, vip, w.Tables.At(Key(vip, vip.Endpoints[0])))
		w.end(vip)
		if last := w.apply(vip); len(last.Moves) > 0 {
			t.Fatalf("there are still moves: %v", last.Moves)
		}
	})
}

func checkStep(t *rapid.T, w *world, e model.Endpoint, old, table Table) {
	if table.Closed {
		if !slices.Equal(table.Buckets, old.Buckets) {
			t.Fatalf("a table that nobody uses changed from %v to %v", old.Buckets, table.Buckets)
		}
		return
	}
	if len(old.Buckets) == 0 {
		if len(table.Moves) > 0 {
			t.Fatalf("a table that begins has moves: %v", table.Moves)
		}
		return
	}
	ended, ailing := w.ended[Key(w.VIPs.At("shop"), e)], w.ailing(e, table)
	for i, slot := range table.Buckets {
		at := uint32(i % len(old.Buckets))
		was := old.Buckets[at]
		from, moves := names(table, uint32(i))
		if moves && (table.down(from) || from == slot) {
			t.Fatalf("bucket %d of slot %d names slot %d, which is down or itself", i, slot, from)
		}
		if ailing[slot] {
			t.Fatalf("bucket %d is that of slot %d, which is unhealthy", i, slot)
		}
		if !table.down(was) && was != slot && from != was && !moves {
			t.Fatalf("bucket %d left slot %d, which lives, without naming it", i, was)
		}
		before, moved := names(old, at)
		since := time.Time{}
		if k := slices.IndexFunc(old.Moves, func(m Move) bool { return m.Bucket == at }); k >= 0 {
			since = old.Moves[k].Since
		}
		end, said := ended[before]
		over := !moved || table.down(before) || w.now.Sub(since) >= e.Idle() || said && !since.After(end)
		switch {
		case ailing[was]:
			if want := leaves(was, slot, before, over, ailing); from != want {
				t.Fatalf("bucket %d went to slot %d from %d, which is unhealthy, and names %d, want %d", i, slot, was, from, want)
			}
		case !over && !table.down(was) && slot == before && from == was: // it went back
		case !over && !table.down(was) && (slot != was || from != before):
			t.Fatalf("bucket %d moved from slot %d to %d, or from naming %d to %d, in transition", i, was, slot, before, from)
		case over && slot == was && moves:
			t.Fatalf("bucket %d names slot %d still, which is over", i, from)
		case !over && table.down(was) && slot != before && from != before:
			t.Fatalf("bucket %d, whose slot %d died, forgot slot %d", i, was, before)
		}
	}
}

// leaves is what a bucket names that leaves was, which is unhealthy, for slot: was, or what it named before
// if that is well.
func leaves(was, slot, before model.Slot, over bool, ailing map[model.Slot]bool) model.Slot {
	if over || before == slot || ailing[before] {
		return was
	}
	return before
}

// ailing are the slots that are unhealthy while others are not.
func (w *world) ailing(e model.Endpoint, table Table) map[model.Slot]bool {
	vip := w.VIPs.At("shop")
	all, kept := map[model.Slot]bool{}, e.AllUnhealthy != model.Refuse
	for _, b := range e.Backends {
		health := w.Health.Of(vip, e, b).Health
		kept = kept && (b.Weight == 0 || health == model.HealthUnhealthy || health == model.HealthUnknown)
		all[table.Slots()[b.AddrPort()]] = health == model.HealthUnhealthy
	}
	if kept {
		return nil
	}
	return all
}

// A false alarm: the backend's buckets go elsewhere and name it, and come back when it is well. In between
// one that drains is healthy, and what names it goes on naming it.
func TestAFalseAlarmLosesNothing(t *testing.T) {
	w := newWorld()
	all := []model.Backend{backend(1, 1), backend(2, 1), backend(3, 1)}
	vip := shop(true, all...)
	for _, b := range all {
		w.report(vip, b, model.HealthHealthy)
	}
	before := w.apply(vip)
	w.report(vip, all[0], model.HealthUnhealthy)
	table := w.apply(vip)
	if len(table.Moves) != before.Shares()[1] || table.Shares()[1] != 0 || table.down(1) {
		t.Fatalf("%d buckets name slot 1, want all of its %d", len(table.Moves), before.Shares()[1])
	}
	w.report(vip, all[0], model.HealthHealthy)
	if table = w.apply(vip); len(table.Draining()[1]) > 1 || table.Shares()[1] < 170 {
		t.Errorf("slot 1 has %d buckets, and %d of those that it had are elsewhere", table.Shares()[1], len(table.Draining()[1]))
	}

	w.end(vip)
	before = w.apply(vip)
	w.ended = nil
	drained := shop(true, backend(1, 0), all[1], all[2])
	w.apply(drained)
	w.report(vip, all[1], model.HealthUnhealthy)
	for i, slot := range w.apply(drained).Buckets {
		from, moves := names(w.Tables.At(Key(vip, vip.Endpoints[0])), uint32(i))
		if before.Buckets[i] != 3 && (slot != 3 || from != before.Buckets[i] || !moves) {
			t.Fatalf("bucket %d of slot %d is now that of %d and names %d", i, before.Buckets[i], slot, from)
		}
	}
}

// While nobody takes new connections, muxes have no buckets; what they named is known when somebody does.
func TestAClosedTableRemembers(t *testing.T) {
	for name, closed := range map[string]model.VIP{
		"all drain":     shop(false, backend(1, 0), backend(2, 0)),
		"all unhealthy": shop(true, backend(1, 1), backend(2, 1)),
	} {
		w := newWorld()
		open := shop(false, backend(1, 1), backend(2, 1))
		closed.Endpoints[0].AllUnhealthy = model.Refuse
		before := w.apply(open)
		for _, b := range closed.Endpoints[0].Backends {
			w.report(closed, b, model.HealthUnhealthy)
		}
		if table := w.apply(closed); len(table.MuxBuckets()) != 0 || table.down(1) || table.down(2) || len(table.Shares()) != 0 {
			t.Errorf("%s: the table is %+v", name, table)
		}
		// c replaces b: what b had names it, and nothing else moves.
		table := w.apply(shop(false, backend(1, 1), backend(2, 0), backend(3, 1)))
		for i, slot := range table.Buckets {
			if from, _ := names(table, uint32(i)); from != before.Buckets[i&255] && slot != before.Buckets[i&255] {
				t.Fatalf("%s: bucket %d went from %d to %d and names %d", name, i, before.Buckets[i], slot, from)
			}
		}
		if table.Closed || len(table.MuxBuckets()) == 0 {
			t.Errorf("%s: it is still closed", name)
		}
	}
}

func TestABucketNamesThePreviousBackendUntilItEnds(t *testing.T) {
	w := newWorld()
	a, b, c := backend(1, 1), backend(2, 1), backend(3, 1)
	w.apply(shop(false, a))
	table := w.apply(shop(false, a, b))
	if len(table.Moves) != 128 || table.Moves[0].From != 1 || !table.Moves[0].Since.Equal(start) {
		t.Fatalf("the moves are %v, want half of the buckets away from slot 1", table.Moves)
	}
	// What moved a moment ago goes back or stays, so c gets the rest of its third from a.
	w.now = start.Add(time.Second)
	vip := shop(false, a, b, c)
	before := table
	table = w.apply(vip)
	for _, m := range before.Moves {
		for _, i := range []uint32{m.Bucket, m.Bucket + 256} {
			if slot := table.Buckets[i]; slot == 3 {
				t.Fatalf("bucket %d went on to slot 3 in the middle of a move from 1 to 2", i)
			}
		}
	}
	if n := waitingBuckets(&w.State, vip, vip.Endpoints[0], table); n > 3 {
		t.Errorf("%d buckets wait, want next to none", n)
	}
	// With a and b drained, what moved between them can't go to c until that has ended.
	vip = shop(false, backend(1, 0), backend(2, 0), c)
	table = w.apply(vip)
	held, n := table.Shares()[1]+table.Shares()[2], waitingBuckets(&w.State, vip, vip.Endpoints[0], table)
	if held < 170 || n != held {
		t.Errorf("slots 1 and 2 keep %d buckets, and %d wait", held, n)
	}
	w.end(vip)
	table = w.apply(vip)
	if shares := table.Shares(); shares[3] != 512 || len(table.Draining()[1])+len(table.Draining()[2]) != held {
		t.Errorf("slot 3 has %d buckets, and %d were draining now", shares[3], len(table.Draining()[1])+len(table.Draining()[2]))
	}
	// The idle bound ends all.
	w.ended, w.now = nil, w.now.Add(model.DefaultIdleTCP)
	if table = w.apply(vip); len(table.Moves) != 0 {
		t.Errorf("%d moves go on after the bound", len(table.Moves))
	}
}

// Backends of a new endpoint become healthy one after another; the first gets all buckets for a
// moment. None of them has to wait for its share.
func TestBucketsGoBackAtOnce(t *testing.T) {
	w := newWorld()
	all := []model.Backend{backend(1, 1), backend(2, 1), backend(3, 1)}
	vip := shop(true, all...)
	w.apply(vip)
	var table Table
	for _, b := range all {
		w.now = w.now.Add(time.Millisecond)
		w.report(vip, b, model.HealthHealthy)
		table = w.apply(vip)
	}
	if shares := table.Shares(); shares[1]+shares[2] < 340 || shares[1]+shares[2] > 343 || shares[1]-shares[2] > 3 || shares[2]-shares[1] > 3 {
		t.Errorf("shares are %v, want a third of 512 each", shares)
	}
	if n := waitingBuckets(&w.State, vip, vip.Endpoints[0], table); n != 0 {
		t.Errorf("%d buckets wait", n)
	}
}

// A backend that drains in the middle of moves to it takes no new connection, if those that had its
// buckets before can.
func TestDrainingDoesNotWait(t *testing.T) {
	w := newWorld()
	a, b, c := backend(1, 1), backend(2, 1), backend(3, 1)
	w.apply(shop(false, a, b))
	w.apply(shop(false, a, b, c))
	if table := w.apply(shop(false, a, b, backend(3, 0))); table.Shares()[3] != 0 {
		t.Errorf("it has %d buckets", table.Shares()[3])
	}
	table := w.apply(shop(false, a, backend(2, 0), backend(3, 0)))
	if n := table.Shares()[2] + table.Shares()[3]; n > 86 { // those that moved between b and c
		t.Errorf("two that drain have %d buckets", n)
	}
}

func TestTheDeadAreNotNamed(t *testing.T) {
	w := newWorld()
	a, b, c := backend(1, 1), backend(2, 1), backend(3, 1)
	w.apply(shop(false, a))
	w.apply(shop(false, a, b))
	table := w.apply(shop(false, a, c)) // b is removed: its half goes to a, where it came from, and c
	for _, m := range table.Moves {
		if m.From != 1 {
			t.Fatalf("bucket %d names slot %d, want 1 only", m.Bucket, m.From)
		}
	}
	if len(table.Moves) == 0 {
		t.Error("what moved from a over b to c forgot a")
	}
	if table = w.apply(shop(false, c)); len(table.Moves) != 0 {
		t.Errorf("%v name a, which was removed", table.Moves)
	}
}

func TestATableThatDoublesKeepsWhatItNames(t *testing.T) {
	w := newWorld()
	w.apply(shop(false, backend(1, 1)))
	old := w.apply(shop(false, backend(1, 1), backend(2, 1)))
	table := w.apply(shop(false, backend(1, 1), backend(2, 1), backend(3, 0), backend(4, 1)))
	if len(table.Buckets) != 2*len(old.Buckets) {
		t.Fatalf("the table has %d buckets, want twice %d", len(table.Buckets), len(old.Buckets))
	}
	for _, m := range old.Moves {
		pair := []model.Slot{m.From, old.Buckets[m.Bucket]}
		for _, i := range []uint32{m.Bucket, m.Bucket + uint32(len(old.Buckets))} {
			from, _ := names(table, i)
			if !slices.Contains(pair, from) || !slices.Contains(pair, table.Buckets[i]) || from == table.Buckets[i] {
				t.Fatalf("bucket %d names %d and %d, want %v in some order", i, table.Buckets[i], from, pair)
			}
		}
	}
}

func TestCookiesSettle(t *testing.T) {
	w := newWorld()
	vip := shop(false, backend(1, 1))
	expect := func(want model.Cookies) {
		t.Helper()
		if table := w.apply(vip); table.Cookies != want {
			t.Errorf("cookies are %s, want %s", table.Cookies, want)
		}
	}
	expect(model.CookiesOn) // nothing is older than the endpoint
	vip.Consistency = model.ConsistencyFlowTable
	expect(model.CookiesOff)
	vip.Consistency = model.ConsistencyAuto
	expect(model.CookiesSettling)
	w.now = w.now.Add(model.DefaultIdleTCP - time.Second)
	expect(model.CookiesSettling)
	w.now = w.now.Add(time.Second)
	expect(model.CookiesOn)

	key := Key(vip, vip.Endpoints[0])
	before := w.Tables.At(key)
	before.Cookies = "" // as managers wrote tables before there were cookies
	w.Tables.Set(key, before)
	expect(model.CookiesSettling)

	udp := shop(false, backend(1, 1))
	udp.Endpoints[0].Protocol = model.UDP
	if table := w.apply(udp); table.Cookies != model.CookiesOff {
		t.Errorf("UDP has cookies: %s", table.Cookies)
	}
}
