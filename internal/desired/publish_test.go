package desired

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// Connections may leave the muxes that those of the sources open whom the endpoint's lists take.
func TestSNATClients(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	for _, c := range []struct {
		name                 string
		sources, allow, deny []netip.Prefix
		leave, stay          []netip.Prefix
		mayLeave, mayNot     string
	}{
		{name: "no lists", sources: prefixes("203.0.113.0/28"), leave: prefixes("203.0.113.0/28"), mayLeave: "203.0.113.3", mayNot: "203.0.113.16"},
		{
			name: "allowed in part", sources: prefixes("203.0.113.0/28"), allow: prefixes("198.51.100.0/24", "203.0.113.4/30"),
			leave: prefixes("203.0.113.4/30"), mayLeave: "203.0.113.5", mayNot: "203.0.113.3",
		},
		{
			name: "all allowed", sources: prefixes("203.0.113.0/28"), allow: prefixes("203.0.0.0/16", "0.0.0.0/0"),
			leave: prefixes("203.0.113.0/28"), mayLeave: "203.0.113.15", mayNot: "203.0.113.16",
		},
		{name: "others allowed", sources: prefixes("203.0.113.0/28"), allow: prefixes("198.51.100.0/24"), mayNot: "203.0.113.3"},
		{
			name: "denied in part", sources: prefixes("203.0.113.0/28"), deny: prefixes("198.51.100.0/24", "203.0.113.7/32"),
			leave: prefixes("203.0.113.0/28"), stay: prefixes("203.0.113.7/32"), mayLeave: "203.0.113.6", mayNot: "203.0.113.7",
		},
		{
			name: "all denied", sources: prefixes("203.0.113.0/28"), deny: prefixes("0.0.0.0/0"),
			leave: prefixes("203.0.113.0/28"), stay: prefixes("0.0.0.0/0"), mayNot: "203.0.113.3",
		},
	} {
		leave, stay := State{}.snatClients(&model.Fastpath{Sources: c.sources}, model.Endpoint{Allow: c.allow, Deny: c.deny})
		if !slices.Equal(leave, c.leave) || !slices.Equal(stay, c.stay) {
			t.Errorf("%s: %v but for %v leave, want %v but for %v", c.name, leave, stay, c.leave, c.stay)
		}
		b := model.HostBackend{Fastpath: len(leave) > 0, Leave: leave, Stay: stay}
		if c.mayLeave != "" && !b.MayLeave(netip.MustParseAddr(c.mayLeave)) {
			t.Errorf("%s: %s may not leave", c.name, c.mayLeave)
		}
		if b.MayLeave(netip.MustParseAddr(c.mayNot)) {
			t.Errorf("%s: %s may leave", c.name, c.mayNot)
		}
	}
}

// Hosts are told whose a backend is. Muxes need not wait until they know.
func TestHostsKnowTenants(t *testing.T) {
	vip := model.VIP{Name: "web", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{{
		Protocol: model.TCP, Port: 80, Backends: []model.Backend{{Address: netip.MustParseAddr("10.1.0.5"), Port: 80, Host: "host1"}},
	}}}
	told := 0
	State{}.EachBackend(vip, func(_ string, b model.HostBackend) {
		told++
		if b.Tenant != vip.Tenant {
			t.Errorf("tenant of %s is %q", b.Endpoint, b.Tenant)
		}
		was := b
		was.Tenant = ""
		if IsNeededBeforeMuxes(was, b) {
			t.Error("muxes wait until a host knows whose a backend is")
		}
		was.Slot++
		if !IsNeededBeforeMuxes(was, b) {
			t.Error("muxes do not wait for what a host needs")
		}
	})
	if told != 1 {
		t.Errorf("%d backends", told)
	}
}
