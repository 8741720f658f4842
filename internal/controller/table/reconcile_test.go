package table

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

// News of health is acted on between the pieces of the look at all VIPs that a term begins with.
func TestNewsComeBetweenPieces(t *testing.T) {
	opened := teststore.Open(t)
	s := opened.State()
	all := s.Clone()
	for i := range 2*recomputeMost + 1 {
		all.VIPs.Set(time.Duration(i).String(), model.VIP{})
	}
	var r rounds
	if news := r.news(all); len(news) > 0 || len(r.piece()) != recomputeMost {
		t.Errorf("a term begins with %d news, %d VIPs of all", len(news), len(r.piece()))
	}
	r.did(s) // which knows the steps that follow
	if !r.swept() {
		t.Error("all is done after one piece")
	}
	vip := model.VIP{Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10")}
	if _, err := opened.Update(t.Context(), func(*store.State) (store.Change, error) {
		return store.Change{VIPs: []model.VIP{vip}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if news := r.news(opened.State()); len(news) != 1 || news[0] != "shop" || len(r.piece()) != recomputeMost {
		t.Errorf("then %v are news, beside %d of all", news, len(r.piece()))
	}
	r.did(opened.State())
	if !r.swept() || len(r.piece()) != 1 || r.swept() {
		t.Error("it does not come to the end")
	}
}

// An external etcd takes the tables of more VIPs than it takes operations in one transaction.
func TestTablesOfManyVIPsInAnExternalEtcd(t *testing.T) {
	s := teststore.Open(t, etcdtest.Start(t))
	var all []model.VIP
	var names []string
	for i := range 2*etcd.SafeOperations + 50 {
		vip := model.VIP{
			Name: fmt.Sprint("vip", i), Tenant: "acme", Address: netip.AddrFrom4([4]byte{203, 0, byte(113 + i/250), byte(i % 250)}),
			Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: []model.Backend{
				{Address: netip.MustParseAddr("10.3.1.11"), Port: 8080, Host: "host1", Weight: 1},
			}}},
		}
		all, names = append(all, vip), append(names, vip.Name)
	}
	for some := range slices.Chunk(all, etcd.SafeOperations) {
		if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) { return store.Change{VIPs: some}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	c := &Controller{Store: s, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	if err := c.recompute(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	if n := s.State().Tables.Len(); n != len(all) {
		t.Errorf("%d VIPs have a table, of %d", n, len(all))
	}
}

// An external etcd takes the tables of a VIP that has more endpoints than it takes operations in one transaction.
func TestTablesOfAVIPWithManyEndpointsInAnExternalEtcd(t *testing.T) {
	s := teststore.Open(t, etcdtest.Start(t))
	wide := model.VIP{Name: "wide", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.1")}
	for i := range 2*etcd.SafeOperations + 50 {
		wide.Endpoints = append(wide.Endpoints, model.Endpoint{Protocol: model.TCP, Port: uint16(1 + i), Backends: []model.Backend{
			{Address: netip.MustParseAddr("10.3.1.11"), Port: 8080, Host: "host1", Weight: 1},
		}})
	}
	small := wide
	small.Name, small.Address, small.Endpoints = "small", netip.MustParseAddr("203.0.113.2"), wide.Endpoints[:1]
	if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) {
		return store.Change{VIPs: []model.VIP{wide, small}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	c := &Controller{Store: s, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	if err := c.recompute(t.Context(), []string{"wide", "small"}); err != nil {
		t.Fatal(err)
	}
	if n := s.State().Tables.Len(); n != len(wide.Endpoints)+1 {
		t.Errorf("%d endpoints have a table, of %d", n, len(wide.Endpoints)+1)
	}
}

// The VIPs that wait for a host are looked at when it joins, and those of other hosts are not.
func TestAHostThatJoinsIsNews(t *testing.T) {
	opened := teststore.Open(t)
	write := func(change store.Change) {
		t.Helper()
		if _, err := opened.Update(t.Context(), func(*store.State) (store.Change, error) { return change, nil }); err != nil {
			t.Fatal(err)
		}
	}
	var vips []model.VIP
	for i, host := range []string{"host8", "host9"} {
		vips = append(vips, model.VIP{
			Name: "on-" + host, Tenant: "acme", Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}),
			Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: []model.Backend{{Address: netip.MustParseAddr("10.3.1.11"), Port: 80, Host: host, Weight: 1}}}},
		})
	}
	write(store.Change{VIPs: vips})
	var r rounds
	r.news(opened.State())
	r.did(opened.State())
	write(store.Change{Nodes: []model.Node{{Name: "host9", Role: model.RoleHost}, {Name: "mux1", Role: model.RoleMux}}})
	if news := r.news(opened.State()); !slices.Equal(news, []string{"on-host9"}) {
		t.Errorf("host9 joined, and %v are news", news)
	}
	r.did(opened.State())
	write(store.Change{Nodes: []model.Node{{Name: "host9", Role: model.RoleHost, Version: "2"}}})
	if news := r.news(opened.State()); len(news) != 0 {
		t.Errorf("host9 has another version, and %v are news", news)
	}
}
