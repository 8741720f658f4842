package diagnose

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
)

// host is one that has reported of a VIP in a network.
func reportedHost(name string, at time.Duration, packets, opened uint64, handshakes ...uint64) *weirv1.Node {
	return &weirv1.Node{Name: name, Role: "host", Status: &weirv1.NodeStatus{
		Connected: true, LastSeen: timestamppb.New(time.Unix(1e9, 0).Add(at)),
		Host: &weirv1.HostStatus{Networks: []*weirv1.NetworkTraffic{{
			Vip: "203.0.113.30", Network: "acme", Handshakes: handshakes,
			Backends: []*weirv1.NetworkBackendTraffic{{PacketsIn: packets / 2, PacketsOut: packets / 2, BytesIn: 100 * packets, Opened: opened, Open: 4}},
		}}},
	}}
}

func TestRatesOfBypassedTraffic(t *testing.T) {
	g, key := newGauge(), attached{"203.0.113.30", "acme"}
	g.observeHosts([]*weirv1.Node{reportedHost("h1", 0, 1000, 10, 5), reportedHost("h2", 0, 0, 0)})
	if g.ready() {
		t.Error("there are rates after one report")
	}
	second := []*weirv1.Node{reportedHost("h1", 2*time.Second, 3000, 14, 5, 4), reportedHost("h2", 2*time.Second, 200, 2, 0, 0, 2)}
	for range 2 { // the same report again changes nothing
		g.observeHosts(second)
		r := g.networks()[key]
		if !g.ready() || r.Packets != 1100 || r.Bits != 880000 || r.opened != 3 || r.open != 8 {
			t.Errorf("rates %+v", r)
		}
		if got := table.RTT(r.handshakes, 0.5); got != "57µs" { // 3 of 4 in the second bucket: 33 to 66 µs
			t.Errorf("median %s of %v", got, r.handshakes)
		}
	}
	g.observeHosts([]*weirv1.Node{reportedHost("h1", 4*time.Second, 10, 0), reportedHost("h2", 4*time.Second, 300, 3)})
	if r := g.networks()[key]; r.Packets != 50 || r.opened != 0.5 {
		t.Errorf("a host that began anew counts: %+v", r)
	}
}

func TestRTTs(t *testing.T) {
	for _, c := range []struct {
		handshakes []uint64
		quantile   float64
		want       string
	}{
		{nil, 0.5, ""},
		{[]uint64{0, 0}, 0.5, ""},
		{[]uint64{10, 0}, 0.5, "16µs"},
		{[]uint64{10, 0, 0, 0, 0, 10, 0}, 0.99, "1ms"},
		{[]uint64{0, 0, 1}, 1, ">66µs"},
	} {
		if got := table.RTT(c.handshakes, c.quantile); got != c.want {
			t.Errorf("%g of %v is %q, want %q", c.quantile, c.handshakes, got, c.want)
		}
	}
}
