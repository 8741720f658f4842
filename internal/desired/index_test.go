package desired

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// anyVIP draws VIP number i: some of its backends and workloads are those of the one before.
func anyVIP(t *rapid.T, i int) model.VIP {
	host := rapid.SampledFrom([]string{"host1", "host2", "host3"})
	dip := rapid.Map(rapid.IntRange(1, 6), func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i), byte(n)}) })
	backends := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Backend {
		b := model.Backend{Address: dip.Draw(t, "address"), Port: 80, Host: host.Draw(t, "host"), Weight: 1}
		if rapid.Bool().Draw(t, "has a tunnel") {
			b.Tunnel = dip.Draw(t, "tunnel")
		}
		return b
	}), 0, 6)
	vip := model.VIP{Name: fmt.Sprint("vip", i), Tenant: rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "tenant"), Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(10*i + rapid.IntRange(0, 1).Draw(t, "vip"))})}
	for port := range rapid.IntRange(0, 2).Draw(t, "endpoints") {
		vip.Endpoints = append(vip.Endpoints, model.Endpoint{Protocol: model.TCP, Port: uint16(port + 1), Backends: backends.Draw(t, "backends")})
	}
	if rapid.Bool().Draw(t, "leaves") {
		vip.SNAT = &model.SNAT{}
		for _, a := range rapid.SliceOfNDistinct(dip, 0, 3, rapid.ID[netip.Addr]).Draw(t, "workloads") {
			vip.SNAT.Workloads = append(vip.SNAT.Workloads, model.SNATWorkload{Address: a, Host: host.Draw(t, "host")})
		}
	}
	return vip
}

// Whatever VIPs were written and removed before, indexes hold what those that are there have.
func TestIndexesHoldWhatVIPsHave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			s = s.Clone()
			if i := rapid.IntRange(0, 3).Draw(t, "vip"); rapid.IntRange(0, 4).Draw(t, "do") == 0 {
				s.RemoveVIP(fmt.Sprint("vip", i))
			} else {
				s.PutVIP(anyVIP(t, i))
			}
		}
		var uses []Use
		var places []place
		var leave []model.SNATKey
		usage := map[string]Usage{}
		for vip := range s.VIPs.Values() {
			u := usage[vip.Tenant]
			u.Add(vip)
			usage[vip.Tenant] = u
			eachUse(vip, func(u Use) { uses = append(uses, u) })
			eachPlace(vip, func(p place) { places = append(places, p) })
			leave = slices.AppendSeq(leave, snatport.KeysOf(vip))
		}
		slices.SortFunc(uses, Use.Compare)
		slices.SortFunc(places, place.Compare)
		slices.SortFunc(leave, model.SNATKey.Compare)
		if got, want := slices.Collect(s.Addresses.uses.Keys()), slices.Compact(uses); !slices.Equal(got, want) {
			t.Fatalf("addresses are used as %v, want %v", got, want)
		}
		if got, want := slices.Collect(s.places.Keys()), slices.Compact(places); !slices.Equal(got, want) {
			t.Fatalf("hosts have backends of %v, want %v", got, want)
		}
		if got := maps.Collect(s.usage.All()); !maps.Equal(got, usage) {
			t.Fatalf("tenants have %v, want %v", got, usage)
		}
		if got := slices.Collect(s.Ports.Clients()); !slices.Equal(got, leave) {
			t.Fatalf("%v leave, want %v", got, leave)
		}
	})
}

// Muxes and switches, which are few, are found without a look at the hosts; a node that comes back may have another role.
func TestNodesAreFoundByTheirRoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			s = s.Clone()
			name := fmt.Sprint("node", rapid.IntRange(0, 3).Draw(t, "node"))
			if rapid.IntRange(0, 3).Draw(t, "do") == 0 {
				s.RemoveNode(name)
			} else {
				s.PutNode(model.Node{Name: name, Role: rapid.SampledFrom([]model.Role{model.RoleMux, model.RoleHost, model.RoleSwitch}).Draw(t, "role")})
			}
			for role, found := range map[model.Role]iter.Seq[model.Node]{model.RoleMux: s.MuxNodes(), model.RoleSwitch: SwitchNodes(s)} {
				var got, want []string
				for n := range found {
					got = append(got, n.Name)
				}
				for n := range s.Nodes.Values() {
					if n.Role == role {
						want = append(want, n.Name)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("of role %s there are %v, want %v", role, got, want)
				}
			}
		}
	})
}

// anyWorld is some of four VIPs, at four addresses. The same workloads leave as several of them.
func anyWorld(t *rapid.T, what string) (all [4]model.VIP) {
	addresses := rapid.Permutation([]byte{1, 2, 3, 4}).Draw(t, "addresses "+what)
	for i := range all {
		if rapid.IntRange(0, 3).Draw(t, "do") == 0 {
			continue
		}
		all[i] = anyVIP(t, i)
		all[i].Address = netip.AddrFrom4([4]byte{192, 0, 2, addresses[i]})
		if all[i].SNAT == nil {
			continue
		}
		for j := range all[i].SNAT.Workloads {
			at := all[i].SNAT.Workloads[j].Address.As4()
			all[i].SNAT.Workloads[j].Address = netip.AddrFrom4([4]byte{10, 0, 0, at[3]})
		}
	}
	return all
}

// VIPs may take over addresses of others, in one change whose VIPs are taken over in any order: in the end indexes hold what
// those that are there have, as if nothing else had been.
func TestVIPsTakeOverAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anyWorld(t, "before"), anyWorld(t, "after")
		var s, want State
		ranges := func(to *State, of [4]model.VIP) {
			for _, vip := range of {
				for key := range snatport.KeysOf(vip) {
					to.Ports.Set(key, snatport.Allocation{Host: "host1", Ranges: []model.Range{model.Range(key.VIP.As4()[3])}})
				}
			}
		}
		for _, vip := range before {
			if vip.Name != "" {
				s.PutVIP(vip)
			}
		}
		ranges(&s, before)
		ranges(&s, after)
		ranges(&want, before)
		ranges(&want, after)
		s = s.Clone()
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order") {
			if vip := after[i]; vip.Name != "" {
				s.PutVIP(vip)
				want.PutVIP(vip)
			} else {
				s.RemoveVIP(before[i].Name)
			}
		}
		digest, n := s.Ports.Digest()
		wantDigest, wantN := want.Ports.Digest()
		if digest != wantDigest || n != wantN || s.Ports.WorkloadCount() != want.Ports.WorkloadCount() {
			t.Fatalf("muxes get %d ranges of %d workloads, want %d of %d", n, s.Ports.WorkloadCount(), wantN, want.Ports.WorkloadCount())
		}
		for key := range want.Ports.Clients() {
			got, there := s.Ports.Client(key)
			if w, _ := want.Ports.Client(key); !there || got != w {
				t.Fatalf("%v is %+v, want %+v", key, got, w)
			}
		}
		for what, c := range map[string][2]any{
			"clients of source NAT": {slices.Collect(s.Ports.Clients()), slices.Collect(want.Ports.Clients())},
			"uses of addresses":     {slices.Collect(s.Addresses.uses.Keys()), slices.Collect(want.Addresses.uses.Keys())},
			"places":                {slices.Collect(s.places.Keys()), slices.Collect(want.places.Keys())},
			"usage":                 {maps.Collect(s.usage.All()), maps.Collect(want.usage.All())},
			"rooms of hosts":        {maps.Collect(s.hostRooms.All()), maps.Collect(want.hostRooms.All())},
		} {
			if !reflect.DeepEqual(c[0], c[1]) {
				t.Fatalf("%s: %v, want %v", what, c[0], c[1])
			}
		}
	})
}
