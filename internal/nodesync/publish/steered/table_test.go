package steered

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// drawVIP is VIP i with some backends on some of three hosts, in some switches or in none.
func drawVIP(t *rapid.T, i int) model.VIP {
	vip := model.VIP{Name: fmt.Sprintf("vip%d", i), Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(rapid.IntRange(0, 3).Draw(t, "address"))})}
	e := model.Endpoint{Protocol: model.TCP, Port: 80}
	for b := range rapid.IntRange(1, 4).Draw(t, "backends") {
		host := rapid.IntRange(0, 2).Draw(t, "host")
		e.Backends = append(e.Backends, model.Backend{
			Host: fmt.Sprintf("h%d", host), Address: netip.AddrFrom4([4]byte{10, byte(i), byte(host), byte(b)}), Port: 80, Weight: uint32(rapid.IntRange(0, 2).Draw(t, "weight")),
		})
	}
	vip.Endpoints = []model.Endpoint{e}
	if switches := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"sw0", "sw1"}), 0, 2, rapid.ID).Draw(t, "switches"); len(switches) > 0 {
		vip.Hardware = &model.Hardware{Placement: model.PlacementRequire, Switches: switches}
	}
	return vip
}

// joined is a State with hosts.
func joined(hosts ...string) (s desired.State) {
	for _, name := range hosts {
		s.PutNode(model.Node{Name: name, Role: model.RoleHost})
	}
	return s
}

// change is a State in which VIP i is another one, or is not.
func change(t *rapid.T, s desired.State, i int) desired.State {
	next := s.Clone()
	name := fmt.Sprintf("vip%d", i)
	if old, there := s.VIPs.Get(name); there {
		next.RemoveVIP(name)
		for _, e := range old.Endpoints {
			next.Tables.Delete(desired.Key(old, e))
		}
		if rapid.Bool().Draw(t, "remove") {
			return next
		}
	}
	vip := drawVIP(t, i)
	if _, taken := next.VIPAt(vip.Address); taken {
		return next
	}
	next.PutVIP(vip)
	for key, table := range next.ChangedTables(vip, time.Unix(1000, 0), nil, nil) {
		next.Tables.Set(key, table)
	}
	return next
}

// has is what a host is to know of a State, computed anew.
func has(s desired.State, host string) map[netip.Addr]steering.VIP {
	vips := map[netip.Addr]steering.VIP{}
	for vip := range s.VIPsOn(host) {
		if v, held := nodeconfig.Steered(s, vip); held {
			vips[vip.Address] = v
		}
	}
	return vips
}

// However VIPs change, and whenever a host reads: what it makes of what it is told is what it would be told anew. Whom a
// change does not name is right without it.
func TestHostsFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"h0", "h1", "h2"}
		s := joined(hosts...)
		for i := range 2 {
			s.PutNode(model.Node{Name: fmt.Sprintf("sw%d", i), Role: model.RoleSwitch, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})}})
		}
		s = change(t, s, 0)
		table := New(s)
		sent, knows, whole := map[string]*Sent{}, map[string]map[netip.Addr]steering.VIP{}, map[string]bool{}
		for _, host := range hosts {
			sent[host], whole[host] = &Sent{}, true
		}
		read := func(host string) {
			u := sent[host].Update(sent[host].Take(table, s, host, whole[host]))
			if whole[host] {
				knows[host] = nil
			}
			whole[host] = false
			after, err := steering.Apply(knows[host], u)
			if err != nil {
				t.Fatal(err)
			}
			knows[host] = after
			if want := has(s, host); !maps.EqualFunc(after, want, steering.VIP.Equal) {
				t.Fatalf("%s knows %+v, want %+v", host, after, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(t, "vip")
				next := change(t, s, i)
				changes := table.Changes(s, next, slices.Values([]string{fmt.Sprintf("vip%d", i)}))
				table.Apply(changes)
				s = next
				for _, c := range changes {
					for _, host := range c.Hosts {
						sent[host].Add([]netip.Addr{c.Address})
					}
				}
			},
			"read":    func(t *rapid.T) { read(rapid.SampledFrom(hosts).Draw(t, "host")) },
			"connect": func(t *rapid.T) { whole[rapid.SampledFrom(hosts).Draw(t, "host")] = true },
		})
		for _, host := range hosts {
			read(host)
		}
		if got, want := table.vips, New(s).vips; len(got) != len(want) {
			t.Fatalf("the table has %d VIPs, want %d", len(got), len(want))
		}
	})
}

// A change is computed once: all hosts that were told of the version before get the same one.
func TestHostsShareAChange(t *testing.T) {
	vip := model.VIP{Name: "web", Address: netip.MustParseAddr("203.0.113.1"), Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw0"}}}
	with := func(s desired.State, weight uint32) desired.State {
		s = s.Clone()
		vip.Endpoints = []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: []model.Backend{
			{Host: "h0", Address: netip.MustParseAddr("10.1.0.1"), Port: 80, Weight: weight}, {Host: "h1", Address: netip.MustParseAddr("10.1.0.2"), Port: 80, Weight: 10},
		}}}
		s.PutVIP(vip)
		for key, table := range s.ChangedTables(vip, time.Unix(1000, 0), nil, nil) {
			s.Tables.Set(key, table)
		}
		return s
	}
	first := with(joined("h0", "h1"), 10)
	second := with(first, 9)
	table := New(first)
	hosts := map[string]*Sent{"h0": {}, "h1": {}}
	for name, sent := range hosts {
		sent.Update(sent.Take(table, first, name, true))
	}
	table.Apply(table.Changes(first, second, slices.Values([]string{"web"})))
	var moves []uintptr
	for name, sent := range hosts {
		sent.Add([]netip.Addr{vip.Address})
		u := sent.Update(sent.Take(table, second, name, false))
		if len(u.Changed) != 1 || len(u.Changed[0].Endpoints) != 1 || len(u.Changed[0].Endpoints[0].Moves) == 0 {
			t.Fatalf("%s is told %+v", name, u)
		}
		moves = append(moves, reflect.ValueOf(u.Changed[0].Endpoints[0].Moves).Pointer())
	}
	if moves[0] != moves[1] {
		t.Error("each host has a change of its own")
	}
}
