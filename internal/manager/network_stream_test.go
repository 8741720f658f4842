package manager

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/nodesync/publish"
	"github.com/weirlb/weir/internal/rpc"
)

var (
	bayKey  = vnet.AttachmentKey{VNI: 100, VIP: netip.MustParseAddr("10.99.0.1")}
	dockKey = model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
)

// bay is a network with workloads on hosts.
func bay(hosts ...string) *weirv1.VirtualNetwork {
	n := &weirv1.VirtualNetwork{Name: "bay", Tenant: "acme", Vni: 100, Prefixes: []string{"192.168.0.0/16"}}
	for i, host := range hosts {
		n.Workloads = append(n.Workloads, &weirv1.NetworkWorkload{
			Name: "web-" + host, Addresses: []string{"192.168.0." + string(rune('5'+i))}, Mac: "02:00:00:00:00:01", Host: host, Interface: "tap0",
		})
	}
	return n
}

// A host without an agent gets a number and no key, muxes and the server's host are told of it, and of the MAC by which it
// sends; when a node comes to have its address, it is that node's.
func TestHostsWithoutAgentHaveNumbers(t *testing.T) {
	url, mux, host1, _ := world(t, time.Hour)
	vtep := netip.MustParseAddr("10.8.0.5")
	n := bay()
	n.WithoutAgent = &weirv1.WithoutAgent{Vteps: []string{vtep.String()}}
	applyDock(t, url, n)
	bare := func() (h vnet.MuxHost, gateway vnet.MAC) {
		mux.mu.Lock()
		defer mux.mu.Unlock()
		for _, h = range mux.networks.hosts {
			if slices.Contains(h.Addresses, vtep) {
				return h, mux.networks.attachments[bayKey].GatewayMAC
			}
		}
		return vnet.MuxHost{}, vnet.MAC{}
	}
	eventually(t, "the mux knows it", func() bool { h, _ := bare(); return h.Number != 0 })
	h, gateway := bare()
	if h.Agent || h.Server || h.Name != "" || !slices.Equal(h.VNIs, []uint32{100}) || gateway != vnet.DefaultGatewayMAC {
		t.Errorf("it is told of %+v, and of the gateway %s", h, gateway)
	}
	host1.mu.Lock()
	if of := host1.networks.hosts[h.Number]; of.V4 != vtep || !of.WithoutAgent || !of.Client {
		t.Errorf("the server's host knows %+v", of)
	}
	host1.mu.Unlock()
	startHost(t, url, "host9", vtep.String())
	eventually(t, "it is a node's", func() bool { h, _ := bare(); return h.Number == 0 })
}

// dock is a VIP with a backend on host1, in the network bay.
func dock() *weirv1.VIP {
	vip := shop()
	vip.Endpoints[0].Backends = vip.Endpoints[0].Backends[:1]
	vip.Endpoints[0].HealthCheck = nil
	return attachedTo(vip, "bay", "10.99.0.1")
}

// applyDock applies the overlay, a network and the VIP.
func applyDock(t *testing.T, url string, n *weirv1.VirtualNetwork) {
	t.Helper()
	if _, err := dial(t, url).ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Overlays: []*weirv1.Overlay{{Name: "default", Addresses: []string{"192.0.2.250"}}}, Networks: []*weirv1.VirtualNetwork{n}, Vips: []*weirv1.VIP{dock()},
	}); err != nil {
		t.Fatal(err)
	}
}

// What a mux and hosts get of a VIP in a network: each host what it has to do with, and no key but its own.
func TestNetworksReachMuxesAndHosts(t *testing.T) {
	url, mux, host1, host2 := world(t, time.Hour)
	host3 := startHost(t, url, "host3", "10.2.3.2", "fd00:2::3")
	apply(t, url, shop())
	eventually(t, "the mux has the tables", func() bool { mux.mu.Lock(); defer mux.mu.Unlock(); return len(mux.tables) == 1 })
	mux.mu.Lock()
	if mux.networks.last.Addresses != nil || len(mux.networks.attachments)+len(mux.networks.hosts)+len(mux.networks.last.Masters) > 0 {
		t.Errorf("without networks a mux is told of %+v", mux.networks)
	}
	mux.mu.Unlock()
	applyDock(t, url, bay("host2"))
	eventually(t, "the mux has all of it", func() bool {
		mux.mu.Lock()
		defer mux.mu.Unlock()
		n := mux.networks
		backends := mux.tables[dockKey].Backends
		return len(n.attachments) == 1 && len(n.hosts) == 2 && len(n.last.Masters) == 2 && len(backends) > 0 && backends[0].Host != 0
	})
	mux.mu.Lock()
	n, masters := mux.networks, mux.networks.last.Masters
	server, client := n.host("host1"), n.host("host2")
	want := vnet.Attachment{AttachmentKey: bayKey, Service: dockKey.VIP, Network: "bay", GatewayMAC: vnet.DefaultGatewayMAC, Relay: true}
	if n.attachments[bayKey] != want {
		t.Errorf("attachments are %v", n.attachments)
	}
	if !server.Server || server.VNIs != nil || client.Server || !slices.Equal(client.VNIs, []uint32{100}) || !server.Agent || !client.Agent {
		t.Errorf("hosts are %+v", n.hosts)
	}
	if !slices.Equal(n.last.Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.250")}) || mux.tables[dockKey].Backends[0].Host != server.Number {
		t.Errorf("overlay %v, backends %v", n.last.Addresses, mux.tables[dockKey].Backends)
	}
	mux.mu.Unlock()
	host1.mu.Lock()
	if of := host1.networks; of.last.Number != server.Number || !slices.Equal(of.keys, fbt.HostKeys(masters, "host1")) || of.attachments[bayKey].Service != dockKey.VIP ||
		!of.hosts[client.Number].Client || of.hosts[client.Number].V4 != netip.MustParseAddr("10.2.2.2") || len(of.networks[100].Ports) > 0 || of.networks[100].Tenant != "acme" {
		t.Errorf("the server's host has %+v", of)
	}
	host1.mu.Unlock()
	host2.mu.Lock()
	if of := host2.networks; of.last.Number != client.Number || len(of.keys) > 0 || len(of.networks[100].Ports) != 1 || of.networks[100].Ports[0].Interface != "tap0" ||
		!slices.Equal(of.hosts[server.Number].Tunnels, []netip.Addr{netip.MustParseAddr("10.3.1.11")}) || of.hosts[server.Number].Client {
		t.Errorf("the client's host has %+v", of)
	}
	host2.mu.Unlock()
	host3.mu.Lock()
	if of := host3.networks; of.last.Number != 0 || len(of.attachments)+len(of.hosts)+len(of.networks)+len(of.keys) > 0 || of.last.Addresses != nil {
		t.Errorf("a host that has nothing to do with it has %+v", of)
	}
	host3.mu.Unlock()
}

// A server's host knows its clients' hosts before a mux sends to it, and forgets them after the mux has.
func TestMuxesSendOnlyToHostsThatKnow(t *testing.T) {
	url, mux, host1, host2 := world(t, time.Hour)
	applyDock(t, url, bay())
	knows := func() bool {
		mux.mu.Lock()
		defer mux.mu.Unlock()
		return len(mux.networks.attachments) == 1 && mux.networks.host("host1").Server && len(mux.networks.last.Masters) == 2
	}
	eventually(t, "the mux knows the server", knows)
	client := dial(t, url)
	update := func(n *weirv1.VirtualNetwork) (generation uint64) {
		t.Helper()
		updated, err := client.UpdateVirtualNetwork(t.Context(), &weirv1.UpdateVirtualNetworkRequest{Name: "bay", Network: n})
		if err != nil {
			t.Fatal(err)
		}
		return updated.Generation
	}
	onHost1 := func() (clients int) {
		host1.mu.Lock()
		defer host1.mu.Unlock()
		for _, h := range host1.networks.hosts {
			if h.Client {
				clients++
			}
		}
		return clients
	}
	onMux := func() bool { mux.mu.Lock(); defer mux.mu.Unlock(); return len(mux.networks.host("host2").VNIs) == 1 }
	host1.set(true)
	update(bay("host2"))
	eventually(t, "the server's host knows the client's", func() bool { return onHost1() == 1 })
	if onMux() {
		t.Error("the mux takes the client's packets before the server's host has acknowledged that it knows it")
	}
	host1.set(false)
	if err := host1.report(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mux takes the client's packets", onMux)

	mux.setMute(true)
	without := update(bay())
	eventually(t, "the mux knows the client no more", func() bool { return !onMux() })
	eventually(t, "the client's host has the news", func() bool { return host2.has(without) })
	if onHost1() != 1 {
		t.Error("the server's host forgot the client before the mux acknowledged that it did")
	}
	mux.setMute(false)
	mux.mu.Lock()
	m := mux.generation
	mux.mu.Unlock()
	if _, err := mux.client.ReportMux(t.Context(), &weirv1.ReportMuxRequest{Name: "mux1", Generation: uint64(m), Status: &weirv1.MuxStatus{}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server's host forgets it too", func() bool { return onHost1() == 0 })
}

// Numbers and keys outlive a manager; keys change in time, and each is known before it makes anything.
func TestNumbersAndKeysOutliveTheManager(t *testing.T) {
	dir := t.TempDir()
	var first *Manager
	url, stop := start(t, Config{DataDir: dir}, func(m *Manager) { m.hub.Grace, first = publish.HostsGrace, m })
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	client := dial(t, url)
	eventually(t, "hosts are registered", func() bool { return nodes(t, client) == 2 })
	applyDock(t, url, bay("host2"))
	eventually(t, "there are numbers and keys", func() bool {
		s := first.store.State()
		return s.Networks.Numbers.Of("host1") != 0 && s.Networks.Numbers.Of("host2") != 0 && len(s.FBTMasters) == 2
	})
	before := first.store.State()
	stop()
	var again *Manager
	start(t, Config{DataDir: dir}, func(m *Manager) { again = m })
	after := again.store.State()
	for _, host := range []string{"host1", "host2"} {
		if was, is := before.Networks.Numbers.Of(host), after.Networks.Numbers.Of(host); was != is || after.Networks.Numbers.HostOf(is) != host {
			t.Errorf("%s had number %d and has %d", host, was, is)
		}
	}
	if !slices.Equal(before.FBTMasters, after.FBTMasters) {
		t.Errorf("masters were %v and are %v", before.FBTMasters, after.FBTMasters)
	}
	next := fbt.NextMasters(after.FBTMasters, after.FBTMasters[1].Made.Add(time.Hour), time.Hour, func() [32]byte { return [32]byte{1} })
	if fbt.Makes(next) != after.FBTMasters[1].ID {
		t.Errorf("keys of %d make FBTs, which nobody has yet", fbt.Makes(next))
	}
}

// Which backend a client of a network gets is told to who may see the VIP, and where the client is to who may see the
// network.
func TestExplainInANetwork(t *testing.T) {
	town := newShore(t)
	s := town.m.store.State()
	ask := func(client *rpc.Client, network, source, destination string, port uint32) (*weirv1.ExplainResponse, error) {
		return client.Explain(t.Context(), &weirv1.ExplainRequest{
			Protocol: "TCP", SourceAddress: source, SourcePort: 40000, DestinationAddress: destination, DestinationPort: port, Network: network,
		})
	}
	flow := model.Flow{
		VNI: 100, Protocol: model.TCP, Source: netip.MustParseAddrPort("192.168.0.5:40000"), Destination: netip.MustParseAddrPort("10.99.0.1:80"),
	}
	r, err := ask(town.admin, "bay", "192.168.0.5", "10.99.0.1", 80)
	if err != nil || r.GetVip() != "pier" || r.GetHash() != s.HashKey.Sum(flow) || r.GetBackend().GetHost() != "host1" {
		t.Fatalf("%v, %v", r, err)
	}
	text := strings.Join(r.GetSteps(), "\n")
	for _, want := range []string{"192.168.0.5 is workload web, behind tap0 of host host2", "in network 100", "inserts an FBT", "VXLAN to 10.3.1.21", "to an address of 100.64.0.0/10"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	blue := operator(t, town.m, town.admin, town.url, "bob", "blue")
	r, err = ask(blue, "bay", "192.168.0.5", "10.99.0.1", 80)
	if err != nil || strings.Contains(strings.Join(r.GetSteps(), "\n"), "host2") {
		t.Errorf("the VIP's tenant is told %v, %v", r.GetSteps(), err)
	}
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"another tenant's VIP": {failure(ask(town.red, "bay", "192.168.0.5", "10.99.0.1", 80)), `no VIP of yours has the address 10.99.0.1 in network "bay"`},
		"no such network":      {failure(ask(town.red, "gulf", "192.168.0.5", "10.99.0.1", 80)), `no VIP of yours has the address 10.99.0.1 in network "gulf"`},
		"no such VIP":          {failure(ask(blue, "bay", "192.168.0.5", "10.99.0.2", 80)), `no VIP of yours has the address 10.99.0.2 in network "bay"`},
		"no such port":         {failure(ask(blue, "bay", "192.168.0.5", "10.99.0.1", 81)), "VIP pier has no endpoint TCP 81: muxes drop the flow"},
	} {
		refusedWith(t, what, c.err, c.want)
	}
}

// Both sides of an attachment hear of it when consent comes and goes, each of its own.
func TestEventsOfAttachments(t *testing.T) {
	town := newShore(t)
	happened := func(kind, object, why string) *weirv1.Event {
		list, err := town.admin.ListEvents(t.Context(), &weirv1.ListEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.GetEvents() {
			if e.GetKind() == kind && e.GetObject() == object && e.GetReason() == why {
				return e
			}
		}
		return nil
	}
	eventually(t, "the network's first event", func() bool { return happened("VirtualNetwork", "bay", "Attached") != nil })
	r, err := town.green.GetVirtualNetwork(t.Context(), &weirv1.GetVirtualNetworkRequest{Name: "bay"})
	if err != nil {
		t.Fatal(err)
	}
	closed := proto.CloneOf(r.GetNetwork())
	closed.AllowedTenants, closed.ResourceVersion = nil, 0
	open := proto.CloneOf(r.GetNetwork())
	open.ResourceVersion = 0
	for _, n := range []*weirv1.VirtualNetwork{closed, open} {
		if _, err := town.green.UpdateVirtualNetwork(t.Context(), &weirv1.UpdateVirtualNetworkRequest{Name: "bay", Network: n}); err != nil {
			t.Fatal(err)
		}
		want := map[bool][2]string{true: {"NotAllowed", "Detached"}, false: {"Attached", "Attached"}}[n == closed]
		eventually(t, "events of the VIP and of the network", func() bool {
			return happened("VIP", "pier", want[0]) != nil && happened("VirtualNetwork", "bay", want[1]) != nil
		})
		ofVIP, ofNetwork := happened("VIP", "pier", want[0]), happened("VirtualNetwork", "bay", want[1])
		if ofVIP.GetTenant() != "blue" || ofNetwork.GetTenant() != "green" || (ofVIP.GetSeverity() == "warning") != (n == closed) || strings.Contains(ofNetwork.GetMessage(), "pier") {
			t.Errorf("the VIP hears %v, the network %v", ofVIP, ofNetwork)
		}
	}
}
