package nodesync

import (
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model/hardware"
)

// What neighbours of a switch, and a switch, say of ports is stored: it is bounded, and obeyed by no terminal.
func TestPortsOfASwitchAreBounded(t *testing.T) {
	usual := make([]*weirv1.SwitchPort, 512)
	for i := range usual {
		usual[i] = &weirv1.SwitchPort{Name: "Ethernet100", Neighbour: "agg-12-3.dc1.example.com", NeighbourPort: "etp100\x1b[2J"}
	}
	if kept := keptPorts(usual); len(kept) != 512 || kept[0].GetNeighbourPort() != "etp100[2J" {
		t.Errorf("%d ports are kept of 512, the first as %v", len(kept), kept[0])
	}
	hostile := make([]*weirv1.SwitchPort, 512)
	for i := range hostile {
		hostile[i] = &weirv1.SwitchPort{Name: strings.Repeat("x", 1<<10), Neighbour: strings.Repeat("\x00", 1<<10), NeighbourPort: strings.Repeat("é", 1<<10)}
	}
	kept, total := keptPorts(hostile), 0
	for _, p := range kept {
		total += len(p.GetName()) + len(p.GetNeighbour()) + len(p.GetNeighbourPort())
	}
	if len(kept) != 512 || total > maxPortText {
		t.Errorf("%d ports with %d bytes are kept", len(kept), total)
	}
	for name, ports := range map[string][]*weirv1.SwitchPort{"usual": usual, "hostile": hostile} {
		for _, p := range ports {
			p.Up, p.MbitPerS, p.ReceivedBytesPerS, p.SentBytesPerS, p.Changes = true, 400_000, 1<<40, 1<<40, 1<<40
		}
		detail := &weirv1.NodeStatus{Switch: &weirv1.SwitchStatus{Ports: ports}}
		text, err := report{detail: detail, bare: withoutCounters(detail)}.forStore()
		stored := &weirv1.NodeStatus{}
		if err != nil || len(text) > maxDetail || protojson.Unmarshal(text, stored) != nil || len(stored.GetSwitch().GetPorts()) != 512 {
			t.Errorf("%s: %d bytes with %d ports are stored, %v", name, len(text), len(stored.GetSwitch().GetPorts()), err)
		}
		if got := stored.GetSwitch().GetPorts()[511]; name == "usual" && (got.GetNeighbour() == "" || got.GetChanges() == 0) {
			t.Errorf("the last port is stored as %v", got)
		}
	}
}

// Reports that differ in the load of ports alone are no news, and a link that goes down is.
func TestLoadOfPortsIsNoNews(t *testing.T) {
	of := func(up bool, bytes uint64) report {
		detail := &weirv1.NodeStatus{Switch: &weirv1.SwitchStatus{Ports: []*weirv1.SwitchPort{{Name: "e0", Up: up, SentBytesPerS: bytes, Errors: bytes}}}}
		r := report{detail: detail, bare: withoutCounters(detail)}
		if detail.GetSwitch().GetPorts()[0].GetSentBytesPerS() != bytes {
			t.Error("the report has lost its counters")
		}
		return r
	}
	if !of(true, 1).equals(of(true, 2)) {
		t.Error("the load of a port is news")
	}
	known, other := of(true, 1), of(true, 1)
	other.detail.GetSwitch().GetPorts()[0].Neighbour = "another"
	other.bare = withoutCounters(other.detail)
	if !known.equals(other) {
		t.Error("a neighbour has what it says stored at once")
	}
	if of(true, 1).equals(of(false, 1)) {
		t.Error("a link that went down is no news")
	}
}

// Of VIPs that a switch has withdrawn for want of a route so many are kept, each an address; all of them are stored.
func TestUnroutedVIPsAreBounded(t *testing.T) {
	texts := []string{"web", "fe80::1%eth0", "2001:DB8::1"}
	for i := range hardware.MaxUnrouted {
		texts = append(texts, netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 8: 0xff, 13: 1, 14: byte(i >> 8), 15: byte(i)}).String())
	}
	kept := keptAddresses(texts)
	if len(kept) != hardware.MaxUnrouted-2 || kept[0] != "2001:db8::1" {
		t.Errorf("%d are kept, the first is %q", len(kept), kept[0])
	}
	ports := make([]*weirv1.SwitchPort, 512)
	for i := range ports {
		ports[i] = &weirv1.SwitchPort{Name: "Ethernet100"}
	}
	detail := &weirv1.NodeStatus{Switch: &weirv1.SwitchStatus{Ports: ports, Unrouted: kept}}
	text, err := report{detail: detail, bare: withoutCounters(detail)}.forStore()
	stored := &weirv1.NodeStatus{}
	if err != nil || protojson.Unmarshal(text, stored) != nil || len(stored.GetSwitch().GetUnrouted()) != len(kept) {
		t.Errorf("%d are stored of %d (%v)", len(stored.GetSwitch().GetUnrouted()), len(kept), err)
	}
}
