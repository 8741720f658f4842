// Package testlab is what tests have in common that build a lab of their own, with the real programs.
package testlab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// Bound is how long anything in a lab may take.
const Bound = time.Minute

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// After waits, with traffic that goes on, but no longer than the test.
func After(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// Up builds a lab with the programs in the folder WEIR_BIN, or else in the repository's bin. It goes with the
// test, which says what its programs logged if it failed. One of its name that a crash left goes first.
func Up(t *testing.T, config netlab.Config) *netlab.Lab {
	t.Helper()
	Must(t, netlab.Down(config.Name))
	config.Bin, config.Tied = os.Getenv("WEIR_BIN"), true
	if config.Bin == "" {
		var err error
		config.Bin, err = filepath.Abs("../../bin")
		Must(t, err)
	}
	lab, err := netlab.Up(t.Context(), config)
	Must(t, err)
	t.Cleanup(func() {
		lab.Report(t)
		Must(t, lab.Down())
	})
	return lab
}

// Apply applies manifests, and waits until all muxes run them.
func Apply(t *testing.T, lab *netlab.Lab, manifests ...string) {
	t.Helper()
	file := filepath.Join(lab.Dir(), "test.yaml")
	Must(t, os.WriteFile(file, []byte(strings.Join(manifests, "")), 0o600))
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// WaitServed waits until all muxes announce the VIPs, and no backend is unhealthy or unknown.
func WaitServed(t *testing.T, lab *netlab.Lab, vips ...netip.Addr) {
	t.Helper()
	for _, vip := range vips {
		Must(t, lab.WaitRouted(t.Context(), Bound, vip, len(lab.Of(netlab.Mux))))
	}
	Must(t, lab.WaitHealthy(t.Context(), Bound))
}

// URL is what port 80 of a VIP serves.
func URL(vip netip.Addr) string { return "http://" + netip.AddrPortFrom(vip, 80).String() + "/" }

// Served holds that there were requests, and that none failed.
func Served(t *testing.T, vip netip.Addr, r load.Result) {
	t.Helper()
	t.Logf("%s: %d requests, %d failed, slowest %v", vip, r.Requests, r.Failed, r.Slowest)
	if r.Failed > 0 || r.Requests == 0 {
		t.Errorf("%s: %d of %d requests failed: %+v", vip, r.Failed, r.Requests, r.Failures[:min(3, len(r.Failures))])
	}
}

// Verdicts is how many packets of all muxes met each verdict.
func Verdicts(t *testing.T, lab *netlab.Lab) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, n := range lab.Of(netlab.Mux) {
		verdicts, err := lab.Verdicts(n.Name)
		Must(t, err)
		for name, packets := range verdicts {
			all[name] += packets
		}
	}
	return all
}

// Counted is how many packets of all muxes met a verdict.
func Counted(t *testing.T, lab *netlab.Lab, verdict string) uint64 {
	t.Helper()
	return Verdicts(t, lab)[verdict]
}

// Sessions are those of all muxes: none of them may change while a mux only has much to do.
func Sessions(t *testing.T, lab *netlab.Lab) map[string]netlab.Sessions {
	t.Helper()
	all := map[string]netlab.Sessions{}
	for _, n := range lab.Of(netlab.Mux) {
		sessions, err := lab.Sessions(n.Name)
		Must(t, err)
		all[n.Name] = sessions
	}
	return all
}

// Events are the lines of weir get events that tell of a reason.
func Events(t *testing.T, lab *netlab.Lab, reason string) (lines []string) {
	t.Helper()
	out, err := lab.Weir("get", "events")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(out) {
		if slices.Contains(strings.Fields(line), reason) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Backends are YAML's lines of all workloads as backends of a VIP, in its family, indented by eight.
func Backends(lab *netlab.Lab, vip netip.Addr) string {
	var b strings.Builder
	for _, n := range lab.Of(netlab.Workload) {
		address := n.IPv4
		if vip.Is6() {
			address = n.IPv6
		}
		fmt.Fprintf(&b, "        - {host: %s, address: '%s', port: %d}\n", n.Host, address, netlab.EchoPort)
	}
	return b.String()
}
