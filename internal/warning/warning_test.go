package warning

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
	got := warningsOf(now, &weirv1.Node{Name: "m", Role: "mux", Status: &weirv1.NodeStatus{
		LastSeen: timestamppb.New(now.Add(-time.Second)), Rejection: &weirv1.Rejection{Generation: 7, Reason: "full"},
	}})
	want := []string{
		"no mux is connected: those that run forward with the tables they have, and learn of no change",
		"mux m: refused generation 7: full",
		"mux m: disconnected, last seen 1s ago; it runs none: " +
			"check the machine, or weir delete node m if it is gone for good",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
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
	list, _ := Of(&weirv1.GetStatusResponse{Nodes: nodes}, now)
	texts := make([]string, 0, len(list))
	for _, w := range list {
		texts = append(texts, w.GetText())
	}
	return texts
}

// A warning says what it is of, so that a page leads there; what is left out is counted.
func TestWarningsSayWhatTheyAreOf(t *testing.T) {
	status := &weirv1.GetStatusResponse{
		VipWarnings: []string{"vip shop, TCP 80: has no backends: the muxes drop what arrives", "vip blog and 2 others: refused by mux m: full"}, VipWarningsTotal: 5, Vips: 5,
		Nodes: []*weirv1.Node{{Name: "s", Role: "switch", Status: &weirv1.NodeStatus{Connected: true, Switch: &weirv1.SwitchStatus{Warnings: []string{"hot"}}}}},
	}
	list, total := Of(status, time.Time{})
	var got []string
	for _, w := range list {
		got = append(got, w.GetKind()+"/"+w.GetName())
	}
	if want := []string{"/", "VIP/shop", "VIP/blog", "VIP/", "switch/s"}; !slices.Equal(got, want) || total != 7 {
		t.Errorf("got %q of %d, want %q of 7", got, total, want)
	}
}

// Where no mux gets a packet there may be no clients, or switches serve all VIPs: routers are not to blame, and a note says
// that they may be.
func TestSilenceOfAllMuxesIsNoWarning(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	a, b := quietMux("a", now, upSession(now, 65000, "ipv4")), quietMux("b", now, upSession(now, 65000, "ipv4"))
	const ways = ". Nobody sends, or routers drop what is announced: weir doctor path VIP:PORT, on a client, tells which"
	last := func(ago time.Duration) { b.GetStatus().GetMux().LastPacket = timestamppb.New(now.Add(-ago)) }
	up := func(ago time.Duration) {
		for _, n := range []*weirv1.Node{a, b} {
			n.GetStatus().GetMux().GetPeers()[0].Since = timestamppb.New(now.Add(-ago))
		}
	}
	sw := &weirv1.Node{Name: "sw1", Role: "switch", Status: &weirv1.NodeStatus{Connected: true, Switch: &weirv1.SwitchStatus{}}}
	for _, c := range []struct {
		what string
		do   func()
		and  []*weirv1.Node
		want string
	}{
		{"none came", func() { up(time.Minute) }, nil, "No mux gets packets: none of a VIP has come since BGP came up, for 1m0s" + ways},
		{"sessions are young", func() { up(59 * time.Second) }, nil, ""},
		{"none came since", func() { up(2 * time.Minute); last(3 * time.Minute) }, nil, "No mux gets packets: none of a VIP has come since BGP came up, for 2m0s" + ways},
		{"some did", func() { up(time.Hour); last(20 * time.Minute) }, nil, "No mux gets packets: none of a VIP has come for 20m0s" + ways},
		{"some did", func() { last(20 * time.Minute) }, []*weirv1.Node{sw}, ""},
		{"some did", func() { last(14 * time.Minute) }, nil, ""},
		{"one is cut off", func() {
			last(time.Hour)
			a.GetStatus().Connected = false
		}, nil, ""},
		{"no session is up", func() {
			last(time.Hour)
			a.GetStatus().GetMux().Peers, b.GetStatus().GetMux().Peers = nil, nil
		}, nil, ""},
	} {
		c.do()
		nodes := append([]*weirv1.Node{a, b}, c.and...)
		if got := Silence(&weirv1.GetStatusResponse{Nodes: nodes}, now); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if got := warningsOf(now, nodes...); len(got) > 0 && a.GetStatus().GetConnected() {
			t.Errorf("%s: it is a warning: %q", c.what, got)
		}
	}
}

// A mux that gets none while another one does is told of.
func TestSilenceOfOneMux(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	a, b := quietMux("a", now, upSession(now, 65000, "ipv4")), quietMux("b", now, upSession(now, 65000, "ipv4"))
	b.GetStatus().GetMux().LastPacket = timestamppb.New(now.Add(-time.Second))
	got := warningsOf(now, a, b)
	if len(got) != 1 || !strings.HasPrefix(got[0], "mux a: no packet of a VIP has come for 1h0m, and mux b") {
		t.Errorf("got %q", got)
	}
	if got := Silence(&weirv1.GetStatusResponse{Nodes: []*weirv1.Node{a, b}}, now); got != "" {
		t.Errorf("one mux gets packets: %q", got)
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

// What a switch warns of is told, as what hosts and muxes warn of.
func TestWarningsOfSwitchesAreTold(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	got := warningsOf(now, &weirv1.Node{Name: "sw1", Role: "switch", Status: &weirv1.NodeStatus{
		Connected: true, LastSeen: timestamppb.New(now), Switch: &weirv1.SwitchStatus{Warnings: []string{"1 tunnels have no route"}},
	}})
	if want := []string{"switch sw1: 1 tunnels have no route"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
