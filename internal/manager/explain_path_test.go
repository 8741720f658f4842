package manager

import (
	"fmt"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/rpc"
)

// tunnelled is a packet for the VIP of path on its way to a host of its.
func tunnelled(tunnel string) []byte {
	outer := pkt.UDP("10.1.1.2:1", tunnel+":1").IP
	return pkt.TCP("198.51.100.7:40000", "203.0.113.10:80", pkt.SYN).Inside(outer).Frame()
}

// path is what a manager says of a packet's way.
func path(t *testing.T, client *rpc.Client, mux string) string {
	t.Helper()
	frame := pkt.TCP("198.51.100.7:40000", "203.0.113.10:80", pkt.SYN).Frame()
	return pathOf(t, client, &weirv1.ExplainPathRequest{Frame: frame, Mux: mux})
}

func pathOf(t *testing.T, client *rpc.Client, r *weirv1.ExplainPathRequest) string {
	t.Helper()
	p, err := client.ExplainPath(t.Context(), r)
	if err != nil {
		return err.Error()
	}
	var hops []string
	for _, h := range p.GetHops() {
		hops = append(hops, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", h.GetRole(), h.GetNode(), h.GetExplanation().GetVerdict(), h.GetError())))
	}
	return strings.Join(hops, ", ")
}

// A packet is followed from a mux to the hosts that it comes to, whichever managers hold their streams, and never in circles.
func TestPathIsExplained(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2)
	client := dial(t, r.urls[0])
	if got := path(t, client, ""); !strings.Contains(got, "no mux is connected: start one, or name one that is") {
		t.Errorf("without a mux: %s", got)
	}
	mux := startMux(t, r.urls[0], "mux1", "10.1.1.2")
	host1, host2 := startHost(t, r.urls[0], "host1", "10.2.1.2"), startHost(t, r.urls[1], "host2", "10.2.2.2")
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	apply(t, r.urls[0], &weirv1.VIP{Name: "shop", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{{
		Protocol: "TCP", Port: 80, Backends: []*weirv1.Backend{
			{Address: "10.3.1.11", Port: 80, Host: "host1", Tunnel: "10.2.1.2"}, {Address: "10.3.2.11", Port: 80, Host: "host2", Tunnel: "10.2.2.2"},
		},
	}}})
	endpoint := &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}
	mux.explain("forward_syn", "transmit", endpoint, tunnelled("10.2.1.2"))
	host1.explain("chain_on", "transmit", tunnelled("10.2.2.2"))
	host2.explain("deliver_native", "deliver", nil)
	for _, url := range r.urls {
		client := dial(t, url)
		for _, mux := range []string{"", "mux1"} {
			const want = "mux mux1 forward_syn, host host1 chain_on, host host2 deliver_native"
			eventually(t, url+" follows the packet", func() bool { return path(t, client, mux) == want })
		}
	}

	flow := &weirv1.ExplainRequest{Protocol: "UDP", SourceAddress: "198.51.100.7", SourcePort: 40000, DestinationAddress: "203.0.113.10", DestinationPort: 80}
	if got := pathOf(t, client, &weirv1.ExplainPathRequest{Flow: flow}); !strings.HasPrefix(got, "mux mux1 forward_syn, host host1") {
		t.Errorf("of a flow: %s", got)
	}
	if got := pathOf(t, client, &weirv1.ExplainPathRequest{Flow: flow, Frame: make([]byte, 64)}); !strings.Contains(got, "leave one of them out") {
		t.Errorf("of a flow and a frame: %s", got)
	}

	host2.explain("chain_back", "transmit", tunnelled("10.2.1.2"))
	if got := path(t, client, ""); got != "mux mux1 forward_syn, host host1 chain_on, host host2 chain_back" {
		t.Errorf("in a circle: %s", got)
	}
	host1.explain("reply_uplink", "transmit", tunnelled("10.9.9.9")) // to no host of the VIP
	if got := path(t, client, ""); got != "mux mux1 forward_syn, host host1 reply_uplink" {
		t.Errorf("to somebody else: %s", got)
	}
	host1.explain("chain_on", "transmit", append(tunnelled("10.2.2.2"), make([]byte, 1<<14)...))
	if got := path(t, client, ""); !strings.HasPrefix(got, "mux mux1 forward_syn, host host1 chain_on, host host2") || !strings.Contains(got, "must be of 14 to 3200 bytes") {
		t.Errorf("a frame that no host takes: %s", got)
	}
	mux.explain("drop_no_backend", "drop", endpoint, tunnelled("10.2.1.2"))
	if got := path(t, client, "mux1"); got != "mux mux1 drop_no_backend" {
		t.Errorf("of what is dropped: %s", got)
	}
}

// explain has the mux say this of each packet.
func (m *fakeMux) explain(verdict, action string, endpoint *weirv1.EndpointKey, frame []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.explanation = &weirv1.PacketExplanation{Verdict: verdict, Action: action, Endpoint: endpoint, Frame: frame}
}

// explain has the host say this of each packet.
func (h *fakeHost) explain(verdict, action string, frame []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.explanation = &weirv1.PacketExplanation{Verdict: verdict, Action: action, Frame: frame}
}
