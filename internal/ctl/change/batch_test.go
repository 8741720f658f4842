package change

import (
	"fmt"
	"testing"

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
