package manager

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

// observed starts a manager whose metrics are served, with a mux and two hosts.
func observed(t *testing.T) (url, metrics string, mux *fakeMux) {
	t.Helper()
	var address string
	url, _ = start(t, Config{Telemetry: telemetry.Options{Listen: "127.0.0.1:0"}}, func(m *Manager) {
		address = m.observed.Address().String()
	})
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	metrics, mux = "http://"+address, startMux(t, url, "mux1", "10.1.0.2")
	scrape.Await(t, metrics, `weir_manager_nodes{connected="true",role="host"} 2`, `weir_manager_streams{role="mux"} 1`)
	return url, metrics, mux
}

func TestMetricsTellWhatAManagerDoes(t *testing.T) {
	url, metrics, mux := observed(t)
	client := dial(t, url)
	applied, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{}); err == nil {
		t.Fatal("an empty apply is taken")
	}
	answer, err := http.Get(url + "/v1/vips/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer, err = http.Get(url + "/v1/vips/a/path/that/only/a/stranger/asks/for"); err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	poll(t, func() bool { return mux.has(applied.GetGeneration()) })
	scrape.Await(t, metrics,
		`weir_manager_vips 1`,
		`weir_manager_endpoints 1`,
		`weir_manager_backends{health="unknown"} 2`,
		`weir_manager_nodes{connected="true",role="host"} 2`,
		`weir_manager_streams{role="mux"} 1`,
		`weir_manager_mux_connected{mux="mux1"} 1`,
		`weir_manager_store_up 1`,
		`weir_manager_store_has_leader 1`,
		`weir_manager_api_requests_total{code="ok",procedure="/weir.v1.WeirService/ApplyVIPs"} 1`,
		`weir_manager_api_requests_total{code="invalid_argument",procedure="/weir.v1.WeirService/ApplyVIPs"} 1`,
		`weir_manager_api_requests_total{code="not_found",procedure="GET /v1/vips/{name}"} 1`,
		`weir_manager_api_requests_total{code="not_found",procedure="unknown"} 1`,
	)
	text := scrape.Read(t, metrics)
	for _, some := range []string{
		`weir_manager_sync_duration_seconds_count{role="mux"}`,
		`weir_manager_store_request_duration_seconds_count{operation="transaction",result="ok"}`,
		`weir_manager_store_db_bytes`, `weir_manager_store_db_quota_bytes`, `weir_manager_store_revision`,
		`etcd_disk_wal_fsync_duration_seconds_count`,
	} {
		if scrape.Value(t, text, some) == 0 {
			t.Errorf("%s is 0", some)
		}
	}

	mux.set("no room")
	if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	scrape.Await(t, metrics, `weir_manager_nodes_rejecting{role="mux"} 1`, `weir_manager_rejections_total{role="mux"} 1`)
}

func TestMetricsOfAManagerKeepTheConventions(t *testing.T) {
	url, metrics, mux := observed(t)
	applied, err := dial(t, url).ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}})
	if err != nil {
		t.Fatal(err)
	}
	poll(t, func() bool { return mux.has(applied.GetGeneration()) })
	scrape.Lint(t, scrape.Read(t, metrics))
}

func TestManagerSaysWhetherItIsReady(t *testing.T) {
	_, metrics, _ := observed(t)
	response, err := http.Get(metrics + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "ready: store: embedded") {
		t.Errorf("%s: %s", response.Status, text)
	}
}

// poll waits until holds does.
func poll(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to hold")
		}
	}
}
