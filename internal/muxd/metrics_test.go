package muxd

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/slowpath"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

// served runs the telemetry of a mux with tables, and returns its URL.
func served(t *testing.T) (url string, b *bench) {
	t.Helper()
	observed, err := telemetry.Start(t.Context(), telemetry.Options{Listen: "127.0.0.1:0"},
		telemetry.Process{Program: "weir-mux", Name: "mux-1", Version: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(observed.Close)
	b = newBench(t, true, func(c *Config) {
		c.Telemetry, c.SlowPathCounters = observed, &slowpath.Counters{}
	})
	b.hops.changed(resolved)
	return "http://" + observed.Address().String(), b
}

func TestMetricsTellWhatAMuxDoes(t *testing.T) {
	url, b := served(t)
	scrape.Await(t, url, `weir_mux_generation 7`, `weir_mux_vips 1`, `weir_mux_packets_total{verdict="forward_syn"} 3`,
		`weir_mux_endpoint_bytes_total{port="80",protocol="TCP",vip="203.0.113.10"} 180`,
		`weir_mux_bgp_session_up{peer="10.0.0.1"} 0`, `weir_mux_hosts{reachable="true"} 1`, `weir_mux_stream_connected 0`)
	b.mux.state.Reject(9, io.ErrUnexpectedEOF)
	scrape.Await(t, url, `weir_mux_rejected_generation 9`)
	scrape.Lint(t, scrape.Read(t, url))
}

func TestMuxSaysWhatIsNotReady(t *testing.T) {
	url, _ := served(t)
	response, err := http.Get(url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(string(text), "not ready: bgp: no session is up: 10.0.0.1: no answer\n") ||
		!strings.Contains(string(text), "ready: tables: generation 7 runs\n") {
		t.Errorf("%s: %s", response.Status, text)
	}
}

func TestOneSessionIsEnough(t *testing.T) {
	up := bgp.PeerState{Address: addr("10.0.0.1"), State: "established"}
	down := bgp.PeerState{Address: addr("10.0.0.2"), State: "active"}
	if text, err := peersReady([]bgp.PeerState{up, down}); err != nil || text != "1 of 2 sessions are up; 10.0.0.2: active" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := peersReady([]bgp.PeerState{down}); err == nil {
		t.Error("a mux without a session is ready")
	}
	if _, err := peersReady(nil); err != nil {
		t.Error(err)
	}
}
