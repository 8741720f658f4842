package ctl

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/manifest"
)

var update = flag.Bool("update", false, "rewrite golden files with what the tests got")

// serve serves handler on loopback and returns its URL.
func serve(t *testing.T, handler weirv1connect.WeirServiceHandler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(handler))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func TestGoldenOutput(t *testing.T) {
	quiet := &canned{status: &weirv1.GetStatusResponse{Version: "v0.1.0", Generation: 1, Store: "embedded"}}
	cases := []struct {
		file    string
		manager *canned
		args    string
	}{
		{"get-vips.txt", badNight(), "get vips"},
		{"get-vip.yaml", badNight(), "get vip shop -o yaml"},
		{"get-vip.json", badNight(), "get vip shop -o json"},
		{"get-nodes.txt", badNight(), "get nodes"},
		{"get-muxes.yaml", badNight(), "get nodes --role mux -o yaml"},
		{"get-node.json", badNight(), "get node host1 -o json"},
		{"describe-vip.txt", badNight(), "describe vip shop"},
		{"describe-vip-snat.txt", leavingNight(), "describe vip crawler"},
		{"snat.txt", leavingNight(), "snat"},
		{"snat-vip.txt", leavingNight(), "snat crawler"},
		{"snat-vip.json", leavingNight(), "snat crawler -o json"},
		{"snat-port.txt", leavingNight(), "snat crawler --port 5003"},
		{"snat-reclaim.txt", leavingNight(), "snat reclaim crawler 10.3.1.11 --ports 5000-5015,6001"},
		{"describe-vip-networks.txt", overlayNight(), "describe vip orders-db"},
		{"connections.txt", overlayNight(), "connections --vip orders-db"},
		{"connections.json", overlayNight(), "connections --vip orders-db --network acme-prod --limit 1 -o json"},
		{"dry-run.txt", badNight(), "apply --dry-run -f ../../examples/shop.yaml"},
		{"dry-run.yaml", badNight(), "apply --dry-run -o yaml -f ../../examples/shop.yaml"},
		{"describe-mux.txt", badNight(), "describe node mux1"},
		{"describe-host.txt", badNight(), "describe node host2"},
		{"status.txt", badNight(), "status"},
		{"status.json", badNight(), "status -o json"},
		{"status-silent.txt", silentNight(), "status"},
		{"status-empty.txt", quiet, "status"},
		{"get-vips-empty.txt", quiet, "get vips"},
		{"get-nodes-empty.txt", quiet, "get nodes"},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			url := serve(t, c.manager)
			got, _, err := run(t, url, strings.Fields(c.args)...)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.ReplaceAll(got, url, "http://manager:7400")
			if strings.Contains(got, "\x1b") {
				t.Error("there is an escape sequence in what goes to a pipe")
			}
			golden(t, "testdata/golden/"+c.file, got)
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// What get writes, apply reads.
func TestGetCanBeApplied(t *testing.T) {
	url := serve(t, badNight())
	for _, format := range []string{"yaml", "json"} {
		text, _, err := run(t, url, "get", "vips", "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manifest.Parse("got", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		if format == "json" && !json.Valid([]byte(text)) {
			t.Errorf("not JSON: %s", text)
		}
	}
}
