package change

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// What fits into one change is one; what does not is many, each VIP in one of them, in order, pools first.
func TestParts(t *testing.T) {
	whole := &weirv1.ApplyVIPsRequest{Pools: []*weirv1.AddressPool{{Name: "edge"}}}
	add := func(n int) {
		for i := range n {
			whole.Vips = append(whole.Vips, &weirv1.VIP{
				Name: fmt.Sprint("vip", len(whole.Vips)), Endpoints: make([]*weirv1.Endpoint, 1+i%3),
			})
		}
	}
	add(2660) // 7980 writes, and one
	if list := parts(whole); len(list) != 1 || list[0] != whole {
		t.Fatalf("what fits is in %d parts", len(list))
	}
	add(8000)
	list := parts(whole)
	if len(list) != 17 || len(list[0].GetPools()) != 1 {
		t.Fatalf("got %d parts, the first with %d pools", len(list), len(list[0].GetPools()))
	}
	var names []string
	for i, part := range list {
		n := len(part.GetPools())
		for _, vip := range part.GetVips() {
			n += writes(vip)
			names = append(names, vip.GetName())
		}
		if n > partMost || i > 0 && len(part.GetPools()) > 0 {
			t.Errorf("part %d has %d writes, and %d pools", i, n, len(part.GetPools()))
		}
	}
	for i, name := range names {
		if name != whole.GetVips()[i].GetName() || len(names) != len(whole.GetVips()) {
			t.Fatalf("VIP %d of %d is %s", i, len(names), name)
		}
	}
}

// The dry run before the parts has all that they have, each part knows how many resources are before it, and the
// response has what was done of all.
func TestApplyInParts(t *testing.T) {
	whole := &weirv1.ApplyVIPsRequest{
		Pools: []*weirv1.AddressPool{{Name: "edge"}}, PrefixLists: []*weirv1.PrefixList{{Name: "office"}},
		Networks: []*weirv1.VirtualNetwork{{Name: "blue"}, {Name: "red"}}, Overlays: []*weirv1.Overlay{{Name: "overlay"}},
	}
	for i := range 9000 {
		whole.Vips = append(whole.Vips, &weirv1.VIP{Name: fmt.Sprint("vip", i)})
	}
	var dry *weirv1.ApplyVIPsRequest
	told, next := 0, 0
	all, err := applyParts(whole, parts(whole), func(part *weirv1.ApplyVIPsRequest, before int) (*weirv1.ApplyVIPsResponse, error) {
		if part.GetDryRun() {
			dry = proto.CloneOf(part)
			return &weirv1.ApplyVIPsResponse{}, nil
		}
		if before != next {
			t.Errorf("a part begins after %d resources, said %d", next, before)
		}
		next += beside(part) + len(part.GetVips())
		done := &weirv1.ApplyVIPsResponse{Generation: uint64(next)}
		for _, vip := range part.GetVips() {
			done.Vips = append(done.Vips, &weirv1.AppliedVIP{Name: vip.GetName()})
		}
		for _, network := range part.GetNetworks() {
			done.Networks = append(done.Networks, &weirv1.AppliedVirtualNetwork{Name: network.GetName()})
		}
		for range part.GetOverlays() {
			done.Overlays = append(done.Overlays, &weirv1.AppliedOverlay{})
		}
		return done, nil
	}, func(applied int) { told = applied })
	if err != nil || told != 9000 || len(all.GetVips()) != 9000 || len(all.GetNetworks()) != 2 || len(all.GetOverlays()) != 1 || all.GetGeneration() != 9005 {
		t.Errorf("got %d VIPs, %d networks, %d overlays, generation %d; told %d: %v",
			len(all.GetVips()), len(all.GetNetworks()), len(all.GetOverlays()), all.GetGeneration(), told, err)
	}
	if len(dry.GetVips()) != 9000 || len(dry.GetNetworks()) != 2 || len(dry.GetOverlays()) != 1 || len(dry.GetPrefixLists()) != 1 {
		t.Errorf("the dry run had %d VIPs, %d networks, %d overlays", len(dry.GetVips()), len(dry.GetNetworks()), len(dry.GetOverlays()))
	}
}
