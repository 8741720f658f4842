package admission

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/sorted"
)

// quotaWorld has so many VIPs of one tenant with quotas, all of them in switches that share their backends, and as many lists.
func quotaWorld(vips int) (s desired.State, tenants *Tenants, change func(i int) model.VIP) {
	change = func(i int) model.VIP {
		vip := inSwitches(fmt.Sprint("vip", i))
		vip.Hardware = &model.Hardware{Placement: model.PlacementAuto}
		for j := range vip.Endpoints {
			vip.Endpoints[j].Backends = []model.Backend{on("host1", fmt.Sprintf("10.%d.%d.%d", 100+i>>16, i>>8&255, i&255))}
		}
		vip.Address = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		return vip
	}
	s = state(nil)
	for i := range vips {
		vip := change(i)
		s.PutVIP(vip)
		s.Placements.Put(vip.Address, placementpolicy.State{VIP: vip.Name, Tenant: "red", Chosen: []string{"sw1", "sw2"}, Split: true})
		s.PrefixLists.Set(fmt.Sprint("list", i), model.PrefixList{Name: fmt.Sprint("list", i), Tenant: "red"})
	}
	most := uint32(1 << 30)
	limits := model.Quotas{VIPs: &most, Endpoints: &most, Backends: &most, Ports: &most, SwitchHosts: &most, SwitchTunnels: &most}
	return s, NewTenants(map[string]model.Tenant{"red": {Name: "red", Limits: limits}}), change
}

// Quotas are decided without a look at the other VIPs, lists and places in switches of a tenant: here these are not to be seen.
func TestQuotasLookAtNothingElse(t *testing.T) {
	const vips = 20
	s, _, change := quotaWorld(vips)
	has := s.Usage("red")
	limits := model.Quotas{VIPs: &has.VIPs, Endpoints: &has.Endpoints, Backends: &has.Backends, Ports: &has.Ports, SwitchHosts: &has.SwitchHosts, SwitchTunnels: &has.SwitchTunnels}
	hidden := s.Clone()
	hidden.VIPs, hidden.PrefixLists.Map = sorted.Map[string, model.VIP]{}, sorted.Map[string, model.PrefixList]{}
	hidden.Placements.Map = sorted.Map[netip.Addr, placementpolicy.State]{}
	for what, s := range map[string]desired.State{"": s, ", not to be seen": hidden} {
		err := quotas(s, model.Tenant{Name: "red", Limits: limits}, 0, map[string]model.VIP{"new": change(vips)})
		if len(model.FieldErrors(err)) != 6 || !strings.Contains(err.Error(), "tenant red may have 20 VIPs, and would have 21") {
			t.Errorf("a VIP beyond all quotas of a tenant with 20 VIPs%s: %v", what, err)
		}
	}
}

// BenchmarkTenantVIPs is of one write.
func BenchmarkTenantVIPs(b *testing.B) {
	for _, vips := range []int{1000, 100_000} {
		s, tenants, change := quotaWorld(vips)
		b.Run(fmt.Sprint("vips=", vips), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := TenantVIPs(s, []model.VIP{change(i % vips)}, tenants, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
