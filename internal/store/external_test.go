package store

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/etcd"
)

// Two managers on one store see the same, and only the one that leads writes.
func TestManagersShareAnExternalStore(t *testing.T) {
	cfg := Config{Endpoints: []string{etcd.Start(t)}}
	cfg.Name = "m1"
	a, endA := open(t, cfg)
	eventually(t, "a leads", func() bool { epoch, _ := a.Epoch(); return epoch != 0 })
	cfg.Name = "m2"
	b, endB := open(t, cfg)
	if a.State().HashKey != b.State().HashKey {
		t.Error("the managers have different hash keys")
	}
	if got := a.String(); got != "external: "+cfg.Endpoints[0] {
		t.Errorf("the store calls itself %q", got)
	}
	mustUpdate(t, a, Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	eventually(t, "b sees what a wrote", func() bool { return b.State().VIPs.Len() == 1 })
	if _, err := b.Update(t.Context(), change(Change{DeleteVIPs: []string{"shop"}})); !errors.Is(err, ErrNotLeader) {
		t.Errorf("b does not lead and writes: %v", err)
	}

	b.OpenStream("mux1")
	eventually(t, "a sees b's stream", func() bool { return a.State().Streams.At("mux1") })
	before, _ := a.Epoch()
	endA()
	eventually(t, "b leads", func() bool { epoch, _ := b.Epoch(); return epoch > before })
	mustUpdate(t, b, Change{DeleteVIPs: []string{"shop"}})
	b.OpenStream("mux1")
	endB()
}

func TestLimitsOfAnExternalStore(t *testing.T) {
	s, _ := open(t, Config{Endpoints: []string{etcd.Start(t)}})
	var many Change
	for i := range 200 {
		many.VIPs = append(many.VIPs, model.VIP{Name: fmt.Sprintf("vip%d", i), Address: netip.MustParseAddr("203.0.113.1")})
	}
	_, err := s.Update(t.Context(), change(many))
	if err == nil || !strings.Contains(err.Error(), "apply fewer VIPs at a time, or raise etcd's --max-txn-ops") {
		t.Errorf("200 VIPs in one transaction: %v", err)
	}
	if n := s.State().VIPs.Len(); n != 0 {
		t.Errorf("%d of them were written", n)
	}
}
