package admission

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

func pool(name string, prefixes ...string) model.AddressPool {
	p := model.AddressPool{Name: name}
	for _, s := range prefixes {
		p.Prefixes = append(p.Prefixes, netip.MustParsePrefix(s))
	}
	return p
}

func pooled(name, from string) model.VIP {
	return model.VIP{
		Name: name, Tenant: "default", Pool: from,
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}},
	}
}

// with applies the VIPs to s, one call of VIPs for all, and returns what that makes of it.
func with(t *testing.T, s desired.State, vips ...model.VIP) desired.State {
	t.Helper()
	admitted, err := VIPs(s, vips, true)
	if err != nil {
		t.Fatal(err)
	}
	s = s.Clone()
	for _, vip := range admitted {
		s.PutVIP(vip)
	}
	return s
}

func addresses(s desired.State) string {
	var all []string
	for vip := range s.VIPs.Values() {
		all = append(all, fmt.Sprintf("%s=%s", vip.Name, vip.Address))
	}
	return strings.Join(all, " ")
}

func TestAddressesComeFromThePoolAndStay(t *testing.T) {
	p := pool("public", "203.0.113.0/29", "2001:db8::/64")
	p.Exclusions = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/31"), netip.MustParsePrefix("2001:db8::/96")}
	s := With(desired.State{}, nil, []model.AddressPool{p})
	s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.3")}})
	s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
	static := pooled("static", "")
	static.Address = netip.MustParseAddr("203.0.113.2")
	six := pooled("six", "public")
	six.Family = model.IPv6
	byBackend := pooled("seven", "public")
	byBackend.Endpoints[0].Backends = []model.Backend{{Address: netip.MustParseAddr("fd00::1"), Port: 80, Host: "host1", Weight: 1}}

	s = with(t, s, pooled("b", "public"), static, pooled("a", "public"), six, byBackend)
	const want = "a=203.0.113.5 b=203.0.113.4 seven=2001:db8::1:0:1 six=2001:db8::1:0:0 static=203.0.113.2"
	if got := addresses(s); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	changed := pooled("b", "public")
	changed.Endpoints[0].Port = 443
	s = with(t, s, changed, pooled("a", "public"))
	if got := addresses(s); got != want {
		t.Errorf("addresses moved: %s", got)
	}
	s.RemoveVIP("b")
	s = with(t, s, pooled("c", "public"), pooled("d", "public"))
	if got, want := addresses(s), strings.Replace(want, "b=203.0.113.4", "c=203.0.113.4 d=203.0.113.6", 1); got != want {
		t.Errorf("after a deletion: got %s, want %s", got, want)
	}
	if got := desired.PoolUses(s, p); got[model.IPv4] != (desired.PoolUse{Total: 6, Used: 4}) || got[model.IPv6].Used != 2 {
		t.Errorf("uses: %v", got)
	}
}

func TestPoolsRefuse(t *testing.T) {
	small := pool("small", "192.0.2.0/31")
	small.Tenants = []string{"acme"}
	s := With(desired.State{}, nil, []model.AddressPool{small, pool("public", "203.0.113.0/24")})
	of := func(vip model.VIP, tenant string) model.VIP { vip.Tenant = tenant; return vip }
	at := func(vip model.VIP, address string) model.VIP { vip.Address = netip.MustParseAddr(address); return vip }
	s = with(t, s, of(pooled("one", "small"), "acme"), at(pooled("fixed", "public"), "203.0.113.7"))
	for name, c := range map[string]struct {
		vips []model.VIP
		want string
	}{
		"a pool that is not there": {[]model.VIP{pooled("x", "publik")}, "vips[0].pool: there is no pool publik: there are public"},
		"exhausted": {
			[]model.VIP{of(pooled("x", "small"), "acme"), of(pooled("y", "small"), "acme")},
			"vips[1].pool: small has no free address left: add a prefix to it",
		},
		"another tenant": {[]model.VIP{of(pooled("x", "small"), "evil")}, "vips[0].pool: small is not for tenant evil"},
		"another tenant, by address": {
			[]model.VIP{at(of(pooled("x", ""), "evil"), "192.0.2.1")}, "vips[0].address: 192.0.2.1: a pool that is not for tenant evil has it",
		},
		"another pool's": {[]model.VIP{at(pooled("x", "public"), "198.51.100.1")}, "vips[0].address: 198.51.100.1 is not of pool public"},
		"taken":          {[]model.VIP{at(pooled("x", "public"), "203.0.113.7")}, "vips[0].address: 203.0.113.7 is the address of VIP fixed already"},
		"no such family": {[]model.VIP{{Name: "x", Tenant: "default", Pool: "public", Family: model.IPv6}}, "vips[0].pool: public has no ipv6 addresses"},
	} {
		if _, err := VIPs(s, c.vips, true); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	excluding := pool("public", "203.0.113.0/24")
	excluding.Exclusions = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")}
	for name, c := range map[string]struct {
		pool model.AddressPool
		want string
	}{
		"overlapping":     {pool("other", "203.0.0.0/16"), "pools[0].prefixes[0]: 203.0.0.0/16 overlaps 203.0.113.0/24 of pool public"},
		"leaving one out": {pool("public", "203.0.114.0/24"), "pools[0].prefixes: VIP fixed has 203.0.113.7: they must have it until the VIP is gone"},
		"excluding one":   {excluding, "pools[0].exclusions: VIP fixed has 203.0.113.7: pool public excludes it"},
	} {
		if err := Pools(s, []model.AddressPool{c.pool}, nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if err := PoolRemoval(s, "public"); err == nil || !strings.Contains(err.Error(), "is the pool of 1 VIPs") {
		t.Errorf("removal of a pool in use: %v", err)
	}
}
