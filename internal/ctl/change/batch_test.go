package change

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/manifest"
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

// resourcesOf are what a request is made of, without files.
func resourcesOf(r *weirv1.ApplyVIPsRequest) []manifest.Resource {
	return make([]manifest.Resource, besides(r)+len(r.GetVips()))
}

// The dry run before the parts has all that they have, each part knows of which resources it is, and the response has what
// was done of all.
func TestApplyInParts(t *testing.T) {
	whole := &weirv1.ApplyVIPsRequest{
		Pools: []*weirv1.AddressPool{{Name: "edge"}}, PrefixLists: []*weirv1.PrefixList{{Name: "office"}},
		Networks: []*weirv1.VirtualNetwork{{Name: "blue"}, {Name: "red"}}, Overlays: []*weirv1.Overlay{{Name: "overlay"}},
	}
	for i := range 9000 {
		whole.Vips = append(whole.Vips, &weirv1.VIP{Name: fmt.Sprint("vip", i)})
	}
	var dry []*weirv1.ApplyVIPsRequest
	told, next := 0, 0
	all, err := applyParts(whole, resourcesOf(whole), parts(whole), func(part *weirv1.ApplyVIPsRequest, of []manifest.Resource) (*weirv1.ApplyVIPsResponse, error) {
		if part.GetDryRun() {
			dry = append(dry, part)
			return &weirv1.ApplyVIPsResponse{}, nil
		}
		if len(of) != 9005-next {
			t.Errorf("a part begins after %d resources, and %d are left", next, len(of))
		}
		next += besides(part) + len(part.GetVips())
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
	if len(dry) != 1 || len(dry[0].GetVips()) != 9000 || len(dry[0].GetNetworks()) != 2 || len(dry[0].GetOverlays()) != 1 || len(dry[0].GetPrefixLists()) != 1 {
		t.Errorf("%d dry runs, the first of %d VIPs", len(dry), len(dry[0].GetVips()))
	}
	if whole.GetDryRun() {
		t.Error("the request became a dry run")
	}
}

// What is more than a manager takes at once has its dry run in parts: all VIPs in order, what is beside them in each, each
// within the bounds, and told once.
func TestADryRunInParts(t *testing.T) {
	most := limits.Requests[weirv1connect.WeirServiceApplyVIPsProcedure]
	backends := func(n int) (e []*weirv1.Endpoint) {
		for range n {
			e = append(e, &weirv1.Endpoint{Backends: make([]*weirv1.Backend, 1000)})
		}
		return e
	}
	for what, whole := range map[string]*weirv1.ApplyVIPsRequest{
		"of many VIPs":     {Vips: make([]*weirv1.VIP, 40_000)},
		"of many messages": {Vips: make([]*weirv1.VIP, 30)},
		"of many bytes":    {Vips: make([]*weirv1.VIP, 300)},
	} {
		whole.Pools, whole.Strict = []*weirv1.AddressPool{{Name: "edge"}}, true
		for i := range whole.GetVips() {
			a := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
			whole.Vips[i] = &weirv1.VIP{Name: fmt.Sprint("vip", i), Address: a.String()}
			switch what {
			case "of many messages":
				whole.Vips[i].Endpoints = backends(30)
			case "of many bytes":
				whole.Vips[i].Labels = map[string]string{"x": strings.Repeat("x", 300_000)}
			}
		}
		dry, i := dryRuns(whole), 0
		for _, part := range dry {
			data, err := proto.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(part.GetVips()); n == 0 || n > 16384 || len(data) > most.Bytes || limits.CountWire(data, part.ProtoReflect().Descriptor(), most.Messages) != nil {
				t.Errorf("%s: a dry run has %d VIPs, %d bytes", what, n, len(data))
			}
			if !part.GetDryRun() || !part.GetStrict() || len(part.GetPools()) != 1 {
				t.Errorf("%s: a part is no dry run with what is beside the VIPs", what)
			}
			for _, vip := range part.GetVips() {
				if vip != whole.GetVips()[i] {
					t.Fatalf("%s: VIP %d is %s", what, i, vip.GetName())
				}
				i++
			}
		}
		if len(dry) < 2 || len(dry) > 12 || i != len(whole.GetVips()) {
			t.Errorf("%s: %d of %d VIPs in %d dry runs", what, i, len(whole.GetVips()), len(dry))
		}
		for _, part := range parts(whole) {
			if data, err := proto.Marshal(part); err != nil || limits.CountWire(data, part.ProtoReflect().Descriptor(), most.Messages) != nil {
				t.Errorf("%s: a part of %d VIPs is more than a manager takes: %v", what, len(part.GetVips()), err)
			}
		}
	}
}

// vip is one of a file.
type vip struct{ address, host, backend string }

const fileVIPs = 250

// file is a manifest of VIPs that have nothing against each other before change, two of them of a pool.
func file(t *testing.T, change func(vips []vip)) ([]manifest.Resource, *weirv1.ApplyVIPsRequest) {
	t.Helper()
	vips := make([]vip, fileVIPs)
	for i := range vips {
		vips[i] = vip{fmt.Sprintf("address: 203.0.113.%d", i), "host1", fmt.Sprintf("10.0.0.%d", i)}
	}
	vips[7].address, vips[8].address = "pool: edge", "pool: edge"
	change(vips)
	text := "apiVersion: weir/v1\nkind: AddressPool\nmetadata: {name: edge}\nspec: {prefixes: [203.0.114.0/24]}\n"
	for i, v := range vips {
		text += fmt.Sprintf("---\n{apiVersion: weir/v1, kind: VIP, metadata: {name: vip%d}, spec: {%s, endpoints: [{port: 80, allowLists: [office], backends: ["+
			"{host: %s, address: %s, port: 80}]}]}}\n", i, v.address, v.host, v.backend)
	}
	resources, err := manifest.Parse("vips.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return resources, applyRequest(resources)
}

// takeFew has a manager take 100 VIPs at once.
func takeFew(t *testing.T) {
	t.Helper()
	bound := requestMost.vips
	requestMost.vips = 100
	t.Cleanup(func() { requestMost.vips = bound })
}

// What VIPs of different parts have against each other is found before a manager is asked, and told with its line; pools are
// told once.
func TestFaultsAreFoundBeforeAnApplyInParts(t *testing.T) {
	takeFew(t)
	const n = fileVIPs
	for what, c := range map[string]struct {
		change func(vips []vip)
		want   []string
	}{
		"nothing": {func([]vip) {}, nil},
		"one address twice": {
			func(vips []vip) { vips[n-1].address = vips[0].address },
			[]string{"vips.yaml:6:", "203.0.113.0 is the address of VIP vip249 already", "vips.yaml:504:", "nothing was changed"},
		},
		"a VIP that is a backend": {
			func(vips []vip) { vips[n-1].address = "address: 10.0.0.1" },
			[]string{"10.0.0.1 is the address of a backend of VIP vip1"},
		},
		"a tunnel to two hosts": {
			func(vips []vip) { vips[n-1].host, vips[n-1].backend = "host2", "10.0.0.1" },
			[]string{"10.0.0.1 leads to host host2"},
		},
		"a host by its address": {func(vips []vip) { vips[n-1].host = "10.9.9.9" }, nil},
	} {
		resources, whole := file(t, c.change)
		calls := 0
		all, err := dryRun(whole, resources, func(*weirv1.ApplyVIPsRequest, []manifest.Resource) (*weirv1.ApplyVIPsResponse, error) {
			calls++
			return &weirv1.ApplyVIPsResponse{Pools: []*weirv1.AppliedAddressPool{{Name: "edge"}}}, nil
		})
		if c.want == nil && (err != nil || calls != 3 || len(all.GetPools()) != 1) {
			t.Errorf("%s: %d calls, %d pools: %v", what, calls, len(all.GetPools()), err)
		}
		for _, want := range c.want {
			if err == nil || calls != 0 || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %d calls: %v, want %s", what, calls, err, want)
			}
		}
	}
}

// What a manager refuses of a later part keeps back the first too.
func TestARefusedPartKeepsBackAll(t *testing.T) {
	takeFew(t)
	resources, whole := file(t, func([]vip) {})
	_, err := applyParts(whole, resources, parts(whole), func(part *weirv1.ApplyVIPsRequest, of []manifest.Resource) (*weirv1.ApplyVIPsResponse, error) {
		switch {
		case !part.GetDryRun():
			t.Error("a part was applied")
		case len(of) != 1+len(part.GetVips()) || of[len(of)-1].Name() != part.GetVips()[len(of)-2].GetName():
			t.Errorf("%d resources of %d VIPs and a pool", len(of), len(part.GetVips()))
		case len(part.GetVips()) < 100: // the last one
			return nil, errors.New("there is no room")
		}
		return &weirv1.ApplyVIPsResponse{}, nil
	}, func(int) {})
	if err == nil {
		t.Error("a refused dry run is passed over")
	}
}

// Long prefix lists, which a manager takes at once, are one change with their VIPs. What it would not take is one too: it says so.
func TestLongPrefixListsAreNotSplit(t *testing.T) {
	for _, prefixes := range []int{600_000, 2_500_000} {
		whole := &weirv1.ApplyVIPsRequest{Vips: make([]*weirv1.VIP, 3)}
		for i := range whole.GetVips() {
			whole.Vips[i] = &weirv1.VIP{Name: fmt.Sprint("vip", i)}
		}
		for range 2 {
			whole.PrefixLists = append(whole.PrefixLists, &weirv1.PrefixList{Prefixes: make([]string, prefixes)})
		}
		if n, dry := len(parts(whole)), len(dryRuns(whole)); n != 1 || dry != 1 {
			t.Errorf("lists of %d prefixes: %d parts, %d dry runs", prefixes, n, dry)
		}
	}
}
