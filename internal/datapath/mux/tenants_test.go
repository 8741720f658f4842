package mux

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// tenantWorld are four VIPs of one tenant, and one of another, of a family.
type tenantWorld struct {
	many []string
	one  string
	from func(seed uint32, i int) string // the i-th client of some
}

func tenantWorlds() map[string]tenantWorld {
	v4 := tenantWorld{one: "203.0.113.40:80", from: func(seed uint32, i int) string { return randomTuple(seed, i).String() }}
	v6 := tenantWorld{one: "[2001:db8:1::40]:80", from: func(seed uint32, i int) string {
		a := randomTuple(seed, i)
		b := netip.MustParseAddr("2001:db8:5::").As16()
		copy(b[12:], a.Addr().AsSlice())
		return netip.AddrPortFrom(netip.AddrFrom16(b), a.Port()).String()
	}}
	for i := range 4 {
		v4.many = append(v4.many, fmt.Sprintf("203.0.113.%d:80", 20+i))
		v6.many = append(v6.many, fmt.Sprintf("[2001:db8:1::%d]:80", 20+i))
	}
	return map[string]tenantWorld{"v4": v4, "v6": v6}
}

func (w tenantWorld) endpoints() (all []model.MuxEndpoint) {
	for _, vip := range append(w.many[:len(w.many):len(w.many)], w.one) {
		e := newEndpoint(vip, model.TCP, tunnel4)
		e.Tenant = "many"
		if vip == w.one {
			e.Tenant = "one"
		}
		all = append(all, e)
	}
	return all
}

func (w tenantWorld) send(t *testing.T, d *Datapath, vip string, seed uint32, flows, times int) {
	t.Helper()
	for i := range flows {
		frame := pkt.TCP(w.from(seed, i), vip, pkt.ACK).Frame()
		for range times {
			run(t, d, append([]byte(nil), frame...))
		}
	}
}

// tenantsHave is what tenants have of the flow table, after it was checked against what their VIPs have.
func tenantsHave(t *testing.T, d *Datapath) map[string]flow.TenantUsage {
	t.Helper()
	usage, err := d.Usage()
	if err != nil {
		t.Fatal(err)
	}
	all, sums := map[string]flow.TenantUsage{}, map[string]flow.Usage{}
	for _, v := range usage.VIPs {
		for key, live := range d.endpoints.Live {
			if key.VIP == v.VIP {
				sum := sums[live.Tenant]
				sums[live.Tenant] = flow.Usage{Untrusted: sum.Untrusted + v.Flows.Untrusted, Trusted: sum.Trusted + v.Flows.Trusted}
			}
		}
	}
	for _, tenant := range usage.Tenants {
		all[tenant.Tenant] = tenant
		if sum := sums[tenant.Tenant]; tenant.Flows != sum {
			t.Errorf("tenant %s has %+v, its VIPs %+v", tenant.Tenant, tenant.Flows, sum)
		}
	}
	return all
}

// TestTenantsShareFlows has a tenant of four VIPs send far more flows than there is room for: it has no more of the
// table than it would have with one VIP, seen once or trusted, and another tenant's flows are remembered.
func TestTenantsShareFlows(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			d := newFilled(t, w.endpoints()...)
			sweepFlows(t, d)
			for i, vip := range w.many {
				w.send(t, d, vip, 0x0b000000+uint32(i)<<20, 1500, 2)
				w.send(t, d, vip, 0x4d000000+uint32(i)<<20, 2000, 1)
			}
			const kept = 1500
			w.send(t, d, w.one, 0x66000000, kept, 3)
			have := tenantsHave(t, d)
			limit := uint64(testSizes.FlowLimit)
			if many := have["many"]; many.Limit != uint32(limit) || many.Flows.Trusted > limit || many.Flows.Untrusted > limit/2 {
				t.Errorf("a tenant with four VIPs has %+v", many)
			}
			if many := have["many"]; many.Flows.Trusted < limit*9/10 {
				t.Errorf("it has %+v, and had flows for all of that", many)
			}
			if one := have["one"]; one.Flows.Trusted < kept*9/10 {
				t.Errorf("another tenant has %+v of %d flows", one, kept)
			}
			wantExact(t, d)
		})
	}
}

// TestVIPsOfATenantMakeWay has one VIP of a tenant take all that its tenant may have of flows that are seen once:
// another VIP of it gets some all the same.
func TestVIPsOfATenantMakeWay(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			endpoints := w.endpoints()
			d := newFilled(t, endpoints...)
			sweepFlows(t, d)
			w.send(t, d, w.many[0], 0x0b000000, 6000, 1)
			w.send(t, d, w.many[1], 0x66000000, 400, 2)
			usage, err := d.Usage()
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range usage.VIPs {
				if v.VIP == endpoints[1].Key.VIP && v.Flows.Trusted < 300 {
					t.Errorf("a VIP beside one that floods has %+v", v.Flows)
				}
			}
			tenantsHave(t, d)
			wantExact(t, d)
		})
	}
}

// TestTenantsOutliveARestart has a process take over tables whose VIPs are nobody's for all it knows: limits hold, and
// go on by the same index when the names are known again. A VIP may go from one tenant to another, and take its flows
// along.
func TestTenantsOutliveARestart(t *testing.T) {
	w := tenantWorlds()["v4"]
	endpoints := w.endpoints()
	d := newFilled(t, endpoints...)
	sweepFlows(t, d)
	before := d.endpoints.Flows.Tenants["many"]
	d.endpoints.Flows.Tenants = map[string]uint32{}
	for _, live := range d.endpoints.Live {
		live.Tenant = ""
	}
	sweepFlows(t, d)
	for i, vip := range w.many {
		w.send(t, d, vip, 0x0b000000+uint32(i)<<20, 1500, 2)
	}
	parts := func() (owns uint32) {
		m, err := flow.Map(&d.tables)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.Tenants[before].Guaranteed
	}
	d.endpoints.Weights = nil
	sweepFlows(t, d)
	if parts() == 0 {
		t.Error("a tenant whose name is not known owns nothing")
	}
	if err := d.Replace(endpoints); err != nil {
		t.Fatal(err)
	}
	sweepFlows(t, d)
	if d.endpoints.Flows.Tenants["many"] != before || before == d.endpoints.Flows.Tenants["one"] || before == 0 {
		t.Errorf("indexes are %v, that of many was %d", d.endpoints.Flows.Tenants, before)
	}
	if have := tenantsHave(t, d); have["many"].Flows.Trusted > uint64(testSizes.FlowLimit) || have["many"].Flows.Trusted == 0 {
		t.Errorf("the tenant has %+v", have["many"])
	}
	endpoints[0].Tenant = "one"
	apply(t, d, endpoints[0])
	sweepFlows(t, d)
	if have := tenantsHave(t, d); have["one"].Flows.Trusted == 0 {
		t.Error("the VIP's flows stay with the tenant that it has left")
	}
	var gone []model.EndpointKey
	for _, e := range endpoints {
		gone = append(gone, e.Key)
	}
	if err := d.Apply(nil, gone); err != nil {
		t.Fatal(err)
	}
	sweepFlows(t, d)
	sweepFlows(t, d)
	if have := tenantsHave(t, d); len(have) != 0 || parts() != 0 {
		t.Errorf("tenants without VIPs have %v, one owns %d", have, parts())
	}
}

func sweepFlows(t *testing.T, d *Datapath) {
	t.Helper()
	if _, err := d.SweepFlows(); err != nil {
		t.Fatal(err)
	}
}
