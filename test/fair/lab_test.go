// Package fair keeps tenants apart in a lab of its own: lists of sources, limits, and a flood that is another's.
//
//	client1, client2 ── router ── mux1, mux2 ── host1: a container, a native workload
package fair

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/testkit/flood"
	"github.com/weirlb/weir/internal/testkit/load"
	"github.com/weirlb/weir/internal/testkit/netlab"
)

const (
	labName = "fair"
	bound   = time.Minute
)

// Each has an endpoint of TCP and one of UDP.
var (
	vip4, vip6 = netip.MustParseAddr("203.0.113.40"), netip.MustParseAddr("2001:db8:113::40")
	victim     = netip.MustParseAddr("203.0.113.41")
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func up(t *testing.T) *netlab.Lab {
	t.Helper()
	must(t, netlab.Down(labName)) // what a run that crashed left
	bin := os.Getenv("WEIR_BIN")
	if bin == "" {
		var err error
		bin, err = filepath.Abs("../../bin")
		must(t, err)
	}
	lab, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: labName, Clients: 2, Muxes: 2, Hosts: 1, Workloads: 2}, Bin: bin, Tied: true,
	})
	must(t, err)
	t.Cleanup(func() { must(t, lab.Down()) })
	return lab
}

// vip is a manifest of a VIP whose endpoints take TCP, without cookies, and UDP; spec and endpoint are more lines.
func vip(lab *netlab.Lab, name string, address netip.Addr, spec, endpoint string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n%s  endpoints:\n", name, address, spec)
	for _, protocol := range []string{"TCP", "UDP"} {
		fmt.Fprintf(&b, "    - protocol: %s\n      port: 80\n", protocol)
		if protocol == "TCP" {
			b.WriteString("      synCookies: never\n")
		}
		b.WriteString(endpoint + "      backends:\n")
		for _, n := range lab.Of(netlab.Workload) {
			to := n.IPv4
			if address.Is6() {
				to = n.IPv6
			}
			fmt.Fprintf(&b, "        - {host: %s, address: '%s', port: %d}\n", n.Host, to, netlab.EchoPort)
		}
	}
	return b.String()
}

func apply(t *testing.T, lab *netlab.Lab, manifests ...string) {
	t.Helper()
	file := filepath.Join(lab.Dir(), "fair.yaml")
	must(t, os.WriteFile(file, []byte(strings.Join(manifests, "")), 0o600))
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func url(vip netip.Addr) string { return "http://" + netip.AddrPortFrom(vip, 80).String() + "/" }

// counted is how many packets of all muxes met a verdict.
func counted(t *testing.T, lab *netlab.Lab, verdict string) (all uint64) {
	t.Helper()
	for _, n := range lab.Of(netlab.Mux) {
		out, err := lab.Run(n.Name, lab.Find("weir-mux"), "status", "--pin-path", lab.PinPath(n.Name), "-o", "json")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var status struct {
			Verdicts map[string]struct {
				Packets uint64 `json:"packets"`
			} `json:"verdicts"`
		}
		must(t, json.Unmarshal([]byte(out), &status))
		all += status.Verdicts[verdict].Packets
	}
	return all
}

// asks makes requests, each on a connection of its own.
func asks(t *testing.T, lab *netlab.Lab, client string, vip netip.Addr, requests int, timeout time.Duration) load.Result {
	t.Helper()
	r, err := lab.Load(t.Context(), client, load.Config{URL: url(vip), Requests: requests, Concurrency: requests, Timeout: timeout})
	must(t, err)
	return r
}

func served(t *testing.T, r load.Result) {
	t.Helper()
	if r.Failed > 0 || r.Requests == 0 {
		t.Errorf("%d of %d requests failed: %+v", r.Failed, r.Requests, r.Failures[:min(3, len(r.Failures))])
	}
}

func TestTenantsAreKeptApart(t *testing.T) {
	lab := up(t)
	apply(t, lab, vip(lab, "fair-4", vip4, "", ""), vip(lab, "fair-6", vip6, "", ""), vip(lab, "victim", victim, "", ""))
	for _, a := range []netip.Addr{vip4, vip6, victim} {
		must(t, lab.WaitRouted(t.Context(), bound, a, 2))
	}
	must(t, lab.WaitHealthy(t.Context(), bound))
	t.Run("lists", func(t *testing.T) { listsHold(t, lab) })
	t.Run("limits", func(t *testing.T) { limitsHold(t, lab) })
	t.Run("flood", func(t *testing.T) { floodIsAnothers(t, lab) })
}

// A client that a list keeps out gets nothing, the other one all.
func listsHold(t *testing.T, lab *netlab.Lab) {
	out := lab.Of(netlab.Client)[1]
	for _, a := range []netip.Addr{vip4, vip6} {
		from := out.IPv4
		if a.Is6() {
			from = out.IPv6
		}
		served(t, asks(t, lab, out.Name, a, 5, 20*time.Second))
		apply(t, lab, vip(lab, fmt.Sprintf("fair-%d", family(a)), a, "", fmt.Sprintf("      deny: ['%s']\n", from)))
		before := counted(t, lab, "drop_source")
		if r := asks(t, lab, out.Name, a, 2, 2*time.Second); r.Failed != r.Requests {
			t.Errorf("%s: %d of %d requests came through", a, r.Requests-r.Failed, r.Requests)
		}
		if counted(t, lab, "drop_source") == before {
			t.Errorf("%s: nothing was dropped", a)
		}
		served(t, asks(t, lab, "client1", a, 20, 20*time.Second))
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// Connections above a limit wait for the client's next try, and come through then; those of another VIP do not wait.
func limitsHold(t *testing.T, lab *netlab.Lab) {
	apply(t, lab, vip(lab, "fair-4", vip4, "  limits: {connections: 100}\n", ""), vip(lab, "fair-6", vip6, "", ""))
	before, kept := counted(t, lab, "drop_limit_connections"), uint64(0)
	for tries := 0; kept == 0 && tries < 10; tries++ { // a busy machine may take its time with them
		served(t, asks(t, lab, "client1", vip4, 40, bound))
		kept = counted(t, lab, "drop_limit_connections") - before
	}
	if kept == 0 {
		t.Error("40 connections at once are no more than a tenth of a second of 100")
	}
	served(t, asks(t, lab, "client1", vip6, 40, bound))
	if more := counted(t, lab, "drop_limit_connections") - before; more != kept {
		t.Errorf("%d SYNs were dropped, %d of them of a VIP without limits", more, more-kept)
	}
}

// A flood of datagrams for one VIP takes nothing from the clients of another.
func floodIsAnothers(t *testing.T, lab *netlab.Lab) {
	apply(t, lab, vip(lab, "fair-4", vip4, "", ""), vip(lab, "victim", victim, "  limits: {packets: 2000}\n", ""))
	before := counted(t, lab, "drop_limit_packets")
	run, err := lab.StartLoad(t.Context(), "client1", load.Config{URL: url(vip4), Rate: 20, Duration: time.Hour, Timeout: 30 * time.Second})
	must(t, err)
	sent, err := lab.Flood("client2", flood.Config{Targets: []netip.AddrPort{netip.AddrPortFrom(victim, 80)}, UDP: true, Duration: 3 * time.Second})
	must(t, err)
	r, err := run.Stop()
	must(t, err)
	t.Logf("%d datagrams in %v; %d requests, %d failed, slowest %v", sent.Packets, sent.Took, r.Requests, r.Failed, r.Slowest)
	served(t, r)
	if counted(t, lab, "drop_limit_packets") == before {
		t.Error("the flood stayed within the limit")
	}
}
