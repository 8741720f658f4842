package placechoice

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// lab is a fabric of two containers of two racks, whose hosts are 10.0.RACK.*, with tables of so many tunnels; all of its
// switches take VIPs.
func lab(t testing.TB, tunnels int32) World {
	t.Helper()
	spec, err := fabric.Clos{
		Containers: 2, TorsPerContainer: 2, AggsPerContainer: 2, Cores: 2, TorUplink: 10_000_000, AggUplink: 40_000_000,
		Limits: &fabric.Limits{Hosts: 64, ECMP: 64, Tunnels: tunnels},
	}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for i := range spec.Racks {
		spec.Racks[i].Prefixes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)}
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	w := World{Fabric: f, Switches: map[string]Switch{}}
	for _, s := range f.Switches {
		w.Switches[s.Name] = Switch{Four: true, InPlace: true}
	}
	return w
}

// tunnelsOf are those of n hosts in a rack.
func tunnelsOf(rack, n int) (tunnels []netip.Addr) {
	for i := range n {
		tunnels = append(tunnels, netip.AddrFrom4([4]byte{10, 0, byte(rack), byte(1 + i)}))
	}
	return tunnels
}

func newVIP(name string, rack, n int, rate traffic.Rate) VIP {
	return VIP{Name: name, Rate: rate, Measured: true, Tunnels: tunnelsOf(rack, n), Rows: uint32(n)}
}

func choose(t testing.TB, w World) *Choice {
	t.Helper()
	c, err := Choose(t.Context(), w, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// settled are the VIPs where a choice has them.
func settled(w World, c *Choice) World {
	w.VIPs = slices.Clone(w.VIPs)
	for i := range w.VIPs {
		w.VIPs[i].At = At{Chosen: c.Target[w.VIPs[i].Name]}
	}
	return w
}

// why is the reason for which a VIP stays with the muxes.
func why(c *Choice, vip string) string {
	for _, u := range c.Unplaced {
		if u.VIP == vip {
			return u.Reason
		}
	}
	return ""
}

// A VIP gets a switch, stays there, and leaves it when that takes no VIP any more.
func TestAVIPStaysWhileItsSwitchTakesIt(t *testing.T) {
	w := lab(t, 8)
	w.VIPs = []VIP{newVIP("a", 0, 2, 1000), newVIP("b", 3, 3, 5000)}
	first := choose(t, w)
	if len(first.Target["a"]) != 1 || len(first.Target["b"]) != 1 || len(first.Unplaced) > 0 {
		t.Fatalf("placed: %v, not: %v", first.Target, first.Unplaced)
	}
	w = settled(w, first)
	w.VIPs[0].Rate = 900_000
	if second := choose(t, w); !maps.EqualFunc(second.Target, first.Target, slices.Equal) {
		t.Errorf("with other traffic %v becomes %v", first.Target, second.Target)
	}
	gone := first.Target["a"][0]
	delete(w.Switches, gone)
	third := choose(t, w)
	if to := third.Target["a"]; len(to) != 1 || to[0] == gone {
		t.Errorf("%s takes no VIP, and a goes to %v", gone, to)
	}
	moves, err := third.Ready(t.Context(), map[string]At{"a": w.VIPs[0].At, "b": w.VIPs[1].At}, 32)
	if err != nil || !slices.ContainsFunc(moves, func(m Move) bool { return m.VIP == "a" && m.From[0] == gone && m.To[0] == third.Target["a"][0] }) {
		t.Errorf("moves: %+v, %v", moves, err)
	}
}

// What keeps a VIP with the muxes is told.
func TestWhyAVIPIsWithTheMuxes(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*World)
		want   string
	}{
		"unfit":            {func(w *World) { w.VIPs[0].Unfit = "no backend takes new connections" }, "no backend takes new connections"},
		"a stray tunnel":   {func(w *World) { w.VIPs[0].Tunnels[1] = netip.MustParseAddr("192.0.2.1") }, "tunnel 192.0.2.1 is in no rack"},
		"too many tunnels": {func(w *World) { w.VIPs[0] = newVIP("a", 0, 20, 1) }, "tunnel table of"},
		"too many for one": {func(w *World) { w.VIPs[0] = newVIP("a", 0, 9, 1); w.VIPs[0].Most = 1 }, "tunnel table of"},
		"switches report smaller tables": {func(w *World) {
			for name := range w.Switches {
				w.Switches[name] = Switch{Four: true, InPlace: true, Tunnels: 1}
			}
		}, "tunnel table of"},
		"no source of its family": {func(w *World) {
			for name := range w.Switches {
				w.Switches[name] = Switch{Six: true, InPlace: true}
			}
		}, "no switch may take it"},
		"groups are too small": {func(w *World) {
			for name := range w.Switches {
				w.Switches[name] = Switch{Four: true, InPlace: true, Members: 1}
			}
		}, "no switch may take it"},
		"refused by all": {func(w *World) { w.VIPs[0].Avoid = slices.Sorted(maps.Keys(w.Switches)) }, "no switch may take it"},
		"another has the room": {func(w *World) {
			w.VIPs = append(w.VIPs, newVIP("named", 1, 7, 1))
			w.VIPs[1].Required = slices.Sorted(maps.Keys(w.Switches))
		}, "tunnel table of"},
	} {
		w := lab(t, 8)
		w.VIPs = []VIP{newVIP("a", 0, 2, 1000)}
		c.change(&w)
		got := choose(t, w)
		if reason := why(got, "a"); !strings.HasPrefix(reason, c.want) || len(got.Target["a"]) > 0 {
			t.Errorf("%s: at %v, because %q, want %q", what, got.Target["a"], reason, c.want)
		}
	}
}

// A switch that changes a group make-before-break keeps the rows of its largest one free, twice as many of what counts.
func TestRoomForAChangeStaysFree(t *testing.T) {
	w := lab(t, 64)
	w.VIPs = []VIP{newVIP("a", 0, 40, 1000)}
	w.VIPs[0].Most = 1
	if c := choose(t, w); len(c.Target["a"]) == 0 {
		t.Fatalf("in place: %v", c.Unplaced)
	}
	for name := range w.Switches {
		w.Switches[name] = Switch{Four: true}
	}
	if c := choose(t, w); len(c.Target["a"]) > 0 || !strings.HasPrefix(why(c, "a"), "ECMP table of") {
		t.Errorf("40 of 64 rows, and 40 while they change: at %v, because %q", c.Target["a"], why(c, "a"))
	}
	w.VIPs = []VIP{newVIP("a", 0, 8, 1000)}
	w.VIPs[0].Rows = 32
	if c := choose(t, w); len(c.Target["a"]) == 0 {
		t.Errorf("32 of 64 rows: %v", c.Unplaced)
	}
}

// That one switch of the fabric could hold a VIP says nothing of those that have it: they keep their parts.
func TestPartsStayWhereAChosenSwitchCantHoldAll(t *testing.T) {
	w := lab(t, 8)
	w.VIPs = []VIP{newVIP("a", 0, 12, 1000)}
	at := choose(t, w).Target["a"]
	for i := range w.Fabric.Switches {
		if s := &w.Fabric.Switches[i]; !slices.Contains(at, s.Name) {
			s.Limits.ECMP, s.Limits.Tunnels = 64, 64
		}
	}
	if len(at) != 2 || !w.Splits(w.VIPs[0], at) {
		t.Errorf("12 tunnels at %v, each of which holds 8, are told whole", at)
	}
	for i := range w.Fabric.Switches {
		w.Fabric.Switches[i].Limits.ECMP, w.Fabric.Switches[i].Limits.Tunnels = 64, 64
	}
	if w.Splits(w.VIPs[0], at) {
		t.Errorf("12 tunnels at %v, each of which holds 32, are told in parts", at)
	}
}

// A VIP whose group no switch can change takes no room from others.
func TestAVIPThatFitsNowhereIsNotReckonedWith(t *testing.T) {
	w := lab(t, 64)
	for name := range w.Switches {
		w.Switches[name] = Switch{Four: true, ECMP: 64}
	}
	w.VIPs = []VIP{newVIP("huge", 0, 60, 1000), newVIP("a", 1, 30, 1000)}
	w.VIPs[0].Rows = 240
	if c := choose(t, w); len(c.Target["a"]) == 0 || len(c.Target["huge"]) > 0 {
		t.Errorf("a is at %v, because %q; the other at %v", c.Target["a"], why(c, "a"), c.Target["huge"])
	}
}

// A VIP of more tunnels than a switch holds goes to switches that are equally far from everywhere, each with a part of them;
// when it has fewer, to one.
func TestAVIPOfManyTunnelsIsSplit(t *testing.T) {
	w := lab(t, 8)
	w.VIPs = []VIP{newVIP("a", 0, 12, 1000), newVIP("b", 1, 8, 1000)}
	c := choose(t, w)
	if at := c.Target["a"]; len(at) != 2 || !w.Splits(w.VIPs[0], at) {
		t.Errorf("12 tunnels, of which a switch holds 8, are at %v, because %q", at, why(c, "a"))
	}
	if at := c.Target["b"]; len(at) != 1 || w.Splits(w.VIPs[1], at) {
		t.Errorf("8 tunnels are at %v, because %q", at, why(c, "b"))
	}
	for name := range w.Switches {
		w.Switches[name] = Switch{Four: true, InPlace: true, Members: 6}
	}
	if c := choose(t, w); len(c.Target["a"]) > 0 || len(c.Target["b"]) != 2 {
		t.Errorf("in groups of 6, of 12 and of 8 tunnels: at %v, not %v", c.Target, c.Unplaced)
	}
	w = settled(w, c)
	w.VIPs[0].Tunnels, w.VIPs[0].Rows = w.VIPs[0].Tunnels[:5], 5
	if c := choose(t, w); len(c.Target["a"]) != 1 || w.Splits(w.VIPs[0], c.Target["a"]) {
		t.Errorf("5 tunnels are at %v", c.Target["a"])
	}
}

// network is VIPs on their way, as switches hold them: one that moves is at both ends.
type network struct {
	world World
	at    map[string]At
	muxes map[string]int // how often a VIP went by the muxes
}

// used are the tunnels that a switch has to hold.
func (n *network) used(name string) (sum int) {
	for _, vip := range n.world.VIPs {
		has := 0
		for _, at := range [][]string{n.at[vip.Name].Chosen, n.at[vip.Name].Held} {
			part := len(vip.Tunnels)
			if of := len(at); of > 1 {
				part = min(part, (part+of-1)/of+1)
			}
			if slices.Contains(at, name) {
				has = max(has, part)
			}
		}
		sum += has
	}
	return sum
}

func (n *network) begin(moves []Move) {
	for _, m := range moves {
		to := m.To
		if m.ViaMuxes {
			to = nil
			n.muxes[m.VIP]++
		}
		n.at[m.VIP] = At{Chosen: to, Held: m.From, Moves: true}
	}
}

// Whatever is moved where, in whatever order moves end: no table holds more than it can while VIPs are at both ends, no more
// are on their way than may be, and all arrive, each by way of the muxes once at most.
func TestMovesLeadToTheChoice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := lab(t, 6)
		for i := range rapid.IntRange(1, 9).Draw(rt, "vips") {
			w.VIPs = append(w.VIPs, newVIP(fmt.Sprintf("v%d", i), rapid.IntRange(0, 3).Draw(rt, "rack"), rapid.SampledFrom([]int{1, 2, 3, 4, 9}).Draw(rt, "tunnels"),
				traffic.Rate(rapid.IntRange(0, 100_000).Draw(rt, "rate"))))
		}
		off := rapid.SampledFrom(slices.Sorted(maps.Keys(w.Switches))).Draw(rt, "off")
		without := w
		without.Switches = maps.Clone(w.Switches)
		delete(without.Switches, off)
		w = settled(w, choose(t, without))
		c, err := Choose(t.Context(), w, rapid.Bool().Draw(rt, "anew"))
		if err != nil {
			rt.Fatal(err)
		}
		n := &network{world: w, at: maps.Clone(c.at), muxes: map[string]int{}}
		most := rapid.IntRange(1, 3).Draw(rt, "most")
		for range 100 {
			moving := 0
			for _, a := range n.at {
				if a.Moves {
					moving++
				}
			}
			moves, err := c.Ready(t.Context(), n.at, most-moving)
			if err != nil || moving+len(moves) > most {
				rt.Fatalf("%d on their way, %d begin: %v", moving, len(moves), err)
			}
			n.begin(moves)
			for name := range w.Switches {
				if used := n.used(name); used > 6 {
					rt.Fatalf("%s holds %d tunnels: %v", name, used, n.at)
				}
			}
			if moving+len(moves) == 0 {
				break
			}
			var under []string
			for _, name := range slices.Sorted(maps.Keys(n.at)) {
				if n.at[name].Moves {
					under = append(under, name)
				}
			}
			ends := rapid.SampledFrom(under).Draw(rt, "ends")
			n.at[ends] = At{Chosen: n.at[ends].Chosen}
		}
		for name, a := range n.at {
			if !slices.Equal(a.Chosen, c.Target[name]) || a.Moves || n.muxes[name] > 1 {
				rt.Fatalf("%s is at %+v, by the muxes %d times, and was to be at %v", name, a, n.muxes[name], c.Target[name])
			}
		}
	})
}
