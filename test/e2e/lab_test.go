package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
)

const sharedLab = "e2e"

var (
	vip4 = netip.MustParseAddr("203.0.113.20")
	vip6 = netip.MustParseAddr("2001:db8:113::20")
	vips = []netip.Addr{vip4, vip6}

	// shop is who serves TCP 80, with its weight: workloads of both kinds.
	shop = map[string]int{"host1-w1": 1, "host2-w2": 2, "host3-w1": 3}
)

// shared is the lab that most tests use, built for the first of them.
var shared struct {
	*netlab.Lab
	once sync.Once
	err  error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	for _, name := range []string{sharedLab, "health", snatName, fastpathName} { // what a run that crashed left
		if err := netlab.Down(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	defer func() {
		if err := netlab.Down(sharedLab); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

func binFolder() (string, error) {
	if bin := os.Getenv("WEIR_BIN"); bin != "" {
		return bin, nil
	}
	return filepath.Abs("../../bin")
}

func buildLab(ctx context.Context) (*netlab.Lab, error) {
	bin, err := binFolder()
	if err != nil {
		return nil, err
	}
	lab, err := netlab.Up(ctx, netlab.Config{
		Plan: netlab.Plan{Name: sharedLab, Clients: 2, Managers: 3, Muxes: 2, Hosts: 3, Workloads: 2}, Bin: bin, Tied: true,
	})
	if err != nil {
		return nil, err
	}
	if err := startServers(lab); err != nil {
		return nil, err
	}
	file := filepath.Join(lab.Dir(), "e2e.yaml")
	if err := os.WriteFile(file, []byte(manifest(lab)), 0o600); err != nil {
		return nil, err
	}
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return lab, lab.WaitHealthy(ctx, bound)
}

// newLab returns the shared lab as it should be: all muxes at work.
func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	shared.once.Do(func() { shared.Lab, shared.err = buildLab(context.Background()) })
	if shared.err != nil {
		t.Fatalf("build the lab: %v", shared.err)
	}
	ready(t, shared.Lab)
	t.Cleanup(func() { shared.Report(t) })
	return shared.Lab
}

// ready waits until both muxes take part again.
func ready(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	ctx := context.Background() // the test's own is over when it cleans up
	must(t, lab.WaitReady(ctx))
	must(t, lab.WaitHealthy(ctx, bound))
	for _, vip := range vips {
		must(t, lab.WaitRouted(ctx, bound, vip, len(lab.Of(netlab.Mux))))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// manifest is the VIPs of the shared lab.
func manifest(lab *netlab.Lab) string {
	var b strings.Builder
	for i, vip := range vips {
		address := func(n netlab.Node) netip.Addr {
			if vip.Is6() {
				return n.IPv6
			}
			return n.IPv4
		}
		endpoint := func(protocol string, port, to int, check string, weight func(netlab.Node) int) {
			fmt.Fprintf(&b, "    - protocol: %s\n      port: %d\n%s      backends:\n", protocol, port, check)
			for _, n := range lab.Of(netlab.Workload) {
				if w := weight(n); w > 0 {
					fmt.Fprintf(&b, "        - {host: %s, address: '%s', port: %d, weight: %d}\n", n.Host, address(n), to, w)
				}
			}
		}
		all := func(netlab.Node) int { return 1 }
		// Ten failures in a row: a server that writes a gigabyte to a busy disk is not dead.
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: e2e-%d}\nspec:\n  address: '%s'\n  endpoints:\n", i+1, vip)
		endpoint("TCP", 80, nginxPort, "      healthCheck: {http: {path: /}, interval: 500ms, timeout: 400ms, fall: 10}\n",
			func(n netlab.Node) int { return shop[n.Name] })
		endpoint("TCP", 8080, netlab.EchoPort, "      healthCheck: {tcp: {}, interval: 500ms, timeout: 400ms, fall: 10}\n", all)
		endpoint("UDP", 8080, netlab.EchoPort, "", all)
		for _, protocol := range []string{"TCP", "UDP"} {
			endpoint(protocol, iperfPort, iperfPort, "", func(n netlab.Node) int {
				if n.Name == iperfWorkload {
					return 1
				}
				return 0
			})
		}
	}
	return b.String()
}

func url(vip netip.Addr, port uint16, path string) string {
	return "http://" + netip.AddrPortFrom(vip, port).String() + path
}

// answered holds that no request failed and that the servers saw the client's own address.
func answered(t *testing.T, lab *netlab.Lab, client string, vip netip.Addr, r load.Result) {
	t.Helper()
	if r.Failed > 0 || r.Retried > 0 {
		t.Errorf("%s: %d of %d requests failed, %d were retried, the first with %+v", vip, r.Failed, r.Requests, r.Retried, r.Failures[0])
	}
	node, err := lab.Node(client)
	must(t, err)
	own := node.IPv4
	if vip.Is6() {
		own = node.IPv6
	}
	if got := r.Clients[own.String()]; got != r.Requests-r.Failed || len(r.Clients) > 1 {
		t.Errorf("%s: servers saw the clients %v, want only %s", vip, r.Clients, own)
	}
}

// loadAll makes the same requests to the VIPs of both families at once, while meanwhile runs, however long that takes, and
// for the config's duration at least.
func loadAll(t *testing.T, lab *netlab.Lab, config load.Config, meanwhile func()) map[netip.Addr]load.Result {
	t.Helper()
	const longest = 10 * time.Minute
	runs := map[netip.Addr]*netload.Load{}
	for _, vip := range vips {
		c := config
		c.URL, c.Duration = url(vip, 80, "/"), longest
		run, err := netload.StartLoad(t.Context(), lab, "client1", c)
		must(t, err)
		runs[vip] = run
	}
	least := time.NewTimer(config.Duration)
	meanwhile()
	<-least.C
	results := map[netip.Addr]load.Result{}
	for vip, run := range runs {
		r, err := run.Stop()
		must(t, err)
		results[vip] = r
	}
	return results
}
