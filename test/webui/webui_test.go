package webui

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// markup is what would run if a text of it were put in as HTML.
const markup = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`

// The page in a browser: every page with data of two tenants, strangers, markup in every text, axe in both themes, and
// the keyboard alone.
func TestInBrowser(t *testing.T) {
	if os.Getenv("WEIR_UI") == "" {
		t.Skip("needs Node: make ui-test runs it")
	}
	admin, url, config := startManager(t)
	fill(t, admin, url)
	file := filepath.Join(t.TempDir(), "browser.json")
	cmd := exec.CommandContext(t.Context(), "node_modules/.bin/playwright", "test", "--output", filepath.Join(t.TempDir(), "results"))
	cmd.Dir = "../../web"
	cmd.Env = append(os.Environ(), "WEIR_URL="+url, "WEIR_ADMIN="+token(t, admin, "ann", "*", "admin"), "WEIR_VIEWER="+token(t, admin, "vic", "red", "viewer"),
		"WEIR_CONFIG="+config, "PLAYWRIGHT_JSON_OUTPUT_NAME="+file)
	out, err := cmd.CombinedOutput()
	if t.Log(string(out)); err != nil {
		t.Fatal(err)
	}
}

// startManager runs a manager with TLS.
func startManager(t *testing.T) (admin *rpc.Client, url, config string) {
	t.Helper()
	dir := t.TempDir()
	m, err := manager.New(t.Context(), manager.Config{DataDir: dir, Listen: "127.0.0.1:0", Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		m.Close()
	})
	access, err := rpc.ReadConfig(pki.AdminFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	if admin, err = access.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return admin, "https://" + m.Address().String(), pki.AdminFile(dir)
}

func token(t *testing.T, admin *rpc.Client, name, tenant, role string) string {
	t.Helper()
	made, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: name, Bindings: []*weirv1.Binding{{Tenant: tenant, Role: role}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetToken()
}

// fill gives the cluster a mux and a host, whose texts are markup, and a VIP each of two tenants.
func fill(t *testing.T, admin *rpc.Client, url string) {
	t.Helper()
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}, {Name: "blue"}}}); err != nil {
		t.Fatal(err)
	}
	mux := join(t, admin, url, "mux", trust.Mux, "mux1")
	tables, err := mux.SyncMux(t.Context(), &weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.1.2"}, Version: markup})
	if err != nil || !tables.Receive() {
		t.Fatalf("the stream of a mux: %v", err)
	}
	host := join(t, admin, url, "agent", trust.Host, "host1")
	rules, err := host.SyncHost(t.Context(), &weirv1.SyncHostRequest{Name: "host1", Addresses: []string{"10.2.1.1"}, Version: "test"})
	if err != nil || !rules.Receive() {
		t.Fatalf("the stream of a host: %v", err)
	}
	apply := &weirv1.ApplyVIPsRequest{}
	for tenant, address := range map[string]string{"red": "203.0.113.10", "blue": "203.0.113.20"} {
		apply.Vips = append(apply.Vips, &weirv1.VIP{
			Name: tenant + "-shop", Tenant: tenant, Address: address, Labels: map[string]string{"team": tenant},
			Endpoints: []*weirv1.Endpoint{{
				Port: 80, Backends: []*weirv1.Backend{{Host: "host1", Address: "10.3.1." + address[len(address)-2:]}},
				HealthCheck: &weirv1.HealthCheck{Check: &weirv1.HealthCheck_Tcp{Tcp: &weirv1.TCPCheck{}}},
			}},
		})
	}
	applied, err := admin.ApplyVIPs(t.Context(), apply)
	if err != nil {
		t.Fatal(err)
	}
	report := &weirv1.ReportHostRequest{Name: "host1", Generation: applied.GetGeneration(), Status: &weirv1.HostStatus{Uplink: "eth0", Warnings: []string{markup}}}
	for _, vip := range apply.GetVips() {
		report.Health = append(report.Health, &weirv1.BackendHealth{
			Endpoint: &weirv1.EndpointKey{Vip: vip.GetAddress(), Protocol: "TCP", Port: 80}, Address: vip.GetEndpoints()[0].GetBackends()[0].GetAddress(), Port: 80,
			Health: "unhealthy", Reason: markup,
		})
	}
	if _, err := host.ReportHost(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	if _, err := mux.ReportMux(t.Context(), &weirv1.ReportMuxRequest{Name: "mux1", Rejection: &weirv1.Rejection{Generation: applied.GetGeneration(), Reason: markup}, Status: &weirv1.MuxStatus{
		XdpMode: "native", Interface: "eth0", Warnings: []string{markup},
		Peers: []*weirv1.BGPPeer{
			{Address: "10.1.1.1", As: 65000, State: "established", Bfd: "up", Since: timestamppb.New(time.Now()), Routes: 2},
			{Address: "10.1.1.254", As: 65000, State: "active", Bfd: "off", LastError: markup},
		},
	}}); err != nil {
		t.Fatal(err)
	}
}

// join makes a node join, and returns its client.
func join(t *testing.T, admin *rpc.Client, url, role string, kind trust.Kind, name string) *rpc.Client {
	t.Helper()
	made, err := admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(made.GetText()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &rpc.Membership{
		Managers: url, Kind: kind, Name: name, DataDir: t.TempDir(), TokenFile: file, CAHash: made.GetCaHash(), Log: slog.New(slog.DiscardHandler),
	}
	if err := m.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := m.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
