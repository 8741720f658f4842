// Package synflood runs SYN cookies in a lab of their own:
//
//	client1, client2 ── router ──┬── mux1, mux2 ── host1: a container, a native workload
//	                             └──────────────── host2: likewise
package synflood

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/testkit/flood"
	"github.com/weirlb/weir/internal/testkit/load"
	"github.com/weirlb/weir/internal/testkit/netlab"
)

const (
	labName = "syn"
	bound   = time.Minute
	// floodTime is how long spoofed SYNs come, at the full speed of one core.
	floodTime = 10 * time.Second
)

var vips = []netip.Addr{netip.MustParseAddr("203.0.113.30"), netip.MustParseAddr("2001:db8:113::30")}

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
		Plan: netlab.Plan{Name: labName, Clients: 2, Muxes: 2, Hosts: 2, Workloads: 2}, Bin: bin, Tied: true,
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range lab.Nodes() {
				for _, program := range []string{"weir-mux", "weir-agent", "weir-manager"} {
					if _, err := lab.Process(n.Name, program); err != nil {
						continue
					}
					log := lab.Log(n.Name, program)
					t.Logf("%s on %s:\n%s", program, n.Name, log[max(0, len(log)-2000):])
				}
			}
		}
		must(t, lab.Down())
	})
	return lab
}

// apply has the VIPs' SYNs answered in the mode.
func apply(t *testing.T, lab *netlab.Lab, mode string) {
	t.Helper()
	var b strings.Builder
	for i, vip := range vips {
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: syn-%d}\nspec:\n  address: '%s'\n  endpoints:\n"+
			"    - port: 80\n      synCookies: %s\n      backends:\n", i, vip, mode)
		for _, n := range lab.Of(netlab.Workload) {
			address := n.IPv4
			if vip.Is6() {
				address = n.IPv6
			}
			fmt.Fprintf(&b, "        - {host: %s, address: '%s', port: %d}\n", n.Host, address, netlab.EchoPort)
		}
	}
	file := filepath.Join(lab.Dir(), mode+".yaml")
	must(t, os.WriteFile(file, []byte(b.String()), 0o600))
	out, err := lab.Weir("apply", "-f", file, "--wait")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func url(vip netip.Addr) string { return "http://" + netip.AddrPortFrom(vip, 80).String() + "/" }

// answered is how many SYNs the muxes have answered with cookies.
func answered(t *testing.T, lab *netlab.Lab) (all uint64) {
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
		all += status.Verdicts["reply_syn"].Packets
	}
	return all
}

// served makes requests, each on a connection of its own, none of which may fail.
func served(t *testing.T, lab *netlab.Lab, vip netip.Addr, requests int) {
	t.Helper()
	r, err := lab.Load(t.Context(), "client1", load.Config{URL: url(vip), Requests: requests, Concurrency: 8, Timeout: 20 * time.Second})
	must(t, err)
	t.Logf("%s: %d requests, slowest %v, by %v", vip, r.Requests, r.Slowest, r.Backends)
	if r.Requests != requests || r.Failed > 0 || len(r.Backends) != len(lab.Of(netlab.Workload)) {
		t.Errorf("%s: %d of %d requests failed, by backends %v: %+v", vip, r.Failed, r.Requests, r.Backends, r.Failures[:min(3, len(r.Failures))])
	}
}

// events are the lines of weir get events that tell of a reason.
func events(t *testing.T, lab *netlab.Lab, reason string) (lines []string) {
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

// Real connections are made by cookies, to workloads of both kinds, and of both families. A flood of spoofed
// SYNs turns cookies on, own clients lose nothing, and cookies go when the flood has gone.
func TestSYNCookiesInTheLab(t *testing.T) {
	lab := up(t)
	apply(t, lab, "always")
	for _, vip := range vips {
		must(t, lab.WaitRouted(t.Context(), bound, vip, 2))
	}
	must(t, lab.WaitHealthy(t.Context(), bound))
	t.Run("always", func(t *testing.T) {
		for _, vip := range vips {
			before := answered(t, lab)
			served(t, lab, vip, 400)
			if n := answered(t, lab) - before; n < 400 {
				t.Errorf("%s: the muxes answered %d SYNs only", vip, n)
			}
		}
	})
	t.Run("auto", func(t *testing.T) {
		apply(t, lab, "auto")
		before := answered(t, lab)
		for _, vip := range vips {
			served(t, lab, vip, 100)
		}
		if n := answered(t, lab) - before; n != 0 {
			t.Errorf("the muxes answered %d SYNs without a flood", n)
		}
		underFlood(t, lab)
		if n := answered(t, lab) - before; n == 0 {
			t.Error("no SYN was answered with a cookie")
		}
	})
}

// underFlood floods the VIPs while clients ask them.
func underFlood(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	runs := map[netip.Addr]*netlab.Load{}
	config := flood.Config{Duration: floodTime}
	for _, vip := range vips {
		run, err := lab.StartLoad(t.Context(), "client1", load.Config{URL: url(vip), Rate: 20, Duration: time.Hour, Timeout: 30 * time.Second})
		must(t, err)
		runs[vip] = run
		config.Targets = append(config.Targets, netip.AddrPortFrom(vip, 80))
	}
	r, err := lab.Flood("client2", config)
	must(t, err)
	t.Logf("%d SYNs of spoofed sources in %v", r.Packets, r.Took)
	ended := func() error {
		on, off := events(t, lab, "SYNCookiesOn"), events(t, lab, "SYNCookiesOff")
		if len(on) == 0 || len(off) != len(on) {
			return fmt.Errorf("the muxes told %q and %q", on, off)
		}
		t.Logf("%s", strings.Join(append(on, off...), "\n"))
		return nil
	}
	must(t, netlab.Poll(context.WithoutCancel(t.Context()), bound, ended))
	for vip, run := range runs {
		r, err := run.Stop()
		must(t, err)
		t.Logf("%s: %d requests, %d failed, slowest %v", vip, r.Requests, r.Failed, r.Slowest)
		if r.Failed > 0 || r.Requests == 0 {
			t.Errorf("%s: %d of %d requests failed: %+v", vip, r.Failed, r.Requests, r.Failures[:min(3, len(r.Failures))])
		}
	}
}
