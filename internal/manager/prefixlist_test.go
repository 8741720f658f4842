package manager

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// long is a list of so many prefixes of each family.
func long(name string, n int) *weirv1.PrefixList {
	list := &weirv1.PrefixList{Name: name}
	for i := range n {
		list.Prefixes = append(list.Prefixes, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&0xffff))
	}
	return list
}

// guarded is the shop with an endpoint that names these lists.
func guarded(allow, deny []string) *weirv1.VIP {
	vip := shop()
	vip.Endpoints[0].AllowLists, vip.Endpoints[0].DenyLists = allow, deny
	return vip
}

func applyAll(t *testing.T, client *rpc.Client, r *weirv1.ApplyVIPsRequest) *weirv1.ApplyVIPsResponse {
	t.Helper()
	response, err := client.ApplyVIPs(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// lists are those of a mux, as texts.
func (m *fakeMux) listsNow() map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[string][]string{}
	for name, set := range m.lists {
		now[name] = compile.PrefixSetTexts(set)
	}
	return now
}

func TestPrefixListsByTheAPI(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	eventually(t, "hosts are there", func() bool { return len(nodesOf(t, client)) == 2 })
	ctx := t.Context()
	want := func(what string, err error, text string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	want("a list that is not there", failure(client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{guarded(nil, []string{"blocked"})}})),
		"vips[0].endpoints[0].denyLists[0]: there is no prefix list blocked for tenant acme: there is none yet, apply a PrefixList first")
	want("a wrong prefix", failure(client.CreatePrefixList(ctx, &weirv1.CreatePrefixListRequest{PrefixList: &weirv1.PrefixList{
		Name: "blocked", Prefixes: []string{"10.0.0.0/8", "10.0.0.1/8"},
	}})), "prefixes[1]: must have no bits set behind its length, is 10.0.0.1/8: did you mean 10.0.0.0/8?")
	made, err := client.CreatePrefixList(ctx, &weirv1.CreatePrefixListRequest{PrefixList: &weirv1.PrefixList{
		Name: "blocked", Labels: map[string]string{"team": "web"}, Prefixes: []string{"10.0.0.0/8", "2001:db8::/32", "10.0.0.0/8"},
	}})
	if err != nil || made.GetPrefixList().GetStatus().GetIpv4() != 1 || made.GetPrefixList().GetStatus().GetIpv6() != 1 {
		t.Fatalf("created as %v, %v", made, err)
	}
	want("it again", failure(client.CreatePrefixList(ctx, &weirv1.CreatePrefixListRequest{PrefixList: &weirv1.PrefixList{Name: "blocked"}})), "there is a prefix list blocked already")
	applyAll(t, client, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{guarded(nil, []string{"blocked"})}})
	want("deletion while it is named", failure(client.DeletePrefixList(ctx, &weirv1.DeletePrefixListRequest{Name: "blocked"})), "endpoints of 1 VIPs name blocked: there are shop: take it out of them first")
	changed, err := client.ChangePrefixList(ctx, &weirv1.ChangePrefixListRequest{
		Name: "blocked", Add: []string{"11.0.0.0/8", "10.0.0.0/8"}, Remove: []string{"2001:db8::/32", "12.0.0.0/8"}, ResourceVersion: made.GetPrefixList().GetResourceVersion(),
	})
	if err != nil || changed.GetAdded() != 1 || changed.GetRemoved() != 1 {
		t.Errorf("changed as %v, %v", changed, err)
	}
	want("an old version", failure(client.ChangePrefixList(ctx, &weirv1.ChangePrefixListRequest{Name: "blocked", Add: []string{"1.1.1.1"}, ResourceVersion: 1})), "blocked")
	got, err := client.GetPrefixList(ctx, &weirv1.GetPrefixListRequest{Name: "blocked"})
	if p := got.GetPrefixList(); err != nil || !slices.Equal(p.GetPrefixes(), []string{"10.0.0.0/8", "11.0.0.0/8"}) || p.GetLabels()["team"] != "web" ||
		!slices.Equal(p.GetStatus().GetVips(), []string{"shop"}) {
		t.Errorf("got %v, %v", got, err)
	}
	explained, err := client.Explain(ctx, &weirv1.ExplainRequest{Protocol: "TCP", SourceAddress: "11.2.3.4", SourcePort: 7, DestinationAddress: "203.0.113.10", DestinationPort: 80})
	if err != nil || !strings.Contains(strings.Join(explained.GetSteps(), "\n"), "11.0.0.0/8 in prefix list blocked") {
		t.Errorf("explained as %v, %v", explained, err)
	}
	same := applyAll(t, client, &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{{Name: "blocked", Labels: map[string]string{"team": "web"}, Prefixes: []string{"11.0.0.0/8", "10.0.0.0/8"}}}})
	if same.GetPrefixLists()[0].GetChange() != rpc.Unchanged {
		t.Errorf("the same again is %v", same)
	}
	dry := applyAll(t, client, &weirv1.ApplyVIPsRequest{DryRun: true, PrefixLists: []*weirv1.PrefixList{long("more", 5)}, Vips: []*weirv1.VIP{guarded([]string{"more"}, nil)}})
	if p := dry.GetPrefixLists()[0]; p.GetChange() != rpc.Created || p.GetAdded() != 10 {
		t.Errorf("a dry run says %v", dry)
	}
	want("what a dry run made", failure(client.GetPrefixList(ctx, &weirv1.GetPrefixListRequest{Name: "more"})), "there is no prefix list")
	applyAll(t, client, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}})
	if _, err := client.DeletePrefixList(ctx, &weirv1.DeletePrefixListRequest{Name: "blocked"}); err != nil {
		t.Error(err)
	}
	if all, err := client.ListPrefixLists(ctx, &weirv1.ListPrefixListsRequest{}); err != nil || len(all.GetPrefixLists()) > 0 {
		t.Errorf("left are %v, %v", all, err)
	}
}

// TestPrefixListsReachMuxes in pieces, and only what differs when they change, when a mux comes back, and when the manager is another.
func TestPrefixListsReachMuxes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url, stop := start(t, Config{DataDir: dir})
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	mux := startMux(t, url, "mux1", "10.1.1.1")
	eventually(t, "nodes are there", func() bool { return len(nodesOf(t, client)) == 3 })
	list := long("blocked", 60_000)
	done := applyAll(t, client, &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{list, long("unused", 5)}, Vips: []*weirv1.VIP{guarded(nil, []string{"blocked"})}})
	if a := done.GetPrefixLists()[0]; a.GetAdded() != 120_000 {
		t.Errorf("applied as %v", done)
	}
	eventually(t, "the mux runs it", func() bool { return mux.has(done.GetGeneration()) })
	now := mux.listsNow()
	if len(now) != 1 || len(now["blocked"]) != 120_000 {
		t.Fatalf("the mux has %d lists, blocked of %d prefixes", len(now), len(now["blocked"]))
	}
	mux.mu.Lock()
	pieces, before := mux.pieces, mux.sent
	e := mux.tables[model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}]
	mux.mu.Unlock()
	if pieces < 3 {
		t.Errorf("%d pieces", pieces)
	}
	if !slices.Equal(e.DenyLists, []string{"blocked"}) || len(e.Deny) > 0 {
		t.Errorf("the endpoint is %v", e)
	}
	changed, err := client.ChangePrefixList(t.Context(), &weirv1.ChangePrefixListRequest{Name: "blocked", Add: []string{"192.0.2.1"}, Remove: []string{"2001:db8:0:7::/64"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mux runs the change", func() bool { return mux.has(changed.GetGeneration()) })
	has := func(what string) {
		t.Helper()
		now := mux.listsNow()["blocked"]
		if len(now) != 120_000 || !slices.Contains(now, "192.0.2.1") || slices.Contains(now, "2001:db8:0:7::/64") {
			t.Errorf("%s: the mux has %d prefixes", what, len(now))
		}
		mux.mu.Lock()
		defer mux.mu.Unlock()
		if mux.pieces != pieces || mux.sent > before+2 {
			t.Errorf("%s: %d more pieces came, and %d chunks", what, mux.pieces-pieces, mux.sent-before)
		}
	}
	has("a change")
	if s := vipStatusOf(t, client); s.GetGeneration() != changed.GetGeneration() || s.GetMuxesProgrammed() != 1 {
		t.Errorf("the VIP's status is %v, want generation %d", s, changed.GetGeneration())
	}
	stop()
	again, _ := start(t, Config{DataDir: dir})
	mux2 := startMux(t, again, "mux1", "10.1.1.1", func(m *fakeMux) { m.chunks = mux.chunks })
	eventually(t, "the mux comes back", func() bool { return len(mux2.listsNow()["blocked"]) == 120_000 })
	mux2.mu.Lock()
	defer mux2.mu.Unlock()
	if mux2.pieces+mux2.sent > 0 {
		t.Errorf("a mux that has all was sent %d pieces and %d chunks", mux2.pieces, mux2.sent)
	}
}

func vipStatusOf(t *testing.T, client *rpc.Client) *weirv1.VIPStatus {
	t.Helper()
	response, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetVip().GetStatus()
}

func nodesOf(t *testing.T, client *rpc.Client) []*weirv1.Node {
	t.Helper()
	response, err := client.ListNodes(t.Context(), &weirv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetNodes()
}

func TestPrefixListsOfTenants(t *testing.T) {
	two, five := uint32(5), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}
	_, admin, rita := blueAndRed(t, &weirv1.Quotas{Prefixes: &two})
	ctx := t.Context()
	applyAll(t, admin, &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{
		{Name: "all", Prefixes: five}, {Name: "blues", Tenant: "blue", Prefixes: five}, {Name: "reds", Tenant: "red"},
	}})
	refused := func(what string, err error, text string) {
		t.Helper()
		refusedWith(t, what, err, text)
	}
	write := func(list *weirv1.PrefixList) error {
		return failure(rita.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{list}}))
	}
	refused("one for all", write(&weirv1.PrefixList{Name: "mine"}), "name a tenant of yours")
	refused("one of blue", write(&weirv1.PrefixList{Name: "mine", Tenant: "blue"}), "prefixLists[0].tenant")
	refused("a name that is taken", write(&weirv1.PrefixList{Name: "blues", Tenant: "red"}), "blues is taken")
	refused("the one for all, taken over", write(&weirv1.PrefixList{Name: "all", Tenant: "red"}), "all is taken")
	refused("too many", write(&weirv1.PrefixList{Name: "mine", Tenant: "red", Prefixes: append(five, "10.0.0.6")}), "tenant red may have 5 prefixes in its prefix lists, and would have 6")
	refused("too many, by a change", failure(rita.ChangePrefixList(ctx, &weirv1.ChangePrefixListRequest{Name: "reds", Add: append(five, "10.0.0.6")})), "tenant red may have 5 prefixes")
	for name, text := range map[string]string{"all": "which is for all tenants", "blues": "there is no prefix list", "none": "there is no prefix list"} {
		refused("change "+name, failure(rita.ChangePrefixList(ctx, &weirv1.ChangePrefixListRequest{Name: name, Add: five})), text)
		refused("delete "+name, failure(rita.DeletePrefixList(ctx, &weirv1.DeletePrefixListRequest{Name: name})), text)
		refused("replace "+name, failure(rita.UpdatePrefixList(ctx, &weirv1.UpdatePrefixListRequest{Name: name, PrefixList: &weirv1.PrefixList{Tenant: "red"}})), text)
	}
	refused("get one of blue", failure(rita.GetPrefixList(ctx, &weirv1.GetPrefixListRequest{Name: "blues"})), "there is no prefix list")
	rose := of("red", bare("rose", "203.0.113.1"))
	rose.Endpoints[0].DenyLists = []string{"blues"}
	refused("name one of blue", failure(rita.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{rose}})), "there is no prefix list blues for tenant red: there are all, reds")
	rose.Endpoints[0].DenyLists = []string{"all", "reds"}
	applyAll(t, rita, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{rose}})
	refused("give away one that is named", failure(admin.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{{Name: "reds", Tenant: "blue"}}})), "a VIP of another tenant names the list")
	if err := write(&weirv1.PrefixList{Name: "reds", Tenant: "red", Prefixes: five}); err != nil {
		t.Error(err)
	}
	mine, err := rita.ListPrefixLists(ctx, &weirv1.ListPrefixListsRequest{})
	var names []string
	for _, list := range mine.GetPrefixLists() {
		names = append(names, list.GetName())
	}
	if err != nil || !slices.Equal(names, []string{"all", "reds"}) {
		t.Errorf("rita sees %v, %v", names, err)
	}
	if tenant, err := admin.GetTenant(ctx, &weirv1.GetTenantRequest{Name: "red"}); err != nil || tenant.GetTenant().GetUsed().GetPrefixes() != 5 {
		t.Errorf("red uses %v, %v", tenant, err)
	}
	refused("delete the tenant", failure(admin.DeleteTenant(ctx, &weirv1.DeleteTenantRequest{Name: "red"})), "tenant red has")
}
