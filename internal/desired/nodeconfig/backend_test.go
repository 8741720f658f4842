package nodeconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Hosts are told whose a backend is. Muxes need not wait until they know.
func TestHostsKnowTenants(t *testing.T) {
	vip := model.VIP{Name: "web", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{{
		Protocol: model.TCP, Port: 80, Backends: []model.Backend{{Address: netip.MustParseAddr("10.1.0.5"), Port: 80, Host: "host1"}},
	}}}
	told := 0
	EachBackend(desired.State{}, vip, func(_ string, b model.HostBackend) {
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

func TestWhatHostsAreTold(t *testing.T) {
	var s desired.State
	for n := range 4 {
		s.PutNode(model.Node{Name: fmt.Sprint("host", n), Role: model.RoleHost})
	}
	apply := func(vip model.VIP) desired.Table {
		s.PutVIP(vip)
		for key, table := range s.ChangedTables(vip, time.Now(), nil, nil) {
			s.Tables.Set(key, table)
		}
		return s.Tables.At(desired.Key(vip, vip.Endpoints[0]))
	}
	backend := func(n byte) model.Backend {
		return model.Backend{Address: netip.AddrFrom4([4]byte{10, 3, 0, n}), Port: 8080, Host: fmt.Sprint("host", n), Weight: 1}
	}
	shop := func(backends ...model.Backend) model.VIP {
		e := model.Endpoint{Protocol: model.TCP, Port: 80, Backends: backends}
		return model.VIP{Name: "shop", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{e}}
	}
	a, b, c := backend(1), backend(2), backend(3)
	for _, each := range []model.Backend{a, b, c} {
		s.PutNode(model.Node{Name: each.Host, Role: model.RoleHost})
	}
	apply(shop(a, b))
	vip := shop(a, b, c)
	vip.Endpoints[0].Affinity, vip.Endpoints[0].IdleTimeout = model.AffinityClient, time.Minute
	table := apply(vip)
	of := func(b model.Backend) model.HostBackend {
		return BackendsOn(s, b.Host)[model.HostBackendKey{Endpoint: desired.Key(vip, vip.Endpoints[0]), Tunnel: b.Address}]
	}
	for _, each := range []model.Backend{a, b, c} {
		got := of(each)
		if got.Slot != table.Slots()[each.AddrPort()] || !got.Cookies || got.Buckets != 512 || !got.Affinity || got.IdleTimeout != time.Minute {
			t.Errorf("%s is %+v", each.Address, got)
		}
		for _, bucket := range got.Draining {
			if table.Buckets[bucket] != 3 {
				t.Fatalf("%s is draining bucket %d, which is of slot %d", each.Address, bucket, table.Buckets[bucket])
			}
		}
	}
	if n := len(of(a).Draining) + len(of(b).Draining); n != table.Shares()[3] || len(of(c).Draining) != 0 {
		t.Errorf("a and b are draining %d buckets, want all that c has", n)
	}
	if !slices.Equal(of(a).ChainPeers, []netip.Addr{c.Address}) || !slices.Equal(of(c).ChainPeers, []netip.Addr{a.Address, b.Address}) {
		t.Errorf("peers of a are %v and of c %v", of(a).ChainPeers, of(c).ChainPeers)
	}
	mux := MuxEndpoint(s, vip, vip.Endpoints[0])
	previous := make([]model.Slot, len(table.Buckets))
	for _, m := range table.Moves {
		previous[m.Bucket] = m.From
	}
	if len(table.Moves) == 0 || !slices.Equal(mux.Previous, previous) {
		t.Fatalf("buckets name %v before, want %v", mux.Previous, previous)
	}
	if mux.Cookies != model.CookiesOn || !mux.Affinity || !mux.Ping || mux.IdleTimeout != time.Minute {
		t.Errorf("muxes are told %+v", mux)
	}
}
