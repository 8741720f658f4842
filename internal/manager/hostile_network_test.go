package manager

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wire"
)

// lake is a network of a tenant with one workload.
func lake(name, tenant string, vni uint32, host, port string) *weirv1.VirtualNetwork {
	return &weirv1.VirtualNetwork{
		Name: name, Tenant: tenant, Vni: vni, Prefixes: []string{"192.168.0.0/16"},
		Workloads: []*weirv1.NetworkWorkload{{Name: "web", Addresses: []string{"192.168.0.5"}, Mac: "02:00:00:00:00:01", Host: host, Interface: port}},
	}
}

// attachedTo is a VIP of a tenant that wants to be in a network.
func attachedTo(vip *weirv1.VIP, network, address string) *weirv1.VIP {
	vip.Attachments = append(vip.Attachments, &weirv1.Attachment{Network: network, Address: address})
	return vip
}

// newShore is a town with an overlay, the network bay of green, which has a workload and allows blue, and blue's VIP pier
// in it.
func newShore(t *testing.T) *town {
	t.Helper()
	town := newTown(t)
	bay := lake("bay", "green", 100, "host2", "tap0")
	bay.AllowedTenants = []string{"blue"}
	pier := leads("pier", "blue", "198.51.100.2", &weirv1.Backend{Address: "10.3.1.21", Port: 80, Host: "host1"})
	if _, err := town.admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Overlays: []*weirv1.Overlay{{Name: "default", Addresses: []string{"192.0.2.250"}}},
		Networks: []*weirv1.VirtualNetwork{bay}, Vips: []*weirv1.VIP{attachedTo(pier, "bay", "10.99.0.1")},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hosts have numbers, and there are keys", func() bool {
		s := town.m.store.State()
		town.generation = s.Generation
		return s.Networks.Numbers.Of("host1") != 0 && s.Networks.Numbers.Of("host2") != 0 && len(s.FBTMasters) > 0
	})
	return town
}

// A tenant's operator tries to come into another tenant's network, and to take what is its.
func TestHostileTenantOfNetworks(t *testing.T) {
	town := newShore(t)
	rose := func() *weirv1.VIP {
		return leads("rose", "red", "203.0.113.1", &weirv1.Backend{Address: "10.5.0.1", Port: 80, Host: "host1"})
	}
	long := strings.Repeat("n", 300)
	for what, c := range map[string]struct {
		request *weirv1.ApplyVIPsRequest
		want    string
	}{
		"a VIP without consent":         {&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{attachedTo(rose(), "bay", "10.99.0.2")}}, "no network bay allows tenant red"},
		"a network that is not there":   {&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{attachedTo(rose(), "gulf", "10.99.0.2")}}, "no network gulf allows tenant red"},
		"a network's name that is long": {&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{attachedTo(rose(), long, "10.99.0.2")}}, "must have at most 256 bytes"},
		"its VNI":                       {&weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{{Name: "pond", Tenant: "red", Vni: 100, Prefixes: []string{"10.0.0.0/8"}}}}, "100 is that of another tenant's network already"},
		"its network":                   {&weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{lake("bay", "red", 101, "host1", "tap9")}}, "bay is taken: take another name"},
		"a network for another tenant":  {&weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{lake("pond", "green", 101, "host2", "tap9")}}, "may not do that in tenant green"},
		"its host":                      {&weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{lake("pond", "red", 101, "host2", "tap9")}}, "host2 is not in backends.hosts of tenant red"},
		"its interface":                 {&weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{lake("pond", "red", 101, "host2", "tap0")}}, "tap0 of host2 is in another tenant's network already"},
		"a path for an interface":       {&weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{lake("pond", "red", 101, "host1", "../../x")}}, "must be the name of an interface"},
		"the overlay":                   {&weirv1.ApplyVIPsRequest{Overlays: []*weirv1.Overlay{{Name: "default", Addresses: []string{"203.0.113.9"}}}}, "may not write the overlay"},
		"the overlay's address":         {&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{leads("rose", "red", "192.0.2.250")}}, "192.0.2.250 is an address of the overlay"},
		"a client's address":            {&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{leads("rose", "red", "203.0.113.1", &weirv1.Backend{Address: "100.64.3.4", Port: 80, Host: "host1"})}}, "is in 100.64.0.0/10"},
	} {
		for _, dry := range []bool{false, true} {
			c.request.DryRun = dry
			refusedWith(t, what, failure(town.red.ApplyVIPs(t.Context(), c.request)), c.want)
		}
	}
	for what, call := range map[string]func() error{
		"get": func() error {
			return failure(town.red.GetVirtualNetwork(t.Context(), &weirv1.GetVirtualNetworkRequest{Name: "bay"}))
		},
		"patch": func() error {
			return failure(town.red.PatchVirtualNetwork(t.Context(), &weirv1.PatchVirtualNetworkRequest{Name: "bay"}))
		},
		"delete": func() error {
			return failure(town.red.DeleteVirtualNetwork(t.Context(), &weirv1.DeleteVirtualNetworkRequest{Name: "bay"}))
		},
	} {
		refusedWith(t, what, call(), "there is no network")
	}
	list, err := town.red.ListVirtualNetworks(t.Context(), &weirv1.ListVirtualNetworksRequest{})
	if err != nil || len(list.GetNetworks()) > 0 {
		t.Errorf("red lists %v: %v", list.GetNetworks(), err)
	}
	if after := town.m.store.State().Generation; after != town.generation {
		t.Errorf("the generation went from %d to %d", town.generation, after)
	}
}

// The network's tenant, who may not see blue's VIP, sees that one is there, and can end it without blue.
func TestConsentIsWithdrawn(t *testing.T) {
	town := newShore(t)
	get := func() *weirv1.VirtualNetwork {
		t.Helper()
		r, err := town.green.GetVirtualNetwork(t.Context(), &weirv1.GetVirtualNetworkRequest{Name: "bay"})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetNetwork()
	}
	bay := get()
	if vips := bay.GetStatus().GetVips(); len(vips) != 1 || vips[0].GetAddress() != "10.99.0.1" || vips[0].GetVip() != "" || vips[0].GetTenant() != "blue" {
		t.Errorf("green sees %v", vips)
	}
	condition(t, town.admin, "true", "Attached")
	remove := func() error {
		return failure(town.green.DeleteVirtualNetwork(t.Context(), &weirv1.DeleteVirtualNetworkRequest{Name: "bay"}))
	}
	refusedWith(t, "a network with a VIP", remove(), "bay has 1 VIPs (of other tenants)")
	refusedWith(t, "the overlay", failure(town.admin.DeleteOverlay(t.Context(), &weirv1.DeleteOverlayRequest{})), "VIP pier is attached to network bay")
	bay.AllowedTenants = nil
	if _, err := town.green.UpdateVirtualNetwork(t.Context(), &weirv1.UpdateVirtualNetworkRequest{Name: "bay", Network: bay}); err != nil {
		t.Fatal(err)
	}
	condition(t, town.admin, "false", "NotAllowed")
	if vips := get().GetStatus().GetVips(); len(vips) > 0 {
		t.Errorf("it still has %v", vips)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	condition(t, town.admin, "false", "NetworkNotFound")
}

// condition holds that the VIP pier is attached, or is not, for that reason.
func condition(t *testing.T, client *rpc.Client, status, reason string) {
	t.Helper()
	r, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "pier"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.GetVip().GetStatus().GetConditions() {
		if c.GetType() == "attached" {
			if c.GetStatus() != status || c.GetReason() != reason {
				t.Errorf("attached is %s, %s: %s; want %s, %s", c.GetStatus(), c.GetReason(), c.GetMessage(), status, reason)
			}
			return
		}
	}
	t.Errorf("no condition says whether it is attached")
}

// told is what the manager tells a host of virtual networks, until done says that it is enough.
func told(t *testing.T, host *rpc.Client, name, address string, done func(hostNetworks) bool) (n hostNetworks) {
	t.Helper()
	stream, err := host.SyncHost(t.Context(), &weirv1.SyncHostRequest{Name: name, Addresses: []string{address}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		u, err := wire.HostUpdateFromProto(stream.Msg())
		if err != nil {
			t.Fatal(err)
		}
		if n.apply(u); done(n) {
			return n
		}
	}
	t.Fatalf("the stream ended: %v", stream.Err())
	return n
}

// A VIP's tenant is not told who its clients in another tenant's network are; that tenant is not told of the VIP.
func TestClientsOfNetworksAreTheirTenants(t *testing.T) {
	town := newShore(t)
	host := &fakeHost{name: "host1", client: joinedNode(t, town.admin, town.url, trust.Host, "host1", "10.2.1.1"), connections: 2}
	goFollow(t, host.name, func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error) {
		return host.client.SyncHost(ctx, &weirv1.SyncHostRequest{Name: host.name, Addresses: []string{"10.2.1.1"}, Version: "test"})
	}, func(p *weirv1.SyncHostResponse) error { return host.answer(p.GetTasks()) })
	request := &weirv1.ListConnectionsRequest{Vip: "pier"}
	eventually(t, "the host answers", func() bool {
		page, err := town.admin.ListConnections(t.Context(), request)
		return err == nil && len(page.GetConnections()) == 2 && page.GetConnections()[0].GetClient() == "192.168.0.5:10"
	})
	page, err := operator(t, town.m, town.admin, town.url, "bob", "blue").ListConnections(t.Context(), request)
	if err != nil || len(page.GetConnections()) != 2 {
		t.Fatalf("the VIP's tenant lists %v, %v", page.GetConnections(), err)
	}
	for _, c := range page.GetConnections() {
		if c.GetClient() != "" || c.GetNetwork() != "bay" {
			t.Errorf("the VIP's tenant is told of %v", c)
		}
	}
	refusedWith(t, "the network's tenant", failure(town.green.ListConnections(t.Context(), request)), "there is no VIP")
}

// A host that has joined gets nothing of networks that it has nothing to do with, and of one that it serves its own key,
// under its own number, and who its clients are.
func TestHostileHostOfNetworks(t *testing.T) {
	town := newShore(t)
	ctx := t.Context()
	evil := joinedNode(t, town.admin, town.url, trust.Host, "evil")
	none := told(t, evil, "evil", "10.2.9.9", func(hostNetworks) bool { return true })
	if none.last.Number != 0 || len(none.keys)+len(none.attachments)+len(none.hosts)+len(none.networks)+len(none.last.Addresses) > 0 {
		t.Errorf("a host without workloads is told %+v", none)
	}
	for _, name := range []string{"host1", "host2"} {
		refusedWith(t, "as "+name, syncs(t, evil, name, "10.2.9.9"), "host/evil")
	}
	jetty := leads("jetty", "blue", "198.51.100.3", &weirv1.Backend{Address: "10.3.1.31", Port: 80, Host: "evil"})
	if _, err := town.admin.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{attachedTo(jetty, "bay", "10.99.0.3")}}); err != nil {
		t.Fatal(err)
	}
	n := told(t, evil, "evil", "10.2.9.9", func(n hostNetworks) bool { return n.last.Number != 0 && len(n.keys) > 0 })
	s := town.m.store.State()
	numbers := map[uint32]string{}
	for _, host := range []string{"host1", "host2", "evil"} {
		numbers[s.Networks.Numbers.Of(host)] = host
	}
	if len(numbers) != 3 || numbers[0] != "" || numbers[n.last.Number] != "evil" || !slices.Equal(n.keys, fbt.HostKeys(s.FBTMasters, "evil")) {
		t.Errorf("numbers are %v, it is told %d and %v", numbers, n.last.Number, n.keys)
	}
	for _, host := range []string{"host1", "host2"} {
		for _, key := range fbt.HostKeys(s.FBTMasters, host) {
			if slices.ContainsFunc(n.keys, func(has fbt.Key) bool { return has.Secret == key.Secret }) {
				t.Errorf("it has a key of %s", host)
			}
		}
	}
	// Its client is on host2; host1 serves another VIP of the network, which is none of its business.
	if _, knows := n.hosts[s.Networks.Numbers.Of("host1")]; knows || len(n.hosts) != 2 || len(n.attachments) != 1 || len(n.networks[100].Ports) > 0 {
		t.Errorf("it is told of %v, %v and %v", n.hosts, n.attachments, n.networks)
	}
}
