package synflood

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// community is what the muxes announce a VIP that is scrubbed with.
const community = "64999:911"

// applyPolicies has the first VIP scrubbed, then black-holed, and the second one only black-holed, while they are flooded.
func applyPolicies(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	all := []string{fmt.Sprintf("---\napiVersion: weir/v1\nkind: AddressPool\nmetadata: {name: flooded}\nspec:\n  prefixes: ['%s', '%s']\n"+
		"  scrubbers: [{name: east, communities: ['%s']}]\n", vips[0], vips[1], community)}
	for i, vip := range vips {
		steps := "{action: scrub, scrubber: east, after: 1s}, {action: blackhole, after: 5s}"
		if vip.Is6() {
			steps = "{action: blackhole, after: 1s}"
		}
		all = append(all, fmt.Sprintf("---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: syn-%d}\nspec:\n  address: '%s'\n"+
			"  overload: {triggers: [syn-flood], holdDown: 15s, steps: [%s]}\n  endpoints:\n    - port: 80\n      backends:\n%s",
			i, vip, steps, testlab.Backends(lab, vip)))
	}
	testlab.Apply(t, lab, all...)
}

// applyBlackhole has the first VIP black-holed when a mux has too much come for it. It has an endpoint for what comes then.
func applyBlackhole(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	vip := vips[0]
	testlab.Apply(t, lab, fmt.Sprintf("---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: syn-0}\nspec:\n  address: '%s'\n"+
		"  overload: {triggers: [overload], holdDown: 5s, maxHoldDown: 5s, steps: [{action: blackhole, after: 1s}]}\n  endpoints:\n"+
		"    - port: 80\n      backends:\n%s    - port: 80\n      protocol: UDP\n      backends:\n%s",
		vip, testlab.Backends(lab, vip), testlab.Backends(lab, vip)))
}

// scrubbed is how many routes of the VIP, of IPv4, the router has with the community.
func scrubbed(lab *netlab.Lab, vip netip.Addr) (int, error) {
	out, err := lab.Router().Vtysh("show bgp ipv4 unicast " + vip.String() + "/32")
	return strings.Count(out, "Community: "+community), err
}

// What muxes tell of a flood of SYNs sets a policy off: the VIP is announced for a scrubber, then not at all, and is
// back by itself when its time is over; the one that is only to be black-holed likewise.
func TestAFloodSetsAPolicyOff(t *testing.T) {
	lab := testlab.Up(t, netlab.Config{Plan: netlab.Plan{Name: "steps", Clients: 2, Muxes: 2, Hosts: 2, Workloads: 2}})
	applyPolicies(t, lab)
	testlab.WaitServed(t, lab, vips...)
	if n, err := scrubbed(lab, vips[0]); err != nil || n != 0 {
		t.Fatalf("before the flood %d routes have the community: %v", n, err)
	}
	ended := make(chan error, 1)
	config := flood.Config{Duration: floodTime * 3 / 2, Targets: []netip.AddrPort{netip.AddrPortFrom(vips[0], 80), netip.AddrPortFrom(vips[1], 80)}}
	go func() {
		_, err := netload.Flood(lab, "client2", config)
		ended <- err
	}()
	testlab.Must(t, netlab.Poll(t.Context(), testlab.Bound, func() error {
		n, err := scrubbed(lab, vips[0])
		if err == nil && n != 2 {
			err = fmt.Errorf("%d routes of %s have the community of the scrubber", n, vips[0])
		}
		return err
	}))
	for _, vip := range vips {
		testlab.Must(t, lab.WaitRouted(t.Context(), testlab.Bound, vip, 0))
	}
	out, err := lab.Weir("describe", "vip", "syn-0")
	testlab.Must(t, err)
	t.Logf("%s", out)
	if !strings.Contains(out, "Overloaded:  true, BlackHoled") || !strings.Contains(out, "SYN cookies on: ") {
		t.Error("it does not say why it is black-holed")
	}
	testlab.Must(t, <-ended)
	for _, vip := range vips {
		testlab.Must(t, lab.WaitRouted(t.Context(), 2*testlab.Bound, vip, 2))
		served(t, lab, vip, 40)
	}
	if n, err := scrubbed(lab, vips[0]); err != nil || n != 0 {
		t.Errorf("after the flood %d routes have the community: %v", n, err)
	}
	out, err = lab.Weir("get", "events")
	testlab.Must(t, err)
	for _, reason := range []string{"Scrubbed", "BlackHoled", "Restored"} {
		if !strings.Contains(out, reason) {
			t.Errorf("no event %s:\n%s", reason, out)
		}
	}
	t.Run("overload", func(t *testing.T) { overloadSetsAPolicyOff(t, lab) })
}

// What comes to muxes that lose packets sets a policy off too: what one VIP has too much of black-holes it. Both muxes must say
// so, for one alone could have made it up.
func overloadSetsAPolicyOff(t *testing.T, lab *netlab.Lab) {
	applyBlackhole(t, lab)
	testlab.WaitServed(t, lab, vips...)
	overloaded, stop := context.WithCancel(t.Context())
	var sent atomic.Int64
	ended := make(chan error, 2)
	for _, mux := range lab.Of(netlab.Mux) {
		go func() {
			ended <- netload.Overload(overloaded, lab, mux.Name, flood.Mix{First: vips[0], Shares: []int{100}}, &sent)
		}()
	}
	gone := lab.WaitRouted(t.Context(), testlab.Bound, vips[0], 0)
	out, err := lab.Weir("describe", "vip", "syn-0")
	stop()
	testlab.Must(t, errors.Join(gone, err, <-ended, <-ended))
	t.Logf("%d datagrams\n%s", sent.Load(), out)
	if !strings.Contains(out, "Overloaded:  true, BlackHoled") || !strings.Contains(out, "mux1: the mux is overloaded") {
		t.Error("it does not say why it is black-holed")
	}
	testlab.Must(t, lab.WaitRouted(t.Context(), 2*testlab.Bound, vips[0], 2))
	served(t, lab, vips[0], 40)
}
