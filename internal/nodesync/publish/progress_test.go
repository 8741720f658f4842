package publish

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// pool is a State with muxes that are connected, at generation 20.
func poolOf(names ...string) (*store.State, []model.PoolMember) {
	s := &store.State{Generation: 20}
	for i, name := range names {
		address := netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)})
		s.PutNode(model.Node{Name: name, Role: model.RoleMux, Addresses: []netip.Addr{address}})
		s.Streams.Set(name, true)
	}
	return s, members(s)
}

// Who waits for a generation goes on when the last healthy mux has answered it, whoever holds its stream.
func TestAwaitMuxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgress()
		s, pool := poolOf("here", "there", "stored", "joins")
		s.Status.Set("stored", nodestatus.Status{Generation: 12})
		has := func(here, there model.Generation) {
			p.set(progress.Nodes{Muxes: map[string]progress.Mux{"here": {Runs: here, Answered: here}, "joins": {Joins: true}}}, true)
			p.setOther("m2", &progress.Nodes{Muxes: map[string]progress.Mux{"there": {Runs: 9, Answered: there}}})
			p.findFloor(s, pool)
		}
		has(10, 10)
		reached := make(chan error, 1)
		go func() { reached <- p.Await(t.Context(), 12) }()
		for _, step := range []struct {
			here, there model.Generation
			done        bool
		}{{12, 10, false}, {13, 11, false}, {13, 12, true}} {
			has(step.here, step.there)
			synctest.Wait()
			if done := len(reached) == 1; done != step.done {
				t.Errorf("with %d here and %d there: done %v", step.here, step.there, done)
			}
		}

		// One whose stream breaks is known by the store again, and does not count once it is gone.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { reached <- p.Await(ctx, 13) }()
		<-reached
		p.setOther("m2", nil)
		s.Status.Set("stored", nodestatus.Status{Generation: 12, Rejected: 14})
		p.findFloor(s, pool)
		synctest.Wait()
		if len(reached) != 0 {
			t.Fatal("done without a word of there")
		}
		s = s.Clone()
		s.Streams.Delete("there")
		p.findFloor(s, members(s))
		if err := <-reached; err != nil {
			t.Errorf("without there: %v", err)
		}
		cancel()
		if err := p.Await(ctx, 99); err == nil || len(p.waiting) != 0 {
			t.Errorf("who gave up: %v, and %d wait", err, len(p.waiting))
		}
	})
}

// Other managers hear at once of hosts that muxes may wait for, and the leader of muxes when the slowest of them is
// farther; the rest can wait.
func TestWhatCanWaitIsToldSoon(t *testing.T) {
	two := func(floor, other model.Generation, joins bool) progress.Nodes {
		return progress.Nodes{Floor: floor, Muxes: map[string]progress.Mux{"mux1": {Answered: floor}, "mux2": {Answered: other, Joins: joins}}}
	}
	for _, c := range []struct {
		name    string
		before  progress.Nodes
		own     progress.Nodes
		awaited bool
		leader  bool
		wait    time.Duration
	}{
		{"hosts that muxes wait for", progress.Nodes{}, progress.Nodes{HostsReady: 2}, true, false, 0},
		{"hosts that nobody waits for", progress.Nodes{}, progress.Nodes{HostsReady: 2}, false, false, progress.Lazy},
		{"the same, to the leader", progress.Nodes{}, progress.Nodes{HostsReady: 2}, false, true, progress.Lazy},
		{"muxes", two(1, 1, false), two(2, 2, false), false, false, progress.Lazy},
		{"muxes, to the leader", two(1, 1, false), two(2, 2, false), false, true, 0},
		{"one of two muxes, to the leader", two(1, 1, false), two(1, 2, false), false, true, progress.Lazy},
		{"a mux more, to the leader", progress.Nodes{Floor: 1, Muxes: map[string]progress.Mux{"mux1": {Answered: 1}}}, two(1, 1, false), false, true, 0},
		{"a mux that joined, to the leader", two(1, 1, true), two(1, 1, false), false, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProgress()
			p.set(c.before, false)
			_, next := p.get()
			p.set(c.own, c.awaited)
			begun := time.Now()
			if stopped, err := next.Await(t.Context(), c.leader, nil); stopped || err != nil {
				t.Error(stopped, err)
			}
			if took := time.Since(begun); took != c.wait {
				t.Errorf("%s: told after %s, want %s", c.name, took, c.wait)
			}
		})
	}
}

// What other managers say of their hosts goes before what the store has, where they say more.
func TestHostsReady(t *testing.T) {
	p := newProgress()
	s := &store.State{Ready: sorted.Of(map[string]model.Generation{"self": 1, "old": 5, "quick": 5, "empty": 5, "slow": 5})}
	p.set(progress.Nodes{Notes: "self"}, true)
	p.setOther("m2", &progress.Nodes{Notes: "quick", HostsReady: 8})
	p.setOther("m3", &progress.Nodes{Notes: "empty"})
	p.setOther("m4", &progress.Nodes{Notes: "slow", HostsReady: 4})
	p.setOther("m5", &progress.Nodes{Notes: "new", HostsReady: 7})
	got := p.hostsReady(s)
	want := map[string]model.Generation{"old": 5, "quick": 8, "slow": 5, "new": 7}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for notes, generation := range want {
		if got[notes] != generation {
			t.Errorf("%s is at %d, want %d", notes, got[notes], generation)
		}
	}
}

// Users see what muxes said last, before the store has it, and no less than they said.
func TestShowWhatMuxesSaid(t *testing.T) {
	p := newProgress()
	s, _ := poolOf("on", "silent", "back")
	for _, name := range []string{"on", "silent", "back"} {
		s.Status.Set(name, nodestatus.Status{Generation: 10, Reason: "kept"})
	}
	p.set(progress.Nodes{Muxes: map[string]progress.Mux{"on": {Runs: 12, Answered: 12}, "silent": {}, "back": {Runs: 0, Answered: 11}}}, true)
	shown := p.WithProgress(s)
	for name, want := range map[string]model.Generation{"on": 12, "silent": 10, "back": 0} {
		if got := shown.Status.At(name); got.Generation != want || got.Reason != "kept" {
			t.Errorf("%s runs %d, want %d", name, got.Generation, want)
		}
	}
	if s.Status.At("on").Generation != 10 {
		t.Error("the State itself was changed")
	}
}
