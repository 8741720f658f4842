package snatport

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

func always(string) bool { return true }

// A block is the host's, by the tunnel of a workload on it, whatever the order of the list; what a host that leaves the
// list has rests.
func TestABlockIsOfAHost(t *testing.T) {
	vip := leavingVIP([]bool{true, true, true, true}, 0, 64, 64999, 0)
	vip.SNAT.Workloads[2].Tunnel = netip.MustParseAddr("10.2.0.1")
	key := model.BlockKey(leavingAddress, "host0")
	var a Allocations
	for range 2 {
		a.ReplaceVIP(vip, vip)
		if w, there := a.Client(key); !there || w.Host != "host0" || w.TunnelAddress() != vip.SNAT.Workloads[slices.IndexFunc(vip.SNAT.Workloads, func(w model.SNATWorkload) bool { return w.Tunnel.IsValid() })].Tunnel {
			t.Errorf("the block of host0 is %v, %v", w, there)
		}
		slices.Reverse(vip.SNAT.Workloads)
	}
	if n := a.WorkloadCount(); n != 4 {
		t.Errorf("%d workloads are counted", n)
	}
	h, given := a.Allocate(vip, key, 3, 8130)
	if h.Host != "host0" || !slices.Equal(given, []model.Range{8130, 8131, 8132}) {
		t.Errorf("it is given %v: %v", given, h)
	}
	a.Set(key, h)
	without := vip
	without.SNAT = new(*vip.SNAT)
	without.SNAT.Workloads = slices.DeleteFunc(slices.Clone(vip.SNAT.Workloads), func(w model.SNATWorkload) bool { return w.Host == "host0" })
	for what, c := range map[string]struct {
		vip       model.VIP
		hasBlocks func(string) bool
		released  bool
	}{
		"as it was":                 {vip, always, false},
		"no workload on the host":   {without, always, true},
		"an agent without blocks":   {vip, func(string) bool { return false }, true},
		"the VIP is gone":           {model.VIP{}, always, true},
		"another host has no agent": {vip, func(host string) bool { return host == "host0" }, false},
	} {
		next := a.Clone()
		next.ReplaceVIP(vip, c.vip)
		changed, there := next.Changed(leavingAddress, c.vip, time.Unix(9, 0), false, c.hasBlocks)[key]
		if there != c.released || there && (len(changed.Ranges) != 0 || len(changed.Quarantined) != 1) {
			t.Errorf("%s: the block is %v, %v", what, changed, there)
		}
	}
}

// What a host has for its workloads is bounded by what these may have, less what they have of their own.
func TestABlockIsBounded(t *testing.T) {
	vip := leavingVIP([]bool{true, true, true, true}, 0, 32, 63999, 0) // 4 ranges each
	key := model.BlockKey(leavingAddress, "host1")
	var a Allocations
	a.ReplaceVIP(model.VIP{}, vip)
	if n := a.Limit(vip, key); n != 8 {
		t.Errorf("the limit is %d", n)
	}
	own := model.SNATKey{VIP: leavingAddress, Address: vip.SNAT.Workloads[1].Address}
	a.Set(own, Allocation{Host: "host1", Ranges: []model.Range{8001, 8002, 8003}})
	if n := a.Limit(vip, key); n != 5 {
		t.Errorf("with three ranges of a workload's own the limit is %d", n)
	}
	h, _ := a.Allocate(vip, key, 8, 8100)
	a.Set(key, h)
	changed := a.Changed(leavingAddress, vip, time.Unix(9, 0), false, always)[key]
	if !slices.Equal(changed.Reclaim, []model.Range{8105, 8106, 8107}) {
		t.Errorf("reclaimed are %v", changed.Reclaim)
	}
	// Nor does the host get more by asking for its workloads.
	for _, w := range vip.SNAT.Workloads {
		of := model.SNATKey{VIP: leavingAddress, Address: w.Address}
		if n := a.Limit(vip, of); w.Host == "host1" && n != len(a.At(of).Ranges) {
			t.Errorf("beside the full block %s may have %d ranges", w.Address, n)
		}
	}
	// What it releases it does not get back before it has rested: another workload of the host may get it.
	a.Set(key, h.Release([]model.Range{8100}, time.Unix(9, 0)))
	if _, given := a.Allocate(vip, key, 1, 8100); slices.Contains(given, 8100) {
		t.Error("a range that rests is given to the host")
	}
}
