package webui

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// markup is what would run if a text of it were put in as HTML.
const markup = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`

// The page in a browser: every page with data of two tenants, strangers, markup in every text, axe in both themes, the
// keyboard alone, and what changes while a page is open.
func TestInBrowser(t *testing.T) {
	if os.Getenv("WEIR_UI") == "" {
		t.Skip("needs Node: make ui-test runs it")
	}
	c := startCluster(t, 3)
	// Nodes and the browser are at a manager that does not lead, which goes on when the leader is lost.
	fill(t, c, c.urls[1])
	browse(t, (*exec.Cmd).Start, []string{
		"WEIR_URL=" + c.urls[1], "WEIR_ADMIN=" + token(t, c.admin, "ann", "*", "admin"), "WEIR_VIEWER=" + token(t, c.admin, "vic", "red", "viewer"),
		"WEIR_CONTROL=" + c.serve(t, listen(t)),
	})
}

// browse runs tests of web/e2e, those that are named or all, and returns what they wrote.
func browse(t *testing.T, start func(*exec.Cmd) error, env []string, tests ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node_modules/.bin/playwright", append([]string{"test", "--output", filepath.Join(t.TempDir(), "results")}, tests...)...)
	cmd.Dir, cmd.Env = "../../web", append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if t.Log(out.String()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// cluster is managers with TLS, and what the tests do to it.
type cluster struct {
	control

	admin  *rpc.Client // of all of them
	config string
	urls   []string
	stops  []func()
}

// startCluster founds a cluster, whose first manager leads.
func startCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{control: control{}}
	c.control["/weir"] = func(w io.Writer, r *http.Request) error { // as the first admin
		root := ctl.Command(ctl.Config{})
		root.SetArgs(append(r.URL.Query()["arg"], "--config", c.config))
		root.SetOut(w)
		root.SetErr(w)
		if err := root.ExecuteContext(r.Context()); err != nil {
			fmt.Fprintln(w, err)
		}
		return nil
	}
	for i := range n {
		cfg := manager.Config{
			Name: fmt.Sprint("m", i+1), DataDir: t.TempDir(), Listen: "127.0.0.1:0", PeerListen: freeAddress(t), Version: "test", Log: slog.New(slog.DiscardHandler),
		}
		if i > 0 {
			made, err := c.admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: "manager"})
			if err != nil {
				t.Fatal(err)
			}
			cfg.Join, cfg.TokenFile, cfg.CAHash = c.urls[0], writeToken(t, made.GetText()), made.GetCaHash()
		}
		c.start(t, cfg)
	}
	if n == 1 {
		return c
	}
	access, err := rpc.ReadConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	access.Managers = strings.Join(c.urls[1:], ",")
	if c.admin, err = access.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.admin.Close)
	c.control["/lose-leader"] = func(io.Writer, *http.Request) error {
		c.stops[0]()
		for {
			_, err := c.admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{
				Name: "red-new", Tenant: "red", Address: "203.0.113.12", Endpoints: []*weirv1.Endpoint{{Port: 80}},
			}}})
			if err == nil || t.Context().Err() != nil {
				return err
			}
		}
	}
	return c
}

func (c *cluster) start(t *testing.T, cfg manager.Config) {
	t.Helper()
	m, err := manager.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		m.Close()
	})
	t.Cleanup(stop)
	c.urls, c.stops = append(c.urls, "https://"+m.Address().String()), append(c.stops, stop)
	if c.config != "" {
		return
	}
	c.config = pki.AdminFile(cfg.DataDir)
	access, err := rpc.ReadConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	if c.admin, err = access.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.admin.Close)
}

// freeAddress is one at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	defer listener.Close()
	return listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// control is what the browser's tests can have done, by path: the answer is what is written.
type control map[string]func(w io.Writer, r *http.Request) error

// serve serves it, and returns its URL.
func (c control) serve(t *testing.T, listener net.Listener) string {
	t.Helper()
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do := c[r.URL.Path]
		if do == nil {
			http.NotFound(w, r)
			return
		}
		if err := do(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
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

// sent is how many packets a second go to a VIP: in a cluster the mux tells so of red's, in a lab a client sends them.
const sent = 1234

// fill gives the cluster two muxes, a host and a switch, whose texts are markup, and VIPs and networks of tenants.
func fill(t *testing.T, c *cluster, url string) {
	t.Helper()
	admin := c.admin
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}, {Name: "blue"}, {Name: "green"}}}); err != nil {
		t.Fatal(err)
	}
	mux, _ := joinMux(t, admin, url, "mux1", "10.1.1.2", markup)
	_, killed := joinMux(t, admin, url, "mux2", "10.1.1.3", "test")
	c.control["/kill-mux2"] = func(io.Writer, *http.Request) error { killed(); return nil }
	host := join(t, admin, url, "agent", trust.Host, "host1")
	rules, err := host.SyncHost(t.Context(), &weirv1.SyncHostRequest{Name: "host1", Addresses: []string{"10.2.1.1"}, Version: "test", Multipath: true})
	if err != nil || !rules.Receive() {
		t.Fatalf("the stream of a host: %v", err)
	}
	go func() { // it ends with the test
		for rules.Receive() {
			listConnections(t.Context(), host, rules.Msg().GetTasks())
		}
	}()
	joinSwitch(t, admin, url)
	apply := &weirv1.ApplyVIPsRequest{Overlays: overlay, Networks: networks(), Vips: []*weirv1.VIP{{
		Name: "red-out", Tenant: "red", Address: "203.0.113.11", Snat: &weirv1.SNAT{Workloads: []*weirv1.SNATWorkload{{Host: "host1", Address: "10.3.1.30"}}},
	}}}
	for tenant, address := range map[string]string{"red": "203.0.113.10", "blue": "203.0.113.20"} {
		apply.Vips = append(apply.Vips, &weirv1.VIP{
			Name: tenant + "-shop", Tenant: tenant, Address: address, Labels: map[string]string{"team": tenant, "note": markup},
			Endpoints: []*weirv1.Endpoint{{
				Port: 80, Backends: []*weirv1.Backend{{Host: "host1", Address: "10.3.1." + address[len(address)-2:]}},
				HealthCheck: &weirv1.HealthCheck{Check: &weirv1.HealthCheck_Tcp{Tcp: &weirv1.TCPCheck{}}},
			}},
		})
	}
	apply.Vips = append(apply.Vips, many("red-many", "203.0.113.30"), many("red-many-6", "2001:db8:113::30"), checked(), placed())
	apply.Vips = append(apply.Vips, attached()...)
	apply.Vips[1].Limits = &weirv1.Limits{Packets: 5000}
	applied, err := admin.ApplyVIPs(t.Context(), apply)
	if err != nil {
		t.Fatal(err)
	}
	reportHost(t, host, apply.GetVips(), applied.GetGeneration())
	sends(t, mux, &weirv1.ReportMuxRequest{
		Name: "mux1", Rejection: &weirv1.Rejection{Generation: applied.GetGeneration(), Reason: markup},
		Events: []*weirv1.MuxEvent{{Endpoint: shop("203.0.113.10"), Reason: "SYNCookiesOn", Message: markup, Warning: true}},
		Status: &weirv1.MuxStatus{
			XdpMode: "native", Interface: "eth0", Warnings: []string{markup},
			Pressures: []*weirv1.VIPPressure{{Vip: "203.0.113.10", Tenant: "red", Cause: "syn-flood", Evidence: markup, Endpoint: shop("203.0.113.10")}},
			Peers: []*weirv1.BGPPeer{
				{Address: "10.1.1.1", As: 65000, State: "established", Bfd: "up", Since: timestamppb.New(time.Now()), Routes: 2},
				{Address: "10.1.1.254", As: 65000, State: "active", Bfd: "off", LastError: markup},
			},
		},
	})
}

// many is a VIP with five backends, for TCP and UDP.
func many(name, address string) *weirv1.VIP {
	vip := &weirv1.VIP{Name: name, Tenant: "red", Address: address}
	for _, protocol := range []string{"TCP", "UDP"} {
		e := &weirv1.Endpoint{Protocol: protocol, Port: 80}
		for n := range 5 {
			backend := fmt.Sprintf("10.3.2.%d", 11+n)
			if strings.Contains(address, ":") {
				backend = fmt.Sprintf("fd00:3::%d", 11+n)
			}
			e.Backends = append(e.Backends, &weirv1.Backend{Host: "host1", Address: backend})
		}
		vip.Endpoints = append(vip.Endpoints, e)
	}
	return vip
}

// reportHost tells that the host's backends are unhealthy, and what leaves from it.
func reportHost(t *testing.T, host *rpc.Client, vips []*weirv1.VIP, generation uint64) {
	t.Helper()
	report := &weirv1.ReportHostRequest{Name: "host1", Generation: generation, Status: &weirv1.HostStatus{
		Uplink: "eth0", Warnings: []string{markup}, Networks: bypassed(), SteeringRefused: []*weirv1.SteeringRefusal{{Vip: "203.0.113.41", Reason: markup}},
		Snat: []*weirv1.SNATUse{{
			Vip: "203.0.113.11", Address: "10.3.1.30", Ranges: 1, PortsInUse: 3, Flows: 7,
			Destinations: []*weirv1.SNATDestination{{Address: "198.51.100.7", Port: 443, Protocol: "TCP", Flows: 7}},
		}},
	}}
	for _, vip := range vips {
		if len(vip.GetEndpoints()) == 0 || vip.GetEndpoints()[0].GetHealthCheck().GetTcp() == nil {
			continue
		}
		report.Health = append(report.Health, &weirv1.BackendHealth{
			Endpoint: &weirv1.EndpointKey{Vip: vip.GetAddress(), Protocol: "TCP", Port: 80}, Address: vip.GetEndpoints()[0].GetBackends()[0].GetAddress(), Port: 80,
			Health: "unhealthy", Reason: markup,
		})
	}
	if _, err := host.ReportHost(t.Context(), report); err != nil {
		t.Fatal(err)
	}
}

func shop(address string) *weirv1.EndpointKey {
	return &weirv1.EndpointKey{Vip: address, Protocol: "TCP", Port: 80}
}

// joinMux opens the stream of a mux until end is called.
func joinMux(t *testing.T, admin *rpc.Client, url, name, address, version string) (mux *rpc.Client, end func()) {
	t.Helper()
	mux = join(t, admin, url, "mux", trust.Mux, name)
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	tables, err := mux.SyncMux(ctx, &weirv1.SyncMuxRequest{Name: name, Addresses: []string{address}, Version: version})
	if err != nil || !tables.Receive() {
		t.Fatalf("the stream of a mux: %v", err)
	}
	go func() { // it ends with the stream
		for tables.Receive() {
			copyPackets(ctx, mux, name, tables.Msg().GetTasks())
		}
	}()
	if _, err := mux.ReportMux(t.Context(), &weirv1.ReportMuxRequest{Name: name, Status: &weirv1.MuxStatus{XdpMode: "native", Interface: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	return mux, end
}

// copyPackets has a mux answer observations and captures: with a SYN as it came and as it left.
func copyPackets(ctx context.Context, mux *rpc.Client, name string, tasks []*weirv1.NodeTask) {
	frame := []byte{
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
		0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0x37, 0x65, 192, 0, 2, 1, 203, 0, 113, 10,
		15, 160, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
	}
	for _, task := range tasks {
		if task.GetExplain() != nil { // who asked may be gone
			mux.AnswerTask(ctx, &weirv1.AnswerTaskRequest{Name: name, Id: task.GetId(), Done: true, Explanation: &weirv1.PacketExplanation{
				Verdict: "drop_" + markup, Action: "drop", Frame: task.GetExplain().GetFrame(),
			}})
			continue
		}
		if task.GetCapture() == nil {
			continue
		}
		at := timestamppb.New(time.Unix(1_795_000_000, 123_456_789))
		mux.AnswerTask(ctx, &weirv1.AnswerTaskRequest{Name: name, Id: task.GetId(), Lost: 3, Done: true, Packets: []*weirv1.CapturedPacket{ // who asked may be gone
			{Time: at, Direction: "in", Frame: frame, Length: uint32(len(frame)), Verdict: "forward_syn", Comment: "bucket 7, " + markup},
			{Time: at, Direction: "out", Frame: frame, Length: uint32(len(frame)), Verdict: "forward_syn", Comment: "bucket 7, " + markup},
		}})
	}
}

// sends has a mux report, until the test ends, that it forwards as many packets to red's VIP as sent says, and half of it to
// blue's.
func sends(t *testing.T, mux *rpc.Client, first *weirv1.ReportMuxRequest) {
	t.Helper()
	began := time.Now()
	report := func(ctx context.Context) error {
		n := uint64(sent * time.Since(began).Seconds())
		first.Status.Verdicts = []*weirv1.NamedCounter{{Name: "forward_flow", Packets: n + n/2, Bytes: 100 * (n + n/2)}, {Name: "drop_no_backend", Packets: n / 4, Bytes: 25 * n}}
		first.Status.Endpoints = []*weirv1.EndpointCounter{
			{Endpoint: shop("203.0.113.10"), Packets: n, Bytes: 100 * n}, {Endpoint: shop("203.0.113.20"), Packets: n / 2, Bytes: 50 * n},
		}
		_, err := mux.ReportMux(ctx, first)
		first.Events = nil
		return err
	}
	if err := report(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ticker := time.NewTicker(time.Second); ; {
			select {
			case <-ticker.C:
				report(ctx) // the next one tells the same and more
			case <-ctx.Done():
				return
			}
		}
	}()
}

// join makes a node join, and returns its client.
func join(t *testing.T, admin *rpc.Client, url, role string, kind trust.Kind, name string) *rpc.Client {
	t.Helper()
	made, err := admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	m := &rpc.Membership{
		Managers: url, Kind: kind, Name: name, DataDir: t.TempDir(), TokenFile: writeToken(t, made.GetText()), CAHash: made.GetCaHash(), Log: slog.New(slog.DiscardHandler),
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

func writeToken(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
