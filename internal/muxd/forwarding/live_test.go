package forwarding

import (
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// What is counted as it changes is what counting everything anew gives.
func TestLiveCountsAsIfAnew(t *testing.T) {
	keys := rapid.Custom(func(t *rapid.T) model.EndpointKey {
		return model.EndpointKey{
			VIP:      netip.AddrFrom4([4]byte{203, 0, 113, rapid.Byte().Draw(t, "vip") % 3}),
			Protocol: model.TCP, Port: rapid.Uint16Range(1, 4).Draw(t, "port"),
		}
	})
	workloads := rapid.Custom(func(t *rapid.T) model.SNATKey {
		return model.SNATKey{
			VIP:     netip.AddrFrom4([4]byte{203, 0, 113, rapid.Byte().Draw(t, "vip") % 4}),
			Address: netip.AddrFrom4([4]byte{10, 1, 0, rapid.Byte().Draw(t, "workload") % 3}),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		l, slow := newLive(nil, nil), map[owner]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "updates") {
			update := wire.MuxUpdate{Snapshot: rapid.Bool().Draw(t, "snapshot")}
			before := vipsOf(slow)
			if update.Snapshot {
				clear(slow)
			} else {
				update.Removed = rapid.SliceOfNDistinct(keys, 0, 6, rapid.ID).Draw(t, "removed")
				update.SNATRemoved = rapid.SliceOfNDistinct(workloads, 0, 6, rapid.ID).Draw(t, "removed workloads")
			}
			for _, h := range removed(update) {
				delete(slow, h)
			}
			for _, key := range rapid.SliceOfNDistinct(keys, 0, 6, rapid.ID).Draw(t, "endpoints") {
				update.Endpoints = append(update.Endpoints, model.MuxEndpoint{Key: key})
				slow[owner{endpoint: key}] = true
			}
			for _, key := range rapid.SliceOfNDistinct(workloads, 0, 6, rapid.ID).Draw(t, "workloads") {
				update.SNAT = append(update.SNAT, model.MuxSNAT{Key: key})
				slow[owner{workload: key}] = true
			}
			after := vipsOf(slow)
			leaving := maps.Clone(before)
			maps.DeleteFunc(leaving, func(vip netip.Addr, _ bool) bool { return after[vip] })
			if got := l.leaving(update); !maps.Equal(got, leaving) {
				t.Fatalf("leaving %v, want %v", got, leaving)
			}
			if got, want := l.apply(update), !maps.Equal(before, after); got != want {
				t.Fatalf("changed %v, want %v", got, want)
			}
			if !maps.Equal(l.vips(), after) || !maps.Equal(l.owners, slow) {
				t.Fatalf("have %v, want %v", l.owners, slow)
			}
		}
	})
}

func vipsOf(owners map[owner]bool) map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	for h := range owners {
		vips[h.vip()] = true
	}
	return vips
}
