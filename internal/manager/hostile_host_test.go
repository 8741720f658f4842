package manager

import (
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// joinedNode is a client of a node that joined by a token of its own.
func joinedNode(t *testing.T, admin *rpc.Client, url string, kind trust.Kind, name string, addresses ...string) *rpc.Client {
	t.Helper()
	joins := member(t, admin, url, &weirv1.CreateTokenRequest{Role: string(kind), Name: name, Addresses: addresses}, kind, name)
	if err := joins.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := joins.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// syncs is what the manager answers a host that registers with addresses.
func syncs(t *testing.T, host *rpc.Client, name string, addresses ...string) error {
	t.Helper()
	stream, err := host.SyncHost(t.Context(), &weirv1.SyncHostRequest{Name: name, Addresses: addresses, Version: "test"})
	if err != nil {
		return err
	}
	defer stream.Close()
	stream.Receive()
	return stream.Err()
}

// A host that has joined says that it has what is others'.
func TestHostileHostClaimsAddresses(t *testing.T) {
	town := newTown(t)
	if _, err := town.admin.CreateAddressPool(t.Context(), &weirv1.CreateAddressPoolRequest{
		Pool: &weirv1.AddressPool{Name: "lagoon", Prefixes: []string{"192.0.2.0/28"}},
	}); err != nil {
		t.Fatal(err)
	}
	evil := joinedNode(t, town.admin, town.url, trust.Host, "evil")
	bound := joinedNode(t, town.admin, town.url, trust.Host, "bound", "10.2.7.0/24", "192.0.2.3/32")
	for what, c := range map[string]struct {
		client    *rpc.Client
		name      string
		addresses []string
		want      string
	}{
		"another host's":           {evil, "evil", []string{"10.2.9.9", "10.2.1.1"}, "addresses[1]: 10.2.1.1 is an address of node host1"},
		"another host's of IPv6":   {evil, "evil", []string{"fd00:2::1"}, "is an address of node host1"},
		"another host's workload":  {evil, "evil", []string{"10.3.1.11"}, "leads to a backend of VIP sea on host1"},
		"a VIP":                    {evil, "evil", []string{"198.51.100.1"}, "is the address of VIP sea"},
		"a tenant's, no VIP's yet": {evil, "evil", []string{"198.51.100.9"}, "is in the ranges of a tenant"},
		"a pool's":                 {evil, "evil", []string{"192.0.2.3"}, "is of pool lagoon"},
		"another host's name":      {evil, "host1", []string{"10.2.1.1"}, "host/evil"},
		"what it did not join for": {bound, "bound", []string{"10.2.7.1", "10.2.8.1"}, "addresses[1]: 10.2.8.1 is not in what bound joined for: 10.2.7.0/24, 192.0.2.3/32"},
	} {
		refusedWith(t, what, syncs(t, c.client, c.name, c.addresses...), c.want)
	}
	for _, name := range []string{"evil", "bound"} {
		if town.m.store.State().Nodes.Has(name) {
			t.Errorf("%s is registered", name)
		}
	}
	if err := syncs(t, bound, "bound", "10.2.7.1", "192.0.2.3"); err != nil && !strings.Contains(err.Error(), "canceled") {
		t.Errorf("what it joined for: %v", err)
	}
	// Who joins anew is bound by the new token, with the addresses that it had.
	again := joinedNode(t, town.admin, town.url, trust.Host, "bound", "10.2.7.9/32")
	refusedWith(t, "what it joined for before", syncs(t, again, "bound", "10.2.7.1", "192.0.2.3"), "10.2.7.1 is not in what bound joined for")

	made, err := town.admin.ListPrincipals(t.Context(), &weirv1.ListPrincipalsRequest{})
	if err != nil || !slices.ContainsFunc(made.GetPrincipals(), func(m *weirv1.Principal) bool {
		return m.GetName() == "bound" && slices.Equal(m.GetAddresses(), []string{"10.2.7.9/32"})
	}) {
		t.Errorf("members are %v, %v", made, err)
	}
	_, err = town.admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: "manager", Addresses: []string{"10.0.0.0/8"}})
	refusedWith(t, "a manager's token", err, "addresses: are for muxes, agents and switches")
	_, err = town.admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: "host", Addresses: []string{"10.0.0.1/8"}})
	refusedWith(t, "a prefix", err, "addresses[0]: has bits behind the prefix")
}

// A host that has joined, and is registered, tells of what is on other hosts.
func TestHostileHostTellsOfOthers(t *testing.T) {
	town := newTown(t)
	ctx := t.Context()
	evil := joinedNode(t, town.admin, town.url, trust.Host, "evil")
	if err := syncs(t, evil, "evil", "10.2.9.9"); err != nil {
		t.Fatal(err)
	}
	sea, err := town.admin.GetVIP(ctx, &weirv1.GetVIPRequest{Name: "sea"})
	if err != nil {
		t.Fatal(err)
	}
	checked := sea.GetVip()
	checked.Endpoints[0].HealthCheck = &weirv1.HealthCheck{Check: &weirv1.HealthCheck_Tcp{}}
	mine := leads("mine", "teal", "192.0.2.98", &weirv1.Backend{Address: "10.9.9.1", Port: 80, Host: "evil"})
	if _, err := town.admin.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{checked, mine}}); err != nil {
		t.Fatal(err)
	}
	const lure = "call +1-555-0100 to have your service restored"
	endpoint := &weirv1.EndpointKey{Vip: "198.51.100.1", Protocol: "TCP", Port: 80}
	report := &weirv1.ReportHostRequest{
		Name: "evil", Status: &weirv1.HostStatus{Uplink: "eth0"},
		Health: []*weirv1.BackendHealth{{Endpoint: endpoint, Address: "10.3.1.11", Port: 8080, Health: "unhealthy", Reason: lure}},
	}
	for _, reason := range []string{"SessionQuotaOn", "SessionQuotaOff", "SNATQuotaOn", "SNATQuotaOff", "SYNCookiesOn", "ShareOn", lure} {
		report.Events = append(report.Events,
			&weirv1.MuxEvent{Vip: "198.51.100.1", Reason: reason, Message: lure, Warning: true}, &weirv1.MuxEvent{Endpoint: endpoint, Reason: reason, Message: lure})
	}
	report.Events = append(report.Events, &weirv1.MuxEvent{Vip: "192.0.2.98", Reason: "SessionQuotaOn", Message: lure, Used: 7, Limit: 8})
	eventually(t, "the report is taken", func() bool { _, err := evil.ReportHost(ctx, report); return err == nil })
	var told []*weirv1.Event
	eventually(t, "the event of what is its own", func() bool {
		list, err := town.admin.ListEvents(ctx, &weirv1.ListEventsRequest{})
		told = slices.DeleteFunc(list.GetEvents(), func(e *weirv1.Event) bool { return e.GetSource() != "evil" })
		return err == nil && len(told) > 0
	})
	for _, e := range told {
		if e.GetObject() != "mine" || e.GetMessage() != "192.0.2.98: has 7 of at most 8 sessions: more make way for each other" {
			t.Errorf("it wrote %v", e)
		}
	}
	if now, err := town.admin.GetVIP(ctx, &weirv1.GetVIPRequest{Name: "sea"}); err != nil || strings.Contains(now.String(), lure) || strings.Contains(now.String(), "unhealthy") {
		t.Errorf("of another host's backend it said %v, %v", now, err)
	}
	callsForOthers(t, evil)
}

// callsForOthers calls as other nodes, and for other hosts' workloads.
func callsForOthers(t *testing.T, evil *rpc.Client) {
	t.Helper()
	ctx := t.Context()
	for what, c := range map[string]struct{ call func() error }{
		"its name": {func() error {
			return failure(evil.ReportHost(ctx, &weirv1.ReportHostRequest{Name: "host1", Status: &weirv1.HostStatus{}}))
		}},
		"a mux's report": {func() error {
			return failure(evil.ReportMux(ctx, &weirv1.ReportMuxRequest{Name: "evil", Status: &weirv1.MuxStatus{}}))
		}},
		"ports of its workload": {func() error {
			return failure(evil.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{Name: "evil", Vip: "198.51.100.1", Address: "10.3.1.12"}))
		}},
		"ports of its workload, given back": {func() error {
			return failure(evil.ReleasePorts(ctx, &weirv1.ReleasePortsRequest{Name: "evil", Vip: "198.51.100.1", Address: "10.3.1.12", Ranges: []uint32{128}}))
		}},
	} {
		if err := c.call(); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}
