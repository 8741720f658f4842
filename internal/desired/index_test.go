package desired

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
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
