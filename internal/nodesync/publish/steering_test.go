package publish

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/nodesync/publish/steered"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
)

// steeredState is a State with a VIP in hardware on two hosts, and its tables.
func steeredState(generation model.Generation, weight uint32, before *store.State) *store.State {
	s := &store.State{HashKey: flowhash.Key{1}}
	s.Generation = generation
	if before != nil {
		s.State = before.State.Clone()
		s.Generation, s.HashKey = generation, before.HashKey
	}
	address := netip.MustParseAddr
	s.PutNode(model.Node{Name: "sw1", Role: model.RoleSwitch, Addresses: []netip.Addr{address("10.9.0.1")}})
	s.PutNode(model.Node{Name: "h1", Role: model.RoleHost, Addresses: []netip.Addr{address("10.1.0.1"), address("fd01::1")}})
	s.PutNode(model.Node{Name: "h2", Role: model.RoleHost, Addresses: []netip.Addr{address("10.2.0.1")}})
	vip := model.VIP{
		Name: "web", Address: address("203.0.113.10"),
		Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1", "gone"}, UDP: model.UDPAtHome},
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: []model.Backend{
			{Host: "h1", Address: address("10.1.0.5"), Port: 8080, Weight: weight}, {Host: "h2", Address: address("10.2.0.5"), Port: 8080, Weight: 10},
		}}},
	}
	s.PutVIP(vip)
	for key, table := range s.ChangedTables(vip, time.Unix(1000, 0), nil, nil) {
		s.Tables.Set(key, table)
	}
	return s
}

// hubOf has a State to tell hosts of.
func hubOf(s *store.State) *Hub { return &Hub{state: s, steered: steered.New(s.State)} }

// told says whether a host is told of a VIP that switches hold.
func told(c changes, host string) bool { return len(c.hosts[host].steering) > 0 }

// A host of a VIP in hardware is told where its packets belong, and who may bring and steer them; of a change of weights
// only which buckets move.
func TestHostsAreToldWhatToSteer(t *testing.T) {
	first := steeredState(7, 10, nil)
	hub := hubOf(first)
	f := &HostFeed{hub: hub, host: "h1", snapshotDue: true}
	u, due := f.Next(0)
	if !due || u.HashKey != first.HashKey {
		t.Fatalf("due: %t, the hash key: %t", due, u.HashKey == first.HashKey)
	}
	vips, err := steering.Apply(nil, u.Steering)
	if err != nil {
		t.Fatal(err)
	}
	vip := vips[netip.MustParseAddr("203.0.113.10")]
	if len(vip.Switches) != 1 || len(vip.Peers) != 5 || len(vip.Endpoints) != 1 || len(vip.Endpoints[0].Buckets) != 256 || len(vip.Endpoints[0].Backends) != 2 {
		t.Errorf("is told %+v", vip)
	}
	if u, _ := (&HostFeed{hub: hub, host: "h3", snapshotDue: true}).Next(0); !u.Steering.IsEmpty() {
		t.Error("a host that has nothing of the VIP is told of it")
	}

	second := steeredState(8, 9, first)
	c := newChanges(first, second, store.Delta{Tables: map[model.EndpointKey]bool{desired.Key(second.VIPs.At("web"), second.VIPs.At("web").Endpoints[0]): true}}, hub.steered)
	if !told(c, "h1") || !told(c, "h2") || !c.hosts["h1"].adds {
		t.Fatalf("hosts to tell: %+v", c.hosts)
	}
	if c := newChanges(first, second, store.Delta{Nodes: map[string]bool{"sw1": true}}, hub.steered); len(c.hosts) != 0 {
		t.Errorf("hosts are told of a switch that has not changed: %+v", c.hosts)
	}
	hub.state = second
	hub.steered.Apply(c.steered)
	f.add(c.hosts["h1"])
	u, _ = f.Next(0)
	if len(u.Steering.Changed) != 1 || len(u.Steering.Changed[0].Endpoints) != 1 {
		t.Fatalf("is told %+v", u.Steering)
	}
	change := u.Steering.Changed[0]
	if moves := len(change.Endpoints[0].Moves); !change.KeepsSources || !change.Endpoints[0].KeepsBackends || moves == 0 || moves > 16 {
		t.Errorf("is told %+v", change)
	}
}

// A switch that registers later, or that a VIP leaves, is told of to the VIP's hosts.
func TestHostsFollowSwitches(t *testing.T) {
	before := steeredState(7, 10, nil)
	after := steeredState(8, 10, before)
	after.PutNode(model.Node{Name: "gone", Role: model.RoleSwitch, Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.2")}})
	if c := newChanges(before, after, store.Delta{Nodes: map[string]bool{"gone": true}}, steered.New(before.State)); !told(c, "h1") || !told(c, "h2") {
		t.Errorf("a switch registers: %+v", c.hosts)
	}
	of := func(s *store.State) (steering.VIP, bool) { return nodeconfig.Steered(s.State, s.VIPs.At("web")) }
	if vip, _ := of(after); len(vip.Switches) != 2 {
		t.Errorf("hosts take packets from %v", vip.Switches)
	}
	address := netip.MustParseAddr("203.0.113.10")
	left := steeredState(9, 10, after)
	vip := left.VIPs.At("web")
	vip.Hardware = nil
	left.PutVIP(vip)
	left.Placements.Put(address, placementpolicy.State{VIP: "web", Places: map[string]placementpolicy.Place{"sw1": {Phase: placementpolicy.Leaving}}})
	if vip, held := of(left); !held || len(vip.Switches) != 1 || vip.Switches[0] != netip.MustParseAddr("10.9.0.1") {
		t.Errorf("while it leaves, hosts take packets from %v: %t", vip.Switches, held)
	}
	over := steeredState(10, 10, left)
	over.PutVIP(vip)
	over.Placements.Put(address, placementpolicy.State{})
	if _, held := of(over); held {
		t.Error("hosts steer a VIP that has left")
	}
	if c := newChanges(left, over, store.Delta{Placements: map[netip.Addr]bool{address: true}}, steered.New(left.State)); !told(c, "h1") {
		t.Errorf("hosts are not told: %+v", c.hosts)
	}
}

// The hosts of a VIP in hardware that workloads leave as are told whose ports are whose, before muxes and the workload are;
// so is a host with such a workload alone.
func TestHostsAreToldOfPorts(t *testing.T) {
	before := steeredState(7, 10, nil)
	vip := before.VIPs.At("web")
	workload := netip.MustParseAddr("10.3.0.5")
	vip.SNAT = &model.SNAT{Workloads: []model.SNATWorkload{{Address: workload, Host: "h3"}}}
	before.PutVIP(vip)
	after := steeredState(8, 10, before)
	after.PutVIP(vip)
	key := model.SNATKey{VIP: vip.Address, Address: workload}
	after.Ports.Set(key, snatport.Allocation{Ranges: []model.Range{200}})
	c := newChanges(before, after, store.Delta{Ports: map[model.SNATKey]bool{key: true}}, steered.New(before.State))
	for _, host := range []string{"h1", "h2", "h3"} {
		if !told(c, host) {
			t.Errorf("%s is not told: %+v", host, c.hosts[host])
		}
	}
	of := func(s *store.State) steering.VIP {
		steered, _ := nodeconfig.Steered(s.State, s.VIPs.At("web"))
		return steered
	}
	u := steering.Diff(map[netip.Addr]steering.VIP{vip.Address: of(before)}, map[netip.Addr]steering.VIP{vip.Address: of(after)})
	want := []steering.Move{{Bucket: 200, Slot: 200}}
	if len(u.Changed) != 1 || len(u.Changed[0].Endpoints) != 1 || !slices.Equal(u.Changed[0].Endpoints[0].Moves, want) {
		t.Errorf("is told %+v", u)
	}
	if e := of(after).Endpoints[0]; e.Key != steering.Ports(vip.Address) || e.Backends[0].Tunnel != workload {
		t.Errorf("the ports are %+v", e)
	}
	vip.Hardware = nil
	before.PutVIP(vip)
	after.PutVIP(vip)
	if c := newChanges(before, after, store.Delta{Ports: map[model.SNATKey]bool{key: true}}, steered.New(before.State)); told(c, "h1") {
		t.Error("hosts of a VIP that is in no switch are told")
	}
}
