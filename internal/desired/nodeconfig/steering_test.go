package nodeconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/snatport"
)

// ports is what hosts are told of a VIP's source NAT, of workloads in this order that have these ranges.
func ports(order []int, ranges map[int][]model.Range) steering.Endpoint {
	vip := model.VIP{Name: "out", Address: netip.MustParseAddr("203.0.113.9"), SNAT: &model.SNAT{}}
	var s desired.State
	for _, i := range order {
		address := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
		vip.SNAT.Workloads = append(vip.SNAT.Workloads, model.SNATWorkload{Address: address, Host: fmt.Sprint("host", i)})
	}
	s.PutVIP(vip)
	for i, of := range ranges {
		s.Ports.Set(model.SNATKey{VIP: vip.Address, Address: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})}, snatport.Allocation{Ranges: of})
	}
	return steeredPorts(s, vip)
}

// to is the workload that an answer to a port goes to; 0: none.
func to(e steering.Endpoint, port uint16) int {
	slot, _ := e.Choice(uint32(model.RangeOf(port)))
	if b, found := e.Backend(slot); found {
		return int(b.Tunnel.As4()[3])
	}
	return 0
}

// Whatever order workloads are listed in and whoever leaves: answers go to the workload of the port, by a slot that the
// others do not change. The host takes what it is told.
func TestPortsKeepTheirSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owner := map[model.Range]int{}
		ranges, order := map[int][]model.Range{}, []int{1, 2, 3, 4, 5}
		for _, r := range rapid.SliceOfNDistinct(rapid.IntRange(1, 8191), 0, 20, rapid.ID).Draw(t, "ranges") {
			i := rapid.IntRange(1, 5).Draw(t, "owner")
			owner[model.Range(r)] = i
			ranges[i] = append(ranges[i], model.Range(r))
		}
		for i := range ranges {
			slices.Sort(ranges[i])
		}
		before := ports(order, ranges)
		gone := rapid.IntRange(1, 5).Draw(t, "gone")
		left := rapid.Permutation(slices.DeleteFunc(order, func(i int) bool { return i == gone })).Draw(t, "order")
		rest := maps.Clone(ranges)
		delete(rest, gone)
		after := ports(left, rest)
		for r, i := range owner {
			if got := to(before, r.First()); got != i {
				t.Fatalf("range %d is of %d, not %d", r, got, i)
			}
			was, _ := before.Choice(uint32(r))
			is, _ := after.Choice(uint32(r))
			if i == gone && is != 0 || i != gone && (is != was || to(after, r.First()) != i) {
				t.Fatalf("range %d of %d had slot %d, has %d", r, i, was, is)
			}
		}
		vips, err := steering.Apply(nil, steering.Diff(nil, map[netip.Addr]steering.VIP{before.Key.VIP: {Address: before.Key.VIP, Endpoints: []steering.Endpoint{before}}}))
		if err != nil || !vips[before.Key.VIP].Endpoints[0].Equal(before) {
			t.Fatalf("a host makes %+v of it: %v", vips, err)
		}
	})
}

// Of what a restore gave twice the first workload has the answers, and both have slots of their own.
func TestPortsGivenTwice(t *testing.T) {
	e := ports([]int{1, 2}, map[int][]model.Range{1: {7, 9}, 2: {7, 8}})
	if to(e, model.Range(7).First()) != 1 || to(e, model.Range(8).First()) != 2 || to(e, model.Range(9).First()) != 1 || len(e.Backends) != 2 {
		t.Errorf("has %+v", e.Backends)
	}
	if e := ports([]int{1, 2}, map[int][]model.Range{1: {7}, 2: {7}}); to(e, model.Range(7).First()) != 1 || len(e.Backends) != 1 {
		t.Errorf("has %+v", e.Backends)
	}
}

// Hosts relay to the first muxes of the list, in the order in which muxes know the members of their pool: by name.
func TestMuxesAreInTheOrderOfTheirNames(t *testing.T) {
	var s desired.State
	prefix := netip.MustParsePrefix
	for i, name := range []string{"mux9", "mux10", "mux2"} {
		s.PutNode(model.Node{Name: name, Role: model.RoleMux, Prefixes: []netip.Prefix{prefix("10.7.0.0/24")}, Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}), netip.AddrFrom4([4]byte{10, 3, 0, byte(i)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)}),
		}})
	}
	s.PutNode(model.Node{Name: "host1", Role: model.RoleHost, Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.9")}})
	want := []netip.Prefix{
		prefix("10.2.0.1/32"), prefix("fd00::1/128"), prefix("10.2.0.2/32"), prefix("fd00::2/128"), prefix("10.2.0.0/32"), prefix("fd00::/128"),
		prefix("10.3.0.0/32"), prefix("10.3.0.1/32"), prefix("10.3.0.2/32"), prefix("10.7.0.0/24"),
	}
	if got := Muxes(s); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
