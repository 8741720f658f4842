package overlay_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// backends are what an agent counts: network, VIP and backend.
func (m *machine) backends() (all []string) {
	m.Helper()
	statistics, err := overlay.ReadStatistics(m.Controller)
	m.must(err)
	for _, s := range statistics {
		for _, b := range s.Backends {
			all = append(all, s.Network+" "+s.VIP.String()+" "+b.Address.String())
		}
	}
	return all
}

// Each attachment's backends have counters, also after a restart, and series of their own.
func TestBackendsHaveCounters(t *testing.T) {
	m := newMachine(t, "counters")
	m.must(m.program(networks(nil), true))
	const want = "acme 10.99.0.1 10.9.0.6:8080,bolt 10.99.0.1 10.9.0.6:8080"
	if got := strings.Join(m.backends(), ","); got != want {
		t.Errorf("counters of %s, want %s", got, want)
	}
	m.must(m.Close())
	m.start()
	m.must(m.program(networks(func(n *wire.HostNetworks) {
		n.Attachments[0].VIP = netip.MustParseAddr("10.99.0.0")
		n.Attachments = append(n.Attachments, vnet.Attachment{AttachmentKey: vnet.AttachmentKey{VNI: 100, VIP: vipAddress}, Service: netip.MustParseAddr("203.0.113.12"), Network: "acme"})
	}), true))
	if got := strings.Join(m.backends(), ","); got != "acme 10.99.0.0 10.9.0.6:8080,bolt 10.99.0.1 10.9.0.6:8080" {
		t.Errorf("counters of %s", got) // the third has no backend here
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(telemetry.NewScrape(overlay.Metrics(), m.Sample))
	families, err := registry.Gather()
	m.must(err)
	found := map[string]int{}
	for _, f := range families {
		found[f.GetName()] = len(f.GetMetric())
	}
	for name, series := range map[string]int{
		"weir_agent_network_handshake_duration_seconds": 2, "weir_agent_network_backend_packets_total": 4,
		"weir_agent_network_backend_connections_total": 12, "weir_agent_network_metrics_truncated": 1,
	} {
		if found[name] != series {
			t.Errorf("%d series of %s, want %d", found[name], name, series)
		}
	}
}
