package resource

import (
	"net/netip"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// A VIP is answered for by its owner once that says so: the owner may not forward for it, or another station has it.
func TestAVIPIsAnsweredByAMuxThatSaysSo(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	s := &store.State{}
	s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux, NeighborPrefixes: lan})
	vip := model.VIP{Name: "shop", Address: netip.MustParseAddr("203.0.113.10")}
	s.PutVIP(vip)
	reads, said := 0, &weirv1.MuxStatus{}
	c := &Config{Reported: func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
		reads++
		return nodestatus.Status{}, &weirv1.NodeStatus{Mux: said}
	}}
	check := func(what, by string) {
		t.Helper()
		a := answering.New(c.Reported, s)
		if got := a.By(vip.Address); got != by {
			t.Errorf("%s: answered by %q, want %q", what, got, by)
		}
		warned := ""
		for _, text := range vipWarnings(s, vip, a) {
			warned += text
		}
		if strings.Contains(warned, "no mux answers ARP and NDP for 203.0.113.10") != (by == "") {
			t.Errorf("%s: warned is %q", what, warned)
		}
	}
	check("no mux can answer", "")
	s.Neighbors.Set("mux1", neighbor.Mux{Name: "mux1", Prefixes: lan})
	check("its owner does not", "")
	said.Neighbors = []string{"203.0.113.10"}
	reads = 0
	if check("its owner does", "mux1"); reads != 1 {
		t.Errorf("the mux's report was read %d times", reads)
	}
	s.Neighbors.Delete("mux1")
	check("it did, and is gone", "")
}
