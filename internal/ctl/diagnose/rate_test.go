package diagnose

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rate"
)

// reported is a mux that has forwarded so many packets by so many seconds.
func reported(name string, seconds int, packets uint64) *weirv1.Node {
	return &weirv1.Node{Name: name, Role: "mux", Status: &weirv1.NodeStatus{
		Connected: true, LastSeen: timestamppb.New(time.Unix(int64(seconds), 0)),
		Mux: &weirv1.MuxStatus{
			Verdicts: []*weirv1.NamedCounter{{Name: "forward_syn", Packets: packets, Bytes: 100 * packets}, {Name: "drop_too_big"}},
			Endpoints: []*weirv1.EndpointCounter{{
				Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}, Packets: packets, Bytes: 100 * packets,
			}},
		},
	}}
}

func TestRatesAreOfTwoReports(t *testing.T) {
	g := newGauge()
	endpoint := func() rate.Rate { return g.endpoint("TCP 203.0.113.10:80") }
	g.observe([]*weirv1.Node{reported("m1", 0, 100), reported("m2", 0, 0)})
	if g.ready() {
		t.Error("one report made a rate")
	}
	g.observe([]*weirv1.Node{reported("m1", 2, 300), reported("m2", 4, 40)})
	if !g.ready() {
		t.Error("two reports made no rate")
	}
	want := rate.Rate{Packets: 100 + 10, Bits: 100*800 + 10*800}
	if endpoint() != want || g.verdicts()["forward_syn"] != want {
		t.Errorf("rates are %v and %v, want %v", endpoint(), g.verdicts(), want)
	}
	if got := g.mux("m1", table.VerdictForward); got.Packets != 100 {
		t.Errorf("m1 forwards %v, want 100", got)
	}
	// The same report again changes nothing.
	g.observe([]*weirv1.Node{reported("m1", 2, 300), reported("m2", 4, 40)})
	if endpoint() != want {
		t.Errorf("an old report made the rate %v", endpoint())
	}
	// Counters that began anew have no rate, and are no negative number.
	g.observe([]*weirv1.Node{reported("m1", 4, 5), reported("m2", 6, 40)})
	if got := endpoint(); got != (rate.Rate{}) {
		t.Errorf("rate is %v, want none", got)
	}
	// A mux that is away has none either.
	away := reported("m1", 6, 1000)
	away.Status.Connected = false
	g.observe([]*weirv1.Node{away, reported("m2", 8, 60)})
	if got := endpoint(); got.Packets != 10 {
		t.Errorf("rate is %v, want 10 packets of m2 alone", got)
	}
}

func TestPerSecond(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 0.5: "0.5", 9: "9.0", 12: "12", 999: "999", 1000: "1k", 1234: "1.23k", 4.56e6: "4.56M", 25e9: "25G",
	} {
		if got := perSecond(n); got != want {
			t.Errorf("%v is written as %q, want %q", n, got, want)
		}
	}
}

func key(text string, code rune) tea.KeyPressMsg { return tea.KeyPressMsg{Text: text, Code: code} }

func TestScreen(t *testing.T) {
	s := &screen{top: &top{gauge: newGauge()}, view: 1}
	has := func(want string) {
		t.Helper()
		if got := strings.Join(strings.Fields(s.draw()), " "); !strings.Contains(got, want) {
			t.Errorf("the screen shows %q, want %q", got, want)
		}
	}
	backend := func(host, address string, weight, buckets uint32, health string) *weirv1.Backend {
		return &weirv1.Backend{Host: host, Address: address, Port: 8080, Weight: &weight, Status: &weirv1.BackendStatus{
			Health: health, Buckets: buckets, BucketsTotal: 512,
		}}
	}
	vips := []*weirv1.VIP{{Name: "shop", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{{
		Protocol: "TCP", Port: 80, Backends: []*weirv1.Backend{
			backend("host1", "10.3.1.11", 1, 171, "healthy"), backend("host1", "10.3.1.12", 2, 341, "healthy"),
			backend("host2", "10.3.2.11", 1, 0, "unhealthy"), backend("host2", "10.3.2.12", 0, 0, "healthy"),
		},
	}}}}
	vips[0].Endpoints[0].Backends[1].Status.Sessions = 812
	s.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
	s.Update(looked{[]*weirv1.Node{reported("m1", 0, 0)}, vips, false, nil, nil})
	has("waiting for the muxes' reports")
	s.Update(looked{[]*weirv1.Node{reported("m1", 2, 2_000_000)}, vips, false, nil, nil})
	has("[2 vips]")
	has("shop TCP 203.0.113.10:80 1M 800M 812 2/4 (1 unhealthy, 1 draining)")
	s.Update(key("", tea.KeyTab))
	has("shop TCP/80 10.3.1.11:8080 host1 healthy 33.4 % 0 0")
	s.Update(key("4", '4'))
	has("forward_syn 1M 800M")
	s.Update(key("1", '1'))
	has("m1 connected 1M 800M 0 0")
	s.Update(looked{err: errors.New("the manager is away")})
	has("the manager is away")

	s.Update(tea.WindowSizeMsg{Width: 10, Height: 2})
	if got := s.draw(); got != " 1 muxes  \n" && got != "[1 muxes] \n" {
		t.Errorf("a small screen shows %q", got)
	}
	if _, cmd := s.Update(key("q", 'q')); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}
