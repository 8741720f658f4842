package store

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/etcd"
)

// Two managers on one store see the same, and neither overwrites what the other wrote.
func TestManagersShareAnExternalStore(t *testing.T) {
	cfg := Config{Endpoints: []string{etcd.Start(t)}}
	a, _ := open(t, cfg)
	b, endB := open(t, cfg)
	if a.State().HashKey != b.State().HashKey {
		t.Error("the managers have different hash keys")
	}
	if got := a.String(); got != "external: "+cfg.Endpoints[0] {
		t.Errorf("the store calls itself %q", got)
	}
	var group sync.WaitGroup
	for _, s := range []*Store{a, b} {
		group.Go(func() {
			for range 20 {
				_, err := s.Update(t.Context(), func(state *State) (Change, error) {
					name := fmt.Sprintf("vip%d", state.VIPs.Len())
					return Change{VIPs: []model.VIP{{Name: name, Address: netip.MustParseAddr("203.0.113.1")}}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	eventually(t, "both hold all", func() bool { return a.State().VIPs.Len() == 40 && b.State().VIPs.Len() == 40 })

	b.OpenStream("mux1")
	eventually(t, "a sees b's stream", func() bool { return a.State().Streams.At("mux1") })
	endB()
	eventually(t, "a sees that b stopped", func() bool { return !a.State().Streams.At("mux1") })
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
