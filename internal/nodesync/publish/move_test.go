package publish

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
)

// A client that is on another host after a write has moved; servers' hosts that know its network hear of it for a while, as
// soon as the host has a number.
func TestClientsMove(t *testing.T) {
	address := netip.MustParseAddr
	at := func(host string) vnet.Network {
		return vnet.Network{Name: "acme", VNI: 100, Workloads: []vnet.Workload{
			{Name: "web", Host: host, Addresses: []netip.Addr{address("192.168.0.5"), address("fd12::5")}},
			{Name: "stays", Host: "host1", Addresses: []netip.Addr{address("192.168.0.6")}},
		}}
	}
	old, s, delta := &store.State{}, &store.State{}, netDelta()
	delta.Networks["acme"] = true
	old.Networks.Put(at("host1"))
	s.Networks.Put(at("host2"))
	if moves := newClientMoves(old, old, delta); len(moves) != 0 {
		t.Errorf("nothing moves: %v", moves)
	}
	var m clientMoves
	now := time.Now()
	m.add(newClientMoves(old, s, delta), now)
	knows := sentNetworks{networks: sentRows[uint32, vnet.HostNetwork]{sent: map[uint32]vnet.HostNetwork{100: {}}}}
	if told := knows.moved(s, m.recent(now)); told != nil {
		t.Errorf("the host has no number: %v", told)
	}
	s.Networks.Numbers.Put("host2", network.Number{Number: 7})
	want := []vnet.Move{
		{VNI: 100, Addresses: []netip.Addr{address("192.168.0.5")}, Host: 7}, {VNI: 100, Addresses: []netip.Addr{address("fd12::5")}, Host: 7},
	}
	if told := knows.moved(s, m.recent(now.Add(moveTime/2))); !reflect.DeepEqual(told, want) {
		t.Errorf("told %v, not %v", told, want)
	}
	if told := (&sentNetworks{}).moved(s, m.recent(now)); told != nil {
		t.Errorf("a host that does not know the network: %v", told)
	}
	if told := knows.moved(s, m.recent(now.Add(moveTime))); told != nil {
		t.Errorf("after a while: %v", told)
	}
}
