package network

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// plain is the obvious Set: two Go maps that are walked.
type plain struct {
	overlay  bool
	networks map[string]vnet.Network
	vips     map[string]model.VIP
}

func (p plain) attached(network string) (all []Attached) {
	n, there := p.networks[network]
	if !there || !p.overlay {
		return nil
	}
	for _, vip := range p.vips {
		for _, a := range vip.Attachments {
			if a.Network == network && (vip.Tenant == n.Tenant || slices.Contains(n.AllowedTenants, vip.Tenant)) {
				all = append(all, Attached{a.Address, vip.Name, vip.Tenant, a.Mode})
			}
		}
	}
	slices.SortFunc(all, func(a, b Attached) int {
		return wanted{"", a.Address, a.VIP, a.Mode}.Compare(wanted{"", b.Address, b.VIP, b.Mode})
	})
	return all
}

func (p plain) usage(tenant string) (u Usage) {
	for _, n := range p.networks {
		if n.Tenant == tenant {
			u.Networks++
			u.Workloads += uint32(len(n.Workloads))
		}
	}
	for _, vip := range p.vips {
		if vip.Tenant == tenant {
			u.Attachments += uint32(len(vip.Attachments))
		}
	}
	return u
}

func drawNetwork(t *rapid.T) vnet.Network {
	k := rapid.IntRange(0, 3).Draw(t, "network")
	n := vnet.Network{
		Name: fmt.Sprintf("n%d", k), VNI: uint32(100 + k), Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"),
		AllowedTenants: rapid.SampledFrom([][]string{nil, {"b"}, {"a", "c"}}).Draw(t, "allowed"),
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "workloads") {
		n.Workloads = append(n.Workloads, vnet.Workload{Host: fmt.Sprintf("h%d", i), Interface: fmt.Sprintf("%s-%d", n.Name, i)})
	}
	return n
}

func drawVIP(t *rapid.T) model.VIP {
	vip := model.VIP{Name: fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "vip")), Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")}
	for k := range 4 {
		if rapid.Bool().Draw(t, "attached") {
			address := netip.AddrFrom4([4]byte{10, 0, 0, rapid.ByteRange(0, 2).Draw(t, "address")})
			vip.Attachments = append(vip.Attachments, model.Attachment{Network: fmt.Sprintf("n%d", k), Address: address, Mode: model.ModeBypass})
		}
	}
	return vip
}

func TestSetAgainstPlainMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, want := Set{}, plain{networks: map[string]vnet.Network{}, vips: map[string]model.VIP{}}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before, wanted := set, want
			set = set.Clone()
			want.networks, want.vips = maps.Clone(want.networks), maps.Clone(want.vips)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				n := drawNetwork(t)
				set.Put(n)
				want.networks[n.Name] = n
			case 1:
				name := fmt.Sprintf("n%d", rapid.IntRange(0, 3).Draw(t, "network"))
				set.Remove(name)
				delete(want.networks, name)
			case 2:
				vip := drawVIP(t)
				set.ReplaceVIP(want.vips[vip.Name], vip)
				want.vips[vip.Name] = vip
			case 3:
				name := fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "vip"))
				set.ReplaceVIP(want.vips[name], model.VIP{})
				delete(want.vips, name)
			case 4:
				set.Overlay, want.overlay = nil, !want.overlay
				if want.overlay {
					set.Overlay = &vnet.Overlay{}
				}
			}
			check(t, before, wanted) // the one that was cloned
			check(t, set, want)
		}
	})
}

func check(t *rapid.T, set Set, want plain) {
	t.Helper()
	for k := range 4 {
		name := fmt.Sprintf("n%d", k)
		if is, wanted := slices.Collect(set.Attached(name)), want.attached(name); !slices.Equal(is, wanted) {
			t.Fatalf("%s has %v, want %v", name, is, wanted)
		}
		n, there := set.OfVNI(uint32(100 + k))
		if w, wanted := want.networks[name]; there != wanted || !reflect.DeepEqual(n, w) {
			t.Fatalf("VNI %d is of %v, want %v", 100+k, n, w)
		}
	}
	for _, tenant := range []string{"a", "b", "c"} {
		if is, wanted := set.Usage(tenant), want.usage(tenant); is != wanted {
			t.Fatalf("tenant %s has %+v, want %+v", tenant, is, wanted)
		}
	}
	for i := range 3 {
		ports, wanted := map[Port]string{}, map[Port]string{}
		maps.Insert(ports, set.PortsOf(fmt.Sprintf("h%d", i)))
		for _, n := range want.networks {
			if i < len(n.Workloads) {
				wanted[Port{fmt.Sprintf("h%d", i), n.Workloads[i].Interface}] = n.Name
			}
		}
		if !maps.Equal(ports, wanted) {
			t.Fatalf("h%d has ports %v, want %v", i, ports, wanted)
		}
		var names []string
		for n := range set.NetworksOn(fmt.Sprintf("h%d", i)) {
			names = append(names, n.Name)
			if hosts := slices.Collect(set.HostsIn(n.Name)); !slices.Contains(hosts, fmt.Sprintf("h%d", i)) || len(hosts) != len(want.networks[n.Name].Workloads) {
				t.Fatalf("%s is on %v", n.Name, hosts)
			}
		}
		if wantedNames := slices.Sorted(maps.Values(wanted)); !slices.Equal(names, wantedNames) {
			t.Fatalf("on h%d are %v, want %v", i, names, wantedNames)
		}
	}
	for _, vip := range want.vips {
		for _, a := range vip.Attachments {
			inForce := slices.ContainsFunc(want.attached(a.Network), func(at Attached) bool { return at.VIP == vip.Name })
			if state := set.StateOf(vip.Tenant, a); (state == InForce) != inForce {
				t.Fatalf("%s in %s is %s", vip.Name, a.Network, state)
			}
		}
	}
}
