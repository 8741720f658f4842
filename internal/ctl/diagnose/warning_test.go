package diagnose

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A mux that refuses its first snapshot comes and goes: what matters is why.
func TestRefusalIsToldOfADisconnectedNode(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	o := observation{now: now, status: &weirv1.GetStatusResponse{}}
	o.warnNode(&weirv1.Node{Name: "m", Role: "mux", Status: &weirv1.NodeStatus{
		LastSeen: timestamppb.New(now.Add(-time.Second)), Rejection: &weirv1.Rejection{Generation: 7, Reason: "full"},
	}})
	want := []string{
		"mux m: refused generation 7: full",
		"mux m: disconnected, last seen 1s ago; it runs none: " +
			"check the machine, or weir delete node m if it is gone for good",
	}
	if !slices.Equal(o.warnings, want) {
		t.Errorf("got %q\nwant %q", o.warnings, want)
	}
}

// quietMux has routes that bring no packets, since its session came up an hour ago.
func quietMux(name string, now time.Time, peers ...*weirv1.BGPPeer) *weirv1.Node {
	return &weirv1.Node{Name: name, Role: "mux", Status: &weirv1.NodeStatus{
		Connected: true, LastSeen: timestamppb.New(now), Mux: &weirv1.MuxStatus{Peers: peers},
	}}
}

// upSession is one that is up for an hour, with the family that it has and those that it has not.
func upSession(now time.Time, as uint32, has string, hasNot ...string) *weirv1.BGPPeer {
	p := &weirv1.BGPPeer{
		Address: "router-" + has, As: as, State: "established", Bfd: "up", Since: timestamppb.New(now.Add(-time.Hour)), Routes: 2,
		Families: []*weirv1.BGPFamily{{Name: has, Negotiated: true, Routes: 2}},
	}
	for _, name := range hasNot {
		p.Families = append(p.Families, &weirv1.BGPFamily{Name: name, Routes: 3})
	}
	return p
}

func warningsOf(now time.Time, nodes ...*weirv1.Node) []string {
	o := observation{now: now, status: &weirv1.GetStatusResponse{Nodes: nodes}}
	o.warn()
	return o.warnings
}

// Where no mux gets a packet there may be no clients, or switches serve all VIPs: routers are not to blame.
func TestSilenceOfAllMuxesIsNoWarning(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	a, b := quietMux("a", now, upSession(now, 65000, "ipv4")), quietMux("b", now, upSession(now, 65000, "ipv4"))
	b.GetStatus().GetMux().LastPacket = timestamppb.New(now.Add(-time.Hour))
	if got := warningsOf(now, a, b); len(got) > 0 {
		t.Errorf("no mux gets packets: %q", got)
	}
	b.GetStatus().GetMux().LastPacket = timestamppb.New(now.Add(-time.Second))
	if got := warningsOf(now, a, b); len(got) != 1 || !strings.HasPrefix(got[0], "mux a: no packet of a VIP has come for 1h0m, and mux b") {
		t.Errorf("one does: %q", got)
	}
}

// A router may have a session for each family.
func TestFamilyOfAnotherSessionIsNoWarning(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	m := quietMux("m", now, upSession(now, 65000, "ipv4", "ipv6"), upSession(now, 65000, "ipv6", "ipv4"))
	if got := warningsOf(now, m); len(got) > 0 {
		t.Errorf("both families have a session: %q", got)
	}
	m = quietMux("m", now, upSession(now, 65000, "ipv4", "ipv6"), upSession(now, 65001, "ipv6", "ipv4"))
	if got := warningsOf(now, m); len(got) != 2 {
		t.Errorf("each of two routers lacks a family: %q", got)
	}
}

// A node's words are read at terminals, which must not obey them.
func TestWarningsHaveNoEscapes(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	m := quietMux("m", now, &weirv1.BGPPeer{Address: "r", State: "active", LastError: "no\x1b[2J"})
	m.GetStatus().GetMux().Warnings = []string{"a\x1b]0;b\x07\nc"}
	if got := strings.Join(warningsOf(now, m), "|"); got != "mux m: BGP session with r is active: no[2J|mux m: a]0;b c" {
		t.Errorf("got %q", got)
	}
}
