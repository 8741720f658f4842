package placement

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

// grow gives the VIP two more backends: the part of each of two TIPs changes.
func (p *plant) grow() {
	p.write(func(s *store.State) {
		vip, _ := s.VIPAt(service)
		table := s.Tables.At(desired.Key(vip, vip.Endpoints[0]))
		table.Rows, table.Buckets = slices.Clone(table.Rows), slices.Clone(table.Buckets)
		for range 2 {
			slot := model.Slot(len(table.Rows) + 1)
			table.Rows = append(table.Rows, desired.Row{Slot: slot, Tunnel: netip.AddrFrom4([4]byte{10, 2, 0, byte(slot)})})
			table.Buckets = append(table.Buckets, slot)
		}
		s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), table)
		s.Written.Set("fast", s.Generation)
	})
}

// wantTwo has core1 send to TIPs of two other switches.
func (p *plant) wantTwo() {
	p.write(func(s *store.State) {
		s.PutVIP(vipWith(&model.Hardware{
			Placement: model.PlacementRequire, Switches: []string{"core1"},
			TIPs: []model.TIP{{Switch: "tor1", Address: netip.MustParseAddr("192.0.2.1")}, {Switch: "tor2", Address: netip.MustParseAddr("192.0.2.2")}},
		}))
		s.Written.Set("fast", s.Generation)
	})
}

// A TIP whose switch refuses a change serves until no switch sends to it: others have its part, or, if it is the last, muxes
// serve the VIP. When its back-off is over, it comes back.
func TestTheLastTIPsSwitchRefuses(t *testing.T) {
	p := newPlant(nil)
	p.wantTwo()
	goOn := func(until string, of func(placementpolicy.State) bool) {
		t.Helper()
		for range 200 {
			p.settle(nil)
			p.step(nil)
			p.check(nil)
			p.now = p.now.Add(250 * time.Millisecond)
			if of(p.state.Placements.At(service)) {
				return
			}
		}
		t.Fatalf("not %s: %+v", until, p.state.Placements.At(service).Places)
	}
	is := func(name string, phase placementpolicy.Phase) func(placementpolicy.State) bool {
		return func(s placementpolicy.State) bool { return s.Places[name].Phase == phase }
	}
	goOn("both named", func(s placementpolicy.State) bool {
		return len(s.TIPs()) == 2 && is("core1", placementpolicy.Hardware)(s)
	})
	for _, name := range []string{"tor1", "tor2"} {
		p.devices[name].full = true
		p.grow()
		goOn(name+" evicted", is(name, placementpolicy.Evicted))
		if place := p.state.Placements.At(service).Places[name]; place.Reason != "full" || place.Attempts != 1 {
			t.Errorf("at %s it is %+v", name, place)
		}
		if name == "tor1" && !is("core1", placementpolicy.Hardware)(p.state.Placements.At(service)) {
			t.Error("the first switch left, and another TIP is there")
		}
	}
	if place := p.state.Placements.At(service).Places["core1"]; place.Phase.Occupies() {
		t.Errorf("no TIP is left, and the first switch is %+v", place)
	}
	p.devices["tor1"].full, p.devices["tor2"].full = false, false
	for range 20 {
		p.now = p.now.Add(time.Minute)
		p.settle(nil)
		p.step(nil)
	}
	goOn("back", func(s placementpolicy.State) bool {
		return len(s.TIPs()) == 2 && is("core1", placementpolicy.Hardware)(s)
	})
}

// A first switch that refuses keeps the entry that it had: a TIP that is named no more waits until it has lost that.
func TestATIPWaitsForAFirstSwitchThatRefuses(t *testing.T) {
	p := newPlant(nil)
	p.wantTwo()
	pass := func() placementpolicy.State {
		p.settle(nil)
		p.step(nil)
		p.now = p.now.Add(250 * time.Millisecond)
		return p.state.Placements.At(service)
	}
	for range 40 {
		pass()
	}
	if state := pass(); len(state.TIPs()) != 2 || len(p.devices["core1"].members) != 2 {
		t.Fatalf("it is not named by all: %+v", state.Places)
	}
	p.devices["core1"].full = true
	p.write(func(s *store.State) {
		tor := s.Nodes.At("tor1")
		tor.Drained = p.now
		s.PutNode(tor)
	})
	for range 40 {
		state := pass()
		if is := state.Places["tor1"]; p.devices["core1"].address.IsValid() && !is.Phase.Announced() {
			t.Fatalf("the switch has an entry that names it, and it is %+v", is)
		}
	}
	if state := p.state.Placements.At(service); state.Places["core1"].Phase != placementpolicy.Evicted || state.Places["tor1"].Phase.Announced() {
		t.Errorf("after ten seconds: %+v", state.Places)
	}
}

// Of a TIP that withdraws, as a release before had it do when its switch refused, first switches leave.
func TestATIPThatWithdrawsKeepsNoSwitch(t *testing.T) {
	p := newPlant(nil)
	tip := netip.MustParseAddr("192.0.2.1")
	p.write(func(s *store.State) {
		s.PutVIP(vipWith(&model.Hardware{
			Placement: model.PlacementRequire, Switches: []string{"core1"}, TIPs: []model.TIP{{Switch: "tor1", Address: tip}},
		}))
		s.Written.Set("fast", s.Generation)
		s.Placements.Put(service, placementpolicy.State{VIP: "fast", Places: map[string]placementpolicy.Place{
			"core1": {Phase: placementpolicy.Hardware},
			"tor1":  {Phase: placementpolicy.Withdrawing, TIP: tip, Named: true, Attempts: 1, Reason: "full"},
		}})
		s.PlacementWritten.Set(service, s.Generation)
	})
	for range 40 {
		p.settle(nil)
		p.step(nil)
		p.now = p.now.Add(250 * time.Millisecond)
	}
	places := p.state.Placements.At(service).Places
	if places["core1"].Phase.Occupies() || places["tor1"].Phase != placementpolicy.Evicted {
		t.Errorf("after ten seconds: %+v", places)
	}
}
