package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// pagedList reads a page of a list, with the token of the next one.
type pagedList func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error)

func messages[T proto.Message](all []T) (list []proto.Message) {
	for _, m := range all {
		list = append(list, m)
	}
	return list
}

// pagedLists are those that grow with the cluster, and are not of VIPs and what is written with them.
var pagedLists = map[string]pagedList{
	"nodes": func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error) {
		r, err := client.ListNodes(t.Context(), &weirv1.ListNodesRequest{Role: "host", PageSize: size, PageToken: token})
		return messages(r.GetNodes()), r.GetNextPageToken(), err
	},
	"status": func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error) {
		r, err := client.GetStatus(t.Context(), &weirv1.GetStatusRequest{PageSize: size, PageToken: token})
		return messages(r.GetNodes()), r.GetNextPageToken(), err
	},
	"tenants": func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error) {
		r, err := client.ListTenants(t.Context(), &weirv1.ListTenantsRequest{PageSize: size, PageToken: token})
		return messages(r.GetTenants()), r.GetNextPageToken(), err
	},
	"users": func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error) {
		r, err := client.ListUsers(t.Context(), &weirv1.ListUsersRequest{PageSize: size, PageToken: token})
		return messages(r.GetUsers()), r.GetNextPageToken(), err
	},
	"principals": func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error) {
		r, err := client.ListPrincipals(t.Context(), &weirv1.ListPrincipalsRequest{PageSize: size, PageToken: token})
		return messages(r.GetPrincipals()), r.GetNextPageToken(), err
	},
	"tokens": func(t *testing.T, client *rpc.Client, size uint32, token string) ([]proto.Message, string, error) {
		r, err := client.ListTokens(t.Context(), &weirv1.ListTokensRequest{PageSize: size, PageToken: token})
		return messages(r.GetTokens()), r.GetNextPageToken(), err
	},
}

// read reads all pages, and calls between before the second one.
func (list pagedList) read(t *testing.T, client *rpc.Client, size uint32, between func()) (all []proto.Message, pages int) {
	t.Helper()
	for token := ""; ; {
		page, next, err := list(t, client, size, token)
		if err != nil || pages > 100 {
			t.Fatalf("page %d: %v", pages, err)
		}
		all = append(all, page...)
		if pages++; pages == 1 && between != nil {
			between()
		}
		if token = next; token == "" {
			return all, pages
		}
	}
}

// idOf names what is listed.
func idOf(m proto.Message) string {
	if token, is := m.(*weirv1.Token); is {
		return token.GetId()
	}
	role := ""
	if of, has := m.(interface{ GetRole() string }); has {
		role = of.GetRole() + "/"
	}
	return role + m.(interface{ GetName() string }).GetName()
}

func idsOf(all []proto.Message) (ids []string) {
	for _, m := range all {
		ids = append(ids, idOf(m))
	}
	return ids
}

// registerHosts registers hosts without a stream.
func (town *town) registerHosts(t *testing.T, numbers ...int) {
	t.Helper()
	for _, i := range numbers {
		node := model.Node{Name: fmt.Sprintf("host%d", i), Role: model.RoleHost, Version: "test"}
		if _, err := town.m.nodes.Register(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
}

func (town *town) makeTokens(t *testing.T, lives ...time.Duration) (ids []string) {
	t.Helper()
	for _, life := range lives {
		made, err := town.admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: "host", Ttl: durationpb.New(life)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.GetToken().GetId())
	}
	return ids
}

// newFullTown has some of each that is listed in pages.
func newFullTown(t *testing.T) *town {
	town := newTown(t)
	town.registerHosts(t, 3, 4, 5)
	town.makeTokens(t, 5*time.Hour, time.Hour, 4*time.Hour, 2*time.Hour)
	for _, name := range []string{"mux1", "mux2"} {
		mux := member(t, town.admin, town.url, &weirv1.CreateTokenRequest{Role: "mux", Name: name}, trust.Mux, name)
		if err := mux.Obtain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return town
}

func TestPagesJoinedAreTheWhole(t *testing.T) {
	town := newFullTown(t)
	for name, list := range pagedLists {
		whole, pages := list.read(t, town.admin, 0, nil)
		if pages != 1 || len(whole) < 4 {
			t.Errorf("%s: %d in %d pages without a size: want all on the first", name, len(whole), pages)
		}
		for size := 1; size <= len(whole)+1; size++ {
			joined, pages := list.read(t, town.admin, uint32(size), nil)
			same := slices.EqualFunc(joined, whole, proto.Equal)
			if !same || pages != (len(whole)+size-1)/size {
				t.Errorf("%s by %d: %v in %d pages, and %v in one", name, size, idsOf(joined), pages, idsOf(whole))
			}
		}
	}
}

// A page of the status has the sums of all, and by host what is of its own hosts.
func TestPagesOfTheStatus(t *testing.T) {
	town := newFullTown(t)
	more := leads("lake", "green", "192.0.2.77", &weirv1.Backend{Address: "10.4.0.1", Port: 80, Host: "host2"})
	if _, err := town.admin.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: more}); err != nil {
		t.Fatal(err)
	}
	whole, err := town.admin.GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if err != nil || len(whole.GetHostBackends()) != 2 {
		t.Fatalf("%v, %v", whole.GetHostBackends(), err)
	}
	for r, pages := (&weirv1.GetStatusRequest{PageSize: 1}), 1; ; pages++ {
		page, err := town.admin.GetStatus(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if page.GetVips() != 3 || page.GetBackends() != whole.GetBackends() || page.GetVipWarningsTotal() != whole.GetVipWarningsTotal() {
			t.Errorf("page %d sums up %d VIPs, %d backends and %d warnings", pages, page.GetVips(), page.GetBackends(), page.GetVipWarningsTotal())
		}
		for _, h := range page.GetHostBackends() {
			if h.GetHost() != page.GetNodes()[0].GetName() {
				t.Errorf("the page of %s tells of backends on %s", page.GetNodes()[0].GetName(), h.GetHost())
			}
		}
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" || pages > 100 {
			break
		}
	}
	whole.NextPageToken = ""
	joined, err := town.admin.Status(t.Context())
	if err != nil || !proto.Equal(joined, whole) {
		t.Errorf("read whole: %v, %v; not %v", joined, err, whole)
	}
}

// changes add to each list on both sides of its first page, and take from it what that listed and what it did not.
func (town *town) changes(t *testing.T) map[string]func(listed []string) {
	users := func(names ...string) {
		for _, name := range names {
			operator(t, town.m, town.admin, town.url, name, "red")
		}
	}
	tenants := func(names ...string) {
		for _, name := range names {
			if _, err := town.admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: name}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	hosts := func(deleted ...string) {
		town.registerHosts(t, 0, 9)
		for _, name := range deleted {
			if _, err := town.admin.DeleteNode(t.Context(), &weirv1.DeleteNodeRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tenants("aqua", "azure", "zinc")
	users("abel", "adam", "zoe")
	return map[string]func(listed []string){
		"nodes": func([]string) { hosts("host2", "host4") },
		"tenants": func([]string) {
			tenants("aaa", "pink", "zzz")
			for _, name := range []string{"azure", "zinc"} {
				if _, err := town.admin.DeleteTenant(t.Context(), &weirv1.DeleteTenantRequest{Name: name}); err != nil {
					t.Fatal(err)
				}
			}
		},
		"users": func(listed []string) {
			users("aaron", "mia", "zzyx")
			for _, name := range []string{listed[1], "zoe"} {
				if _, err := town.admin.DeleteUser(t.Context(), &weirv1.DeleteUserRequest{Name: name}); err != nil {
					t.Fatal(err)
				}
			}
		},
		"principals": func([]string) { users("ann", "olga", "zora") },
		"tokens": func(listed []string) {
			town.makeTokens(t, time.Minute, 3*time.Hour, 9*time.Hour)
			if _, err := town.admin.DeleteToken(t.Context(), &weirv1.DeleteTokenRequest{Id: listed[1]}); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// What was there all the time is listed once, whatever comes and goes on both sides of the page.
func TestPagesWhileThingsChange(t *testing.T) {
	town := newFullTown(t)
	for name, change := range town.changes(t) {
		list := pagedLists[name]
		before, _ := list.read(t, town.admin, 0, nil)
		all, _ := list.read(t, town.admin, 2, func() { change(idsOf(before[:2])) })
		after, _ := list.read(t, town.admin, 0, nil)
		got, stayed := map[string]int{}, idsOf(after)
		for _, id := range idsOf(all) {
			if got[id]++; got[id] > 1 {
				t.Errorf("%s: %s is listed %d times", name, id, got[id])
			}
		}
		if len(after) < len(before) {
			t.Errorf("%s: %v after %v: nothing was added", name, stayed, idsOf(before))
		}
		for _, id := range idsOf(before) {
			if slices.Contains(stayed, id) && got[id] != 1 {
				t.Errorf("%s: %s was there all the time and is listed %d times in %v", name, id, got[id], idsOf(all))
			}
		}
	}
}

func TestPagesOfOtherListsAreRefused(t *testing.T) {
	town := newFullTown(t)
	_, token, err := pagedLists["nodes"](t, town.admin, 2, "")
	if err != nil || token == "" {
		t.Fatalf("%q, %v", token, err)
	}
	_, err = town.admin.ListNodes(t.Context(), &weirv1.ListNodesRequest{Role: "mux", PageToken: token})
	refusedWith(t, "another role", err, "role: must be as it was on the page that pageToken is of")
	_, err = town.admin.ListNodes(t.Context(), &weirv1.ListNodesRequest{PageToken: token})
	refusedWith(t, "all roles", err, "role: must be as it was")
	for name, list := range pagedLists {
		if name == "nodes" {
			continue
		}
		_, _, err := list(t, town.admin, 2, token)
		refusedWith(t, name, err, `pageToken: is of a "ListNodesRequest", and this is a `)
	}
}

// What a caller may see is asked on each page, also on one whose token an admin got.
func TestPagesShowTenantsTheirOwn(t *testing.T) {
	town := newFullTown(t)
	tokens := map[string]string{}
	for name, list := range pagedLists {
		page, token, err := list(t, town.admin, 1, "")
		if err != nil || token == "" || len(page) != 1 {
			t.Fatalf("%s: %d, %q, %v", name, len(page), token, err)
		}
		tokens[name] = token
	}
	seen, _ := pagedLists["tenants"].read(t, town.red, 1, nil)
	if ids := idsOf(seen); !slices.Equal(ids, []string{"red"}) {
		t.Errorf("red sees the tenants %v", ids)
	}
	if seen, next, err := pagedLists["tenants"](t, town.red, 1, tokens["tenants"]); err != nil || !slices.Equal(idsOf(seen), []string{"red"}) || next != "" {
		t.Errorf("behind an admin's page red sees the tenants %v, then %q: %v", idsOf(seen), next, err)
	}
	for _, name := range []string{"nodes", "status"} {
		seen, pages := pagedLists[name].read(t, town.red, 1, nil)
		if pages < 5 || len(seen) != pages {
			t.Errorf("%s: red sees %d in %d pages", name, len(seen), pages)
		}
		next, _, err := pagedLists[name](t, town.red, 1, tokens[name])
		if err != nil {
			t.Error(err)
		}
		for _, m := range append(seen, next...) {
			if n := m.(*weirv1.Node); len(n.GetAddresses()) > 0 || n.GetVersion() != "" {
				t.Errorf("%s: red sees of %s that it has %v and runs %q", name, n.GetName(), n.GetAddresses(), n.GetVersion())
			}
		}
	}
	status, err := town.red.GetStatus(t.Context(), &weirv1.GetStatusRequest{PageSize: 1, PageToken: tokens["status"]})
	if err != nil || status.GetVips() != 0 || len(status.GetHostBackends()) > 0 {
		t.Errorf("red sees %d VIPs, and backends %v: %v", status.GetVips(), status.GetHostBackends(), err)
	}
	for _, name := range []string{"users", "principals", "tokens"} {
		for _, token := range []string{"", tokens[name]} {
			if page, _, err := pagedLists[name](t, town.red, 1, token); err == nil || !strings.Contains(err.Error(), "may not") {
				t.Errorf("red lists %s: %v, %v", name, idsOf(page), err)
			}
		}
	}
}
