package nodeconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// Hosts of an endpoint with multipath are told of each host by one tunnel, and take what any other backend's host hands on.
func TestHomes(t *testing.T) {
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 3, 0, n}) }
	e := model.Endpoint{Protocol: model.TCP, Port: 80}
	var rows []desired.Row
	for n := byte(1); n <= 6; n++ { // two on each of three hosts
		b := model.Backend{Address: at(n), Port: 8080, Host: fmt.Sprint("host", (n+1)/2), Weight: 1}
		e.Backends = append(e.Backends, b)
		rows = append(rows, desired.Row{Slot: model.Slot(n), Backend: b.AddrPort(), Tunnel: b.Address, Down: n == 3 || n == 5 || n == 6})
	}
	vip := model.VIP{Name: "shop", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{e}}
	var s desired.State
	s.Tables.Set(desired.Key(vip, e), desired.Table{Rows: rows})
	for _, c := range []struct {
		name   string
		wanted bool
		hosts  []model.Node
		on     bool
	}{
		{"off", false, nil, false},
		{"on", true, []model.Node{{Name: "host1", Multipath: true}, {Name: "host2", Multipath: true}}, true}, // host3 was never there
		{"a host can't", true, []model.Node{{Name: "host1", Multipath: true}, {Name: "host2"}}, false},
		{"nobody is heard", true, []model.Node{{Name: "host1", Multipath: true}}, true},
		{"nobody can", true, []model.Node{{Name: "host1"}, {Name: "host2"}, {Name: "host3"}}, false},
	} {
		on := c.on
		vip.Endpoints[0].Multipath = c.wanted
		s.Nodes = sorted.Map[string, model.Node]{}
		for _, host := range c.hosts {
			s.Nodes.Set(host.Name, host)
		}
		var homes, peers []netip.Addr
		if on {
			homes = []netip.Addr{at(1), at(4)} // of host2 the one that is not down; host3 is silent
			peers = []netip.Addr{at(1), at(2), at(3), at(4), at(5), at(6)}
		}
		if c.name == "nobody is heard" {
			silent := slices.Clone(rows)
			for i := range silent {
				silent[i].Down = true
			}
			s.Tables.Set(desired.Key(vip, e), desired.Table{Rows: silent})
			homes = []netip.Addr{at(1), at(3), at(5)}
		}
		EachBackend(s, vip, func(_ string, b model.HostBackend) {
			if !slices.Equal(b.Homes, homes) || b.Tunnel == at(1) && !slices.Equal(b.ChainPeers, peers) {
				t.Errorf("%s: %s has the homes %v and the peers %v", c.name, b.Tunnel, b.Homes, b.ChainPeers)
			}
			was := b
			was.Homes = []netip.Addr{at(9)}
			if IsNeededBeforeMuxes(was, b) == on {
				t.Errorf("%s: muxes wait for other homes: %v", c.name, !on)
			}
		})
		s.Tables.Set(desired.Key(vip, e), desired.Table{Rows: rows})
		if got := MuxEndpoint(s, vip, vip.Endpoints[0]).Multipath; got != on {
			t.Errorf("%s: muxes are told %v", c.name, got)
		}
	}
}

// The peers of an endpoint's backends are one list, not one for each: hosts ask for their backends of n one after another.
func TestPeersAreMadeOnce(t *testing.T) {
	e := model.Endpoint{Protocol: model.TCP, Port: 80, Multipath: true}
	for n := range byte(200) {
		e.Backends = append(e.Backends, model.Backend{Address: netip.AddrFrom4([4]byte{10, 3, 0, n}), Port: 8080, Host: fmt.Sprint("host", n), Weight: 1})
	}
	vip := model.VIP{Name: "shop", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{e}}
	var s desired.State
	lists := map[*netip.Addr]bool{}
	EachBackend(s, vip, func(_ string, b model.HostBackend) {
		if len(b.ChainPeers) != 200 || len(b.Homes) != 200 {
			t.Fatalf("%s has %d peers and %d homes", b.Tunnel, len(b.ChainPeers), len(b.Homes))
		}
		lists[&b.ChainPeers[0]], lists[&b.Homes[0]] = true, true
	})
	if len(lists) != 2 {
		t.Errorf("%d lists were made", len(lists))
	}
}
