package manager

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// switches is what the manager answers a switch that registers with addresses.
func switches(t *testing.T, client *rpc.Client, name string, addresses ...string) error {
	t.Helper()
	stream, err := client.SyncSwitch(t.Context(), &weirv1.SyncSwitchRequest{Name: name, Addresses: addresses, Version: "test"})
	if err != nil {
		return err
	}
	defer stream.Close()
	stream.Receive()
	return stream.Err()
}

// joinedSwitch follows the manager as a switch with a certificate of its own.
func (town *town) joinedSwitch(t *testing.T, name, address string) *fakeSwitch {
	t.Helper()
	sw := &fakeSwitch{name: name, client: joinedNode(t, town.admin, town.url, trust.Switch, name, address+"/32"), entries: map[string]*weirv1.SwitchEntry{}}
	goFollow(t, name, func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncSwitchResponse], error) {
		return sw.client.SyncSwitch(ctx, &weirv1.SyncSwitchRequest{Name: name, Addresses: []string{address}, Version: "test"})
	}, sw.apply)
	return sw
}

// A switch that has joined says that it has what is others'.
func TestHostileSwitchClaimsAddresses(t *testing.T) {
	town := newTown(t)
	evil := joinedNode(t, town.admin, town.url, trust.Switch, "evil")
	bound := joinedNode(t, town.admin, town.url, trust.Switch, "bound", "10.8.0.0/24")
	for what, c := range map[string]struct {
		client    *rpc.Client
		name      string
		addresses []string
		want      string
	}{
		"a host's":                 {evil, "evil", []string{"10.2.1.1"}, "is an address of node host1"},
		"a workload":               {evil, "evil", []string{"10.3.1.11"}, "leads to a backend of VIP sea on host1"},
		"a VIP":                    {evil, "evil", []string{"198.51.100.1"}, "is the address of VIP sea"},
		"a tenant's, no VIP's yet": {evil, "evil", []string{"198.51.100.9"}, "is in the ranges of a tenant"},
		"two of a family":          {evil, "evil", []string{"10.8.1.1", "10.8.1.2"}, "must be one of each family at most"},
		"another switch's name":    {evil, "bound", []string{"10.8.0.1"}, "switch/evil"},
		"a host's name":            {evil, "host1", []string{"10.8.0.1"}, "switch/evil"},
		"what it did not join for": {bound, "bound", []string{"10.8.1.1"}, "is not in what bound joined for"},
	} {
		refusedWith(t, what, switches(t, c.client, c.name, c.addresses...), c.want)
	}
	for _, name := range []string{"evil", "bound"} {
		if town.m.store.State().Nodes.Has(name) {
			t.Errorf("%s is registered", name)
		}
	}
}

// A switch that has joined, and holds a VIP, reads, reports and stops what it can: no more than its own entry.
func TestHostileSwitch(t *testing.T) {
	town := newTown(t)
	good, evil := town.joinedSwitch(t, "good", "10.8.0.1"), town.joinedSwitch(t, "evil", "10.8.0.2")
	place := func(vip, device string) placementpolicy.Place {
		s := town.m.store.State()
		return s.Placements.At(s.VIPs.At(vip).Address).Places[device]
	}
	var placed []*weirv1.VIP
	for name, device := range map[string]string{"sea": "good", "pond": "evil"} {
		r, err := town.admin.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		r.Vip.Hardware, r.Vip.Snat = &weirv1.Hardware{Placement: "require", Switches: []string{device}}, nil
		placed = append(placed, r.Vip)
	}
	evil.refuseOthers(t, 3) // 198.51.100.1 is sea; what is its own it refuses too
	if _, err := town.admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: placed}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its refusal ends its own place", func() bool { return place("pond", "evil").Attempts == 1 })
	eventually(t, "the other switch serves its VIP", func() bool { return place("sea", "good").Phase == placementpolicy.Hardware })

	evil.lies(t)
	for range 5 {
		if err := evil.report(); err != nil {
			t.Fatal(err)
		}
		if p := place("sea", "good"); p.Phase != placementpolicy.Hardware || p.Attempts > 0 {
			t.Fatalf("by the word of another switch it is in phase %s, refused %d times", p.Phase, p.Attempts)
		}
	}
	if got := len(town.m.store.State().Status.At("evil").Detail); got > 64<<10 {
		t.Errorf("%d bytes of its report are kept", got)
	}
	for _, told := range evil.history {
		if strings.Contains(told, "198.51.100.1") || strings.Contains(told, "10.3.") {
			t.Errorf("it was told %s", told)
		}
	}
	if !strings.Contains(good.holds(), "198.51.100.1: 10.3.1.11×1, announced") {
		t.Errorf("the other switch holds %s", good.holds())
	}
	events, err := town.admin.ListEvents(t.Context(), &weirv1.ListEventsRequest{})
	for _, e := range events.GetEvents() {
		if e.GetObject() == "sea" && e.GetReason() == "HardwareRefused" || strings.Contains(e.GetMessage(), strings.Repeat("call +1-555-0100 ", 20)) {
			t.Errorf("%v: %v", e, err)
		}
	}
	town.refusesOthersCalls(t, evil)
}

// lies has a switch report what is not so, at length: of itself and others' VIPs, and of as many ports as it may have.
func (s *fakeSwitch) lies(t *testing.T) {
	t.Helper()
	of := &weirv1.ReportSwitchRequest{Name: s.name, Generation: math.MaxUint64, Status: &weirv1.SwitchStatus{
		Driver: strings.Repeat("x", 1<<20), Members: math.MaxUint32, Hosts: &weirv1.SwitchTable{Used: math.MaxUint32},
	}}
	for range 1000 {
		of.Refused = append(of.Refused, &weirv1.SwitchRefusal{Vip: "198.51.100.1", Reason: strings.Repeat("call +1-555-0100 ", 1000)})
	}
	_ = failure(s.client.ReportSwitch(t.Context(), of)) // taken or not
	of = &weirv1.ReportSwitchRequest{Name: s.name, Generation: math.MaxUint64, Status: &weirv1.SwitchStatus{}}
	for i := range 512 {
		of.Status.Ports = append(of.Status.Ports, &weirv1.SwitchPort{
			Name: fmt.Sprint("eth", i), Neighbour: strings.Repeat("\x1b[2J good ", 20), NeighbourPort: strings.Repeat("y", 300),
		})
	}
	if err := failure(s.client.ReportSwitch(t.Context(), of)); err != nil {
		t.Fatal(err)
	}
}

// refusesOthersCalls has a switch call what is not its own.
func (town *town) refusesOthersCalls(t *testing.T, evil *fakeSwitch) {
	t.Helper()
	for what, call := range map[string]func() error{
		"another switch's report": func() error {
			return failure(evil.client.ReportSwitch(t.Context(), &weirv1.ReportSwitchRequest{Name: "good", Status: &weirv1.SwitchStatus{}}))
		},
		"another switch's stream": func() error { return switches(t, evil.client, "good", "10.8.0.2") },
		"a host's stream":         func() error { return syncs(t, evil.client, "evil", "10.8.0.2") },
		"a host's report": func() error {
			return failure(evil.client.ReportHost(t.Context(), &weirv1.ReportHostRequest{Name: "evil", Status: &weirv1.HostStatus{}}))
		},
		"the VIPs": func() error { return failure(evil.client.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{})) },
		"the plan": func() error { return failure(evil.client.PlanPlacement(t.Context(), &weirv1.PlanPlacementRequest{})) },
		"a drain of the other": func() error {
			return failure(evil.client.DrainSwitch(t.Context(), &weirv1.DrainSwitchRequest{Name: "good"}))
		},
	} {
		if code := connect.CodeOf(call()); code != connect.CodePermissionDenied {
			t.Errorf("%s: %v", what, code)
		}
	}
}
