package switchfeed

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

// newState has a VIP with an endpoint of two backends, whose places in switches are as said, and another one.
func newState(places map[string]placementpolicy.Phase) *store.State {
	s := &store.State{Generation: 7}
	for i, name := range []string{"sw1", "sw2"} {
		s.PutNode(model.Node{Name: name, Role: model.RoleSwitch, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})}})
	}
	for i, name := range []string{"fast", "other"} {
		vip := model.VIP{Name: name, Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}}}
		s.PutVIP(vip)
		s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), desired.Table{
			Rows: []desired.Row{
				{Slot: 1, Tunnel: netip.AddrFrom4([4]byte{10, 2, byte(i), 1})}, {Slot: 2, Tunnel: netip.AddrFrom4([4]byte{10, 2, byte(i), 2})},
			},
			Buckets: []model.Slot{1, 2},
		})
	}
	state := placementpolicy.State{VIP: "fast", Places: map[string]placementpolicy.Place{}}
	for name, phase := range places {
		state.Places[name] = placementpolicy.Place{Phase: phase}
	}
	s.Placements.Put(s.VIPs.At("fast").Address, state)
	s.Placements.Put(s.VIPs.At("other").Address, placementpolicy.State{VIP: "other", Places: map[string]placementpolicy.Place{"sw2": {Phase: placementpolicy.Hardware}}})
	return s
}

func text(u Update) string {
	lines := []string{fmt.Sprintf("%d %v", u.Generation, u.Snapshot)}
	for _, e := range u.Entries {
		line := fmt.Sprintf("%s to %v %v", e.VIP, e.Members, e.Announce)
		if e.Inner.IsValid() {
			line += fmt.Sprintf(" for %s from %v", e.Inner, e.Sources)
		}
		lines = append(lines, line)
	}
	for _, vip := range u.Removed {
		lines = append(lines, "not "+vip.String())
	}
	return strings.Join(lines, "; ")
}

// A switch is told of the VIPs that it holds, as their phase says, and of no other one.
func TestASwitchIsToldOfItsOwnAlone(t *testing.T) {
	own := "203.0.113.0 to [{10.2.0.1 1} {10.2.0.2 1}] "
	for phase, want := range map[placementpolicy.Phase]string{
		placementpolicy.Preparing: "", placementpolicy.Programming: own + "false", placementpolicy.Announcing: own + "true",
		placementpolicy.Hardware: own + "true", placementpolicy.Withdrawing: own + "false",
		placementpolicy.Removing: "", placementpolicy.Leaving: "", placementpolicy.Evicted: "",
	} {
		h := New(func(string) uint32 { return 16 })
		f, closed := h.Open("sw1")
		if _, due := f.Next(0); due {
			t.Errorf("%s: it is told something before hosts are ready for anything", phase)
		}
		h.Publish(newState(map[string]placementpolicy.Phase{"sw1": phase, "sw2": placementpolicy.Hardware}))
		h.follow()
		if _, due := f.Next(8); due {
			t.Errorf("%s: it is told an older State than it has seen", phase)
		}
		got, due := f.Next(7)
		if whole := strings.TrimSuffix("7 true; "+want, "; "); !due || text(got) != whole {
			t.Errorf("%s: it is told %q, want %q", phase, text(got), whole)
		}
		if _, due := f.Next(7); due {
			t.Errorf("%s: it is told the same twice", phase)
		}
		if closed(); len(h.feeds) != 0 {
			t.Errorf("%s: a stream that ended is kept", phase)
		}
	}
}

// What is due goes as a delta; without any member there is no entry.
func TestDeltas(t *testing.T) {
	h := New(func(string) uint32 { return 0 })
	f, _ := h.Open("sw1")
	s := newState(map[string]placementpolicy.Phase{"sw1": placementpolicy.Hardware})
	h.Publish(s)
	h.follow()
	f.Next(0)
	vip := s.VIPs.At("fast").Address
	mark := func(change func()) string {
		h.mu.Lock()
		change()
		h.notify(s, vip)
		h.mu.Unlock()
		u, _ := f.Next(0)
		return text(u)
	}
	group := h.groups[vip]
	for i, c := range []struct {
		change func()
		want   string
	}{
		{func() { h.groups[vip] = group[:1] }, "7 false; 203.0.113.0 to [{10.2.0.1 1}] true"},
		{func() { h.groups[vip] = nil }, "7 false; not 203.0.113.0"},
		{func() {}, "7 false"},
		{func() { h.groups[vip] = group }, "7 false; 203.0.113.0 to [{10.2.0.1 1} {10.2.0.2 1}] true"},
	} {
		if got := mark(c.change); got != c.want {
			t.Errorf("step %d: it is told %q, want %q", i, got, c.want)
		}
	}
}

// A switch behind a TIP has its part of the backends, and the one that routers bring packets to the TIPs that are named.
func TestTIPs(t *testing.T) {
	s := newState(nil)
	vip, tip := s.VIPs.At("fast").Address, netip.MustParseAddr("192.0.2.1")
	hardware := placementpolicy.Place{Phase: placementpolicy.Hardware}
	behind := placementpolicy.Place{Phase: placementpolicy.Hardware, TIP: tip, Part: placementpolicy.Part{Number: 2, Of: 2}}
	h := New(func(string) uint32 { return 0 })
	first, _ := h.Open("sw1")
	second, _ := h.Open("sw2")
	for i, c := range []struct {
		places        map[string]placementpolicy.Place
		first, second string
	}{
		{map[string]placementpolicy.Place{"sw1": hardware, "sw2": behind}, "203.0.113.0 to [{10.2.0.1 1} {10.2.0.2 1}] true", "192.0.2.1 to [{10.2.0.2 1}] true for 203.0.113.0 from [10.1.0.0]"},
		{map[string]placementpolicy.Place{"sw1": hardware, "sw2": named(behind)}, "203.0.113.0 to [{192.0.2.1 1}] true", "192.0.2.1 to [{10.2.0.2 1}] true for 203.0.113.0 from [10.1.0.0]"},
		{map[string]placementpolicy.Place{"sw1": hardware}, "203.0.113.0 to [{10.2.0.1 1} {10.2.0.2 1}] true", "not 192.0.2.1"},
	} {
		s = s.Clone()
		s.Generation++
		s.Placements.Put(vip, placementpolicy.State{VIP: "fast", Places: c.places})
		h.Publish(s)
		h.follow()
		h.mu.Lock()
		h.notify(s, vip) // this State was not read from a store
		for f := range h.feeds["sw2"] {
			f.due[vip] = true
		}
		h.mu.Unlock()
		for f, want := range map[*Feed]string{first: c.first, second: c.second} {
			update, _ := f.Next(0)
			if _, got, _ := strings.Cut(text(update), "; "); !strings.Contains(got, want) {
				t.Errorf("step %d: a switch is told %q, want %q", i, got, want)
			}
		}
	}
}

// A TIP takes packets from the switches that routers bring packets to, of their newest addresses in its family; without one from
// nobody.
func TestWhoATIPTakesPacketsFrom(t *testing.T) {
	s := newState(nil)
	vip, tip := s.VIPs.At("fast").Address, netip.MustParseAddr("192.0.2.1")
	h := New(func(string) uint32 { return 0 })
	f, _ := h.Open("sw2")
	for i, c := range []struct {
		phase   placementpolicy.Phase // of sw1
		address string                // of sw1
		want    string
	}{
		{"", "10.1.0.0", "[192.0.2.1]"},
		{placementpolicy.Preparing, "10.1.0.0", "[10.1.0.0]"},
		{placementpolicy.Hardware, "10.1.0.7", "[10.1.0.7]"},
		{placementpolicy.Hardware, "2001:db8::7", "[192.0.2.1]"},
		{placementpolicy.Leaving, "10.1.0.7", "[10.1.0.7]"},
	} {
		s = s.Clone()
		s.Generation++
		s.PutNode(model.Node{Name: "sw1", Role: model.RoleSwitch, Addresses: []netip.Addr{netip.MustParseAddr(c.address)}})
		places := map[string]placementpolicy.Place{"sw2": {Phase: placementpolicy.Hardware, TIP: tip}}
		if c.phase != "" {
			places["sw1"] = placementpolicy.Place{Phase: c.phase}
		}
		s.Placements.Put(vip, placementpolicy.State{VIP: "fast", Places: places})
		h.Publish(s)
		h.follow()
		f.due[vip] = true // this State was not read from a store
		if u, _ := f.Next(0); !strings.Contains(text(u), "for 203.0.113.0 from "+c.want) {
			t.Errorf("step %d: the switch is told %q, want sources %s", i, text(u), c.want)
		}
	}
}

// A VIP that gives an address up does not take the entry of another one that has it now.
func TestAnAddressIsNotTakenFromAnother(t *testing.T) {
	s := newState(nil)
	fast, other, tip := s.VIPs.At("fast").Address, s.VIPs.At("other").Address, netip.MustParseAddr("192.0.2.1")
	put := func(vip netip.Addr, places map[string]placementpolicy.Place) {
		s.Placements.Put(vip, placementpolicy.State{VIP: vip.String(), Places: places})
	}
	behind := map[string]placementpolicy.Place{"sw1": {Phase: placementpolicy.Hardware, TIP: tip}}
	put(fast, behind)
	put(other, behind)
	h := New(func(string) uint32 { return 0 })
	f, _ := h.Open("sw1")
	publish := func() string {
		h.Publish(s)
		h.follow()
		u, _ := f.Next(0)
		return text(u)
	}
	publish()
	s = s.Clone()
	s.Generation++
	put(fast, nil)
	h.mu.Lock()
	f.due[fast] = true // this State was not read from a store
	h.mu.Unlock()
	if got, want := publish(), "8 false; 192.0.2.1 to [{10.2.1.1 1} {10.2.1.2 1}] true for 203.0.113.1 from [192.0.2.1]"; got != want {
		t.Errorf("the switch is told %q, want %q", got, want)
	}
}

func named(p placementpolicy.Place) placementpolicy.Place {
	p.Named = true
	return p
}
