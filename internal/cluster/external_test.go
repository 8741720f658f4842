package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// Two managers on one store see the same, and only the one that leads writes.
func TestManagersShareAnExternalStore(t *testing.T) {
	cfg := etcd.Config{Endpoints: []string{etcdtest.Start(t)}}
	cfg.Name = "m1"
	a, endA := open(t, cfg)
	eventually(t, "a leads", func() bool { epoch, _ := a.Store.Election.Epoch(); return epoch != 0 })
	cfg.Name = "m2"
	b, endB := open(t, cfg)
	if a.Store.State().HashKey != b.Store.State().HashKey {
		t.Error("the managers have different hash keys")
	}
	if got := a.String(); got != "external: "+cfg.Endpoints[0] {
		t.Errorf("the store calls itself %q", got)
	}
	mustUpdate(t, a, store.Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	eventually(t, "b sees what a wrote", func() bool { return b.Store.State().VIPs.Len() == 1 })
	if _, err := b.Store.Update(t.Context(), change(store.Change{DeleteVIPs: []string{"shop"}})); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("b does not lead and writes: %v", err)
	}

	b.Store.Presence.Open("mux1")
	eventually(t, "a sees b's stream", func() bool { return a.Store.State().Streams.At("mux1") })
	before, _ := a.Store.Election.Epoch()
	endA()
	eventually(t, "b leads", func() bool { epoch, _ := b.Store.Election.Epoch(); return epoch > before })
	mustUpdate(t, b, store.Change{DeleteVIPs: []string{"shop"}})
	b.Store.Presence.Open("mux1")
	endB()
}

func TestLimitsOfAnExternalStore(t *testing.T) {
	s, _ := open(t, etcd.Config{Endpoints: []string{etcdtest.Start(t)}})
	var many store.Change
	for i := range 200 {
		many.VIPs = append(many.VIPs, model.VIP{Name: fmt.Sprintf("vip%d", i), Address: netip.MustParseAddr("203.0.113.1")})
	}
	_, err := s.Store.Update(t.Context(), change(many))
	if err == nil || !strings.Contains(err.Error(), "apply fewer VIPs at a time, or raise etcd's --max-txn-ops") {
		t.Errorf("200 VIPs in one transaction: %v", err)
	}
	if n := s.Store.State().VIPs.Len(); n != 0 {
		t.Errorf("%d of them were written", n)
	}
}
