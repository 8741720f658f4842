package block

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// left is that a range was a workload's until a time.
type left struct {
	workload netip.Addr
	at       time.Duration
}

// world is a host whose agent may be killed at any step: what outlives it are the tables, and what the manager has.
type world struct {
	pool    *Pool
	block   map[model.Range]bool // of the host, by the manager
	reclaim map[model.Range]bool
	tables  map[netip.Addr]map[model.Range]bool
	left    map[model.Range]left
	back    map[model.Range]time.Duration // ranges that the host gave back, and when
	now     time.Duration
}

var workloads = []netip.Addr{
	netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3"), netip.MustParseAddr("fd00::4"),
}

func newWorld() *world {
	w := &world{
		block: map[model.Range]bool{}, reclaim: map[model.Range]bool{}, tables: map[netip.Addr]map[model.Range]bool{},
		left: map[model.Range]left{}, back: map[model.Range]time.Duration{}, now: time.Hour,
	}
	for _, workload := range workloads {
		w.tables[workload] = map[model.Range]bool{}
	}
	w.start()
	return w
}

// start is an agent that starts: it knows the tables, and then what a manager tells.
func (w *world) start() {
	w.pool = &Pool{}
	for _, workload := range workloads {
		w.pool.Adopt(workload, slices.Sorted(maps.Keys(w.tables[workload])))
	}
}

func (w *world) list() {
	w.pool.Replace(slices.Sorted(maps.Keys(w.block)), slices.Sorted(maps.Keys(w.reclaim)), w.now)
}

// apply writes the tables of the first workloads, and says what must not be.
func (w *world) apply(first int) error {
	for _, workload := range workloads[:first] {
		is, _ := w.pool.Of(workload)
		for r := range w.tables[workload] {
			if !slices.Contains(is, r) {
				delete(w.tables[workload], r)
				w.left[r] = left{workload, w.now}
			}
		}
		for _, r := range is {
			if w.tables[workload][r] {
				continue
			}
			last, had := w.left[r]
			if had && last.workload != workload && w.now-last.at < snatport.QuarantineTime {
				return fmt.Errorf("%s has range %d %s after %s", workload, r, w.now-last.at, last.workload)
			}
			for other, ranges := range w.tables {
				if ranges[r] {
					return fmt.Errorf("%s has range %d, which %s has", workload, r, other)
				}
			}
			if !w.block[r] {
				return fmt.Errorf("%s has range %d, which is not the host's", workload, r)
			}
			w.tables[workload][r] = true
		}
	}
	return nil
}

// grant is that the manager gives ranges that have rested there, and whether the agent hears the answer.
func (w *world) grant(n int, heard bool) {
	var given []model.Range
	for r := model.Range(200); r < 220 && len(given) < n; r++ {
		back, was := w.back[r]
		if !w.block[r] && (!was || w.now-back >= snatport.QuarantineTime) {
			given = append(given, r)
			w.block[r] = true
		}
	}
	if heard {
		w.list()
		w.pool.Refresh(given, w.now)
	}
}

// release gives back what the agent offers; the agent may be killed before it hears the answer.
func (w *world) release(t *rapid.T, offered []model.Range, heard bool) {
	for _, r := range offered {
		for workload, ranges := range w.tables {
			if ranges[r] {
				t.Fatalf("range %d is given back, which %s has", r, workload)
			}
		}
		delete(w.block, r)
		delete(w.reclaim, r)
		w.back[r] = w.now
	}
	if heard {
		w.list()
	}
}

// Whatever workloads need, managers give, reclaim and take, and whenever the agent is killed: a range is in one hand, is
// the host's, and rests before another workload has it.
func TestNoRangeIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += time.Duration(rapid.IntRange(0, 70).Draw(t, "seconds")) * time.Second
			workload := rapid.SampledFrom(workloads).Draw(t, "workload")
			n := rapid.IntRange(1, 4).Draw(t, "n")
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0, 1:
				w.pool.Give(workload, n, w.now)
			case 2:
				has := slices.Sorted(maps.Keys(w.tables[workload]))
				w.pool.Return(workload, has[:min(n, len(has))], w.now)
			case 3:
				w.grant(n, rapid.Bool().Draw(t, "heard"))
			case 4:
				w.release(t, w.pool.Offer(n, time.Minute, w.now), rapid.Bool().Draw(t, "heard"))
			case 5:
				for r := range w.block {
					w.reclaim[r] = r%4 == model.Range(n)%4 && !w.reclaim[r]
				}
				maps.DeleteFunc(w.reclaim, func(_ model.Range, is bool) bool { return !is })
				w.list()
			case 6:
				w.list()
			case 7: // killed in the midst of writing
				if err := w.apply(rapid.IntRange(0, len(workloads)).Draw(t, "written")); err != nil {
					t.Fatal(err)
				}
				w.start()
				if rapid.Bool().Draw(t, "connected") {
					w.list()
				}
			}
			if err := w.apply(len(workloads)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What rests longest is given first, and to its last workload at once.
func TestOldestIsGivenFirst(t *testing.T) {
	a, b := workloads[0], workloads[1]
	var p Pool
	const minute = time.Minute
	p.Replace([]model.Range{1, 2, 3}, nil, 0)
	if got := p.Give(a, 3, minute); got != nil {
		t.Errorf("ranges of the first list are given at once: %v", got)
	}
	p.Replace([]model.Range{1, 2, 3, 4}, nil, minute)
	p.Refresh([]model.Range{4}, minute)
	if got := p.Give(a, 3, minute); !slices.Equal(got, []model.Range{4}) {
		t.Errorf("of a fresh one are given %v", got)
	}
	p.Return(a, []model.Range{4}, 2*minute)
	if got := p.Give(b, 4, 3*minute); !slices.Equal(got, []model.Range{1, 2, 3}) {
		t.Errorf("when all but one have rested, another workload has %v", got)
	}
	p.Return(b, []model.Range{2}, 3*minute)
	p.Return(b, []model.Range{1}, 4*minute)
	if got := p.Give(b, 1, 4*minute); !slices.Equal(got, []model.Range{2}) {
		t.Errorf("its own comes back as %v", got)
	}
	p.Return(b, []model.Range{2}, 5*minute)
	p.Refresh([]model.Range{2}, 5*minute)
	if got := p.Give(a, 4, 5*minute); slices.Contains(got, 2) {
		t.Errorf("an answer that calls it fresh ends its rest: %v", got)
	}
	p.Return(a, []model.Range{1, 4}, 5*minute)
	if got := p.Give(a, 2, 10*minute); !slices.Equal(got, []model.Range{4, 1}) && !slices.Equal(got, []model.Range{1, 4}) {
		t.Errorf("the oldest are %v", got)
	}
}

// What tables show as two workloads', which must not be, is the first one's.
func TestOneAdopts(t *testing.T) {
	a, b := workloads[0], workloads[1]
	var p Pool
	p.Adopt(a, []model.Range{1, 2})
	p.Adopt(b, []model.Range{2, 3})
	p.Replace([]model.Range{1, 2, 3}, []model.Range{2}, 0)
	if ranges, reclaim := p.Of(a); !slices.Equal(ranges, []model.Range{1, 2}) || !slices.Equal(reclaim, []model.Range{2}) {
		t.Errorf("the first has %v, of which %v are reclaimed", ranges, reclaim)
	}
	if ranges, _ := p.Of(b); !slices.Equal(ranges, []model.Range{3}) {
		t.Errorf("the second has %v", ranges)
	}
}

// Given back is what the manager reclaims, and what nobody needed for long, but for what is kept.
func TestOffers(t *testing.T) {
	a := workloads[0]
	var p Pool
	ranges := []model.Range{1, 2, 3, 4, 5, 6}
	p.Replace(ranges, nil, 0)
	p.Refresh(ranges, 0)
	p.Give(a, 1, 0)
	if got := p.Offer(2, time.Minute, 59*time.Second); got != nil {
		t.Errorf("offered too early: %v", got)
	}
	if got := p.Offer(2, time.Minute, time.Minute); !slices.Equal(got, []model.Range{4, 5, 6}) {
		t.Errorf("offered are %v", got)
	}
	if got := p.Offer(2, time.Minute, time.Minute); !slices.Equal(got, []model.Range{4, 5, 6}) {
		t.Errorf("without an answer, offered are %v", got)
	}
	if got := p.Give(a, 5, time.Hour); !slices.Equal(got, []model.Range{2, 3}) {
		t.Errorf("what is offered is given: %v", got)
	}
	p.Replace([]model.Range{1, 2, 3}, []model.Range{2}, time.Hour)
	p.Return(a, []model.Range{2, 3}, time.Hour)
	if got := p.Offer(2, time.Minute, time.Hour); !slices.Equal(got, []model.Range{2}) {
		t.Errorf("what is reclaimed is offered as %v", got)
	}
	if all, lent := p.Ranges(); !slices.Equal(all, []model.Range{1, 2, 3}) || lent != 1 {
		t.Errorf("the block is %v, of which %d are lent", all, lent)
	}
}
