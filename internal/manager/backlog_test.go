package manager

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model/backlog"
)

// backlogsNow are the endpoints whose SYNs the mux is to answer, with the evidence.
func (m *fakeMux) backlogsNow() []backlog.Endpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.backlogs
}

// fill has the host report full backlogs.
func (h *fakeHost) fill(t *testing.T, backlogs ...*weirv1.BackendBacklog) {
	t.Helper()
	h.mu.Lock()
	h.backlogs = backlogs
	h.mu.Unlock()
	if err := h.report(); err != nil {
		t.Fatal(err)
	}
}

// A host's report of a full backlog reaches all muxes, and users once muxes act by it; one of another's backend does not.
func TestBacklogsReachMuxes(t *testing.T) {
	var m *Manager
	url, _ := start(t, Config{}, func(started *Manager) { m = started })
	client := dial(t, url)
	host1, host2 := startHost(t, url, "host1", "10.2.1.2"), startHost(t, url, "host2", "10.2.2.2")
	muxes := []*fakeMux{startMux(t, url, "mux1", "10.1.1.2"), startMux(t, url, "mux2", "10.1.1.3")}
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 4 })
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}}); err != nil {
		t.Fatal(err)
	}
	full := func(tunnel string) *weirv1.BackendBacklog {
		return &weirv1.BackendBacklog{
			Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}, Tunnel: tunnel, Cause: "accept-queue", Waiting: 129, Limit: 128,
		}
	}
	host2.fill(t, full("10.3.1.11")) // that is on host1
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.meters.refusedBacklog)
	eventually(t, "the report is refused", func() bool {
		families, err := registry.Gather()
		return err == nil && families[0].GetMetric()[0].GetGauge().GetValue() == 1
	})
	host1.fill(t, full("10.3.1.11"))
	const evidence = "129 connections wait to be accepted by backend 10.3.1.11:8080 on host1, whose backlog is 128"
	for _, mux := range muxes {
		eventually(t, mux.name+" knows", func() bool {
			told := mux.backlogsNow()
			return len(told) == 1 && told[0].Key.String() == "TCP 203.0.113.10:80" && told[0].Evidence == evidence
		})
	}
	late := startMux(t, url, "mux3", "10.1.1.4")
	eventually(t, "a mux that joins knows", func() bool { return len(late.backlogsNow()) == 1 })

	muxes[0].complain(t, &weirv1.VIPPressure{
		Vip: "203.0.113.10", Cause: "backlog", Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}, Evidence: evidence,
	})
	eventually(t, "users see it", func() bool {
		r, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
		if err != nil {
			return false
		}
		conditions := r.GetVip().GetStatus().GetConditions()
		last := conditions[len(conditions)-1]
		return last.GetType() == "synCookies" && last.GetReason() == "BacklogFull" && last.GetMessage() == "mux1 answers SYNs with cookies: "+evidence
	})
	explained, err := client.Explain(t.Context(), &weirv1.ExplainRequest{
		Protocol: "TCP", SourceAddress: "198.51.100.7", SourcePort: 40000, DestinationAddress: "203.0.113.10", DestinationPort: 80,
	})
	if err != nil || !strings.Contains(strings.Join(explained.GetSteps(), "\n"), "mux1 answers SYNs with cookies: "+evidence) {
		t.Errorf("explains %v (%v)", explained.GetSteps(), err)
	}
}
