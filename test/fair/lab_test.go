// Package fair keeps tenants apart in a lab of its own: lists of sources, limits, and a flood that is another's.
//
//	client1, client2 ── router ── mux1, mux2 ── host1: a container, a native workload
package fair

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// Each has an endpoint of TCP and one of UDP.
var (
	vip4, vip6 = netip.MustParseAddr("203.0.113.40"), netip.MustParseAddr("2001:db8:113::40")
	// victims are of another tenant.
	victim4, victim6 = netip.MustParseAddr("203.0.113.41"), netip.MustParseAddr("2001:db8:113::41")
)

// vip is a manifest of a VIP whose endpoints take TCP, without cookies, and UDP; spec and endpoint are more lines.
func vip(lab *netlab.Lab, name string, address netip.Addr, spec, endpoint string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n%s  endpoints:\n", name, address, spec)
	for _, protocol := range []string{"TCP", "UDP"} {
		fmt.Fprintf(&b, "    - protocol: %s\n      port: 80\n", protocol)
		if protocol == "TCP" {
			b.WriteString("      synCookies: never\n")
		}
		b.WriteString(endpoint + "      backends:\n" + testlab.Backends(lab, address))
	}
	return b.String()
}

// asks makes requests, each on a connection of its own.
func asks(t *testing.T, lab *netlab.Lab, client string, vip netip.Addr, requests int, timeout time.Duration) load.Result {
	t.Helper()
	r, err := netload.RunLoad(t.Context(), lab, client, load.Config{
		URL: testlab.URL(vip), Requests: requests, Concurrency: requests, Timeout: timeout,
	})
	testlab.Must(t, err)
	return r
}

func TestTenantsAreKeptApart(t *testing.T) {
	lab := testlab.Up(t, netlab.Config{Plan: netlab.Plan{Name: "fair", Clients: 2, Muxes: 2, Hosts: 1, Workloads: 2}})
	testlab.Apply(t, lab, vip(lab, "fair-4", vip4, "", ""), vip(lab, "fair-6", vip6, "", ""), vip(lab, "victim-4", victim4, "", ""), vip(lab, "victim-6", victim6, "", ""))
	testlab.WaitServed(t, lab, vip4, vip6, victim4, victim6)
	t.Run("lists", func(t *testing.T) { listsHold(t, lab) })
	t.Run("prefix lists", func(t *testing.T) { prefixListsHold(t, lab) })
	t.Run("limits", func(t *testing.T) { limitsHold(t, lab) })
	t.Run("floods", func(t *testing.T) { floodsAreAnothers(t, lab) })
}

// A client that a list keeps out gets nothing, the other one all.
func listsHold(t *testing.T, lab *netlab.Lab) {
	out := lab.Of(netlab.Client)[1]
	for _, a := range []netip.Addr{vip4, vip6} {
		from := out.IPv4
		if a.Is6() {
			from = out.IPv6
		}
		testlab.Served(t, a, asks(t, lab, out.Name, a, 5, 20*time.Second))
		testlab.Apply(t, lab, vip(lab, fmt.Sprintf("fair-%d", family(a)), a, "", fmt.Sprintf("      deny: ['%s']\n", from)))
		before := testlab.Counted(t, lab, "drop_acl")
		if r := asks(t, lab, out.Name, a, 2, 2*time.Second); r.Failed != r.Requests {
			t.Errorf("%s: %d of %d requests came through", a, r.Requests-r.Failed, r.Requests)
		}
		if testlab.Counted(t, lab, "drop_acl") == before {
			t.Errorf("%s: nothing was dropped", a)
		}
		testlab.Served(t, a, asks(t, lab, "client1", a, 20, 20*time.Second))
	}
}

// listed is how many prefixes of each family the list has, so that two more find room.
const listed = 499_999

// A list of a million prefixes keeps out whom one of them names, from when it is added until it is removed; the other client
// is served all the time.
func prefixListsHold(t *testing.T, lab *netlab.Lab) {
	file, out := filepath.Join(lab.Dir(), "blocked.txt"), lab.Of(netlab.Client)[1]
	var text bytes.Buffer
	for i := range listed {
		fmt.Fprintf(&text, "100.%d.%d.%d\n2001:db8:%x:%x::/64\n", 64+i>>16, i>>8&255, i&255, 0x8000+i>>16, i&0xffff)
	}
	testlab.Must(t, os.WriteFile(file, text.Bytes(), 0o600))
	weir := func(args ...string) {
		t.Helper()
		began := time.Now()
		out, err := lab.Weir(append(args, "--wait", "--timeout", "2m")...)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s after %s", strings.TrimSpace(out), time.Since(began).Round(time.Millisecond))
	}
	weir("prefixlist", "replace", "blocked", "--file", file)
	named := "      denyLists: [blocked]\n"
	began := time.Now()
	testlab.Apply(t, lab, vip(lab, "fair-4", vip4, "", named), vip(lab, "fair-6", vip6, "", named))
	t.Logf("endpoints that name it after %s", time.Since(began).Round(time.Millisecond))
	for _, a := range []netip.Addr{vip4, vip6} {
		from := out.IPv4
		if a.Is6() {
			from = out.IPv6
		}
		testlab.Served(t, a, asks(t, lab, out.Name, a, 5, 20*time.Second))
		weir("prefixlist", "add", "blocked", from.String())
		before := testlab.Counted(t, lab, "drop_acl")
		if r := asks(t, lab, out.Name, a, 2, 2*time.Second); r.Failed != r.Requests {
			t.Errorf("%s: %d of %d requests came through", a, r.Requests-r.Failed, r.Requests)
		}
		if testlab.Counted(t, lab, "drop_acl") == before {
			t.Errorf("%s: nothing was dropped", a)
		}
		testlab.Served(t, a, asks(t, lab, "client1", a, 20, 20*time.Second))
		weir("prefixlist", "remove", "blocked", from.String())
		testlab.Served(t, a, asks(t, lab, out.Name, a, 5, 20*time.Second))
	}
	for kind, daemon := range map[netlab.Kind]string{netlab.Manager: "weir-manager", netlab.Mux: "weir-mux"} {
		for _, node := range lab.Of(kind) {
			used, err := benchlab.UsedBy(lab, node.Name, daemon)
			testlab.Must(t, err)
			t.Logf("%s has %d MiB, its tables %d MiB", node.Name, used.Resident>>20, used.Tables>>20)
		}
	}
	testlab.Apply(t, lab, vip(lab, "fair-4", vip4, "", ""), vip(lab, "fair-6", vip6, "", ""))
	if out, err := lab.Weir("delete", "prefixlist", "blocked"); err != nil {
		t.Errorf("%v: %s", err, out)
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
	testlab.Apply(t, lab, vip(lab, "fair-4", vip4, "  limits: {connections: 100}\n", ""), vip(lab, "fair-6", vip6, "", ""))
	before, kept := testlab.Counted(t, lab, "drop_limit_connections"), uint64(0)
	for tries := 0; kept == 0 && tries < 10; tries++ { // a busy machine may take its time with them
		testlab.Served(t, vip4, asks(t, lab, "client1", vip4, 40, testlab.Bound))
		kept = testlab.Counted(t, lab, "drop_limit_connections") - before
	}
	if kept == 0 {
		t.Error("40 connections at once are no more than a tenth of a second of 100")
	}
	testlab.Served(t, vip6, asks(t, lab, "client1", vip6, 40, testlab.Bound))
	if more := testlab.Counted(t, lab, "drop_limit_connections") - before; more != kept {
		t.Errorf("%d SYNs were dropped, %d of them of a VIP without limits", more, more-kept)
	}
}

const (
	floodTime = 2 * time.Second
	floodRate = 20_000 // packets a second: muxes have capacity for them
)

// What one VIP is flooded with takes nothing from the clients of another, and ends no session of a mux: none of BGP, BFD or
// with a manager. A machine that stands still for longer than BFD waits ends one as well, but not each time.
func floodsAreAnothers(t *testing.T, lab *netlab.Lab) {
	const limits = "  limits: {packets: 100}\n"
	testlab.Apply(t, lab, vip(lab, "fair-4", vip4, "", ""), vip(lab, "fair-6", vip6, "", ""), vip(lab, "victim-4", victim4, limits, ""), vip(lab, "victim-6", victim6, limits, ""))
	for _, c := range []struct {
		kind flood.Kind
		met  []string // verdicts of its packets
	}{
		{flood.SYN, []string{"drop_limit_packets"}},
		{flood.UDP, []string{"drop_limit_packets"}},
		{flood.Segment, []string{"drop_limit_packets"}},
		{flood.Fragment, []string{"drop_limit_packets", "punt_fragment", "drop_punt"}},
		{flood.Ping, []string{"reply_echo", "drop_echo_limited"}},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			kept := false
			for tries := 0; !kept && tries < 3 && !t.Failed(); tries++ {
				sessions := testlab.Sessions(t, lab)
				floodIsAnothers(t, lab, c.kind, c.met)
				now := testlab.Sessions(t, lab)
				if kept = maps.Equal(now, sessions); !kept {
					t.Logf("the muxes' sessions were %+v, are %+v", sessions, now)
					testlab.Must(t, lab.WaitReady(t.Context()))
				}
			}
			if !kept {
				t.Error("whenever this flood comes, a mux loses a session")
			}
		})
	}
}

func floodIsAnothers(t *testing.T, lab *netlab.Lab, kind flood.Kind, met []string) {
	runs := map[netip.Addr]*netload.Load{}
	for _, a := range []netip.Addr{vip4, vip6} {
		run, err := netload.StartLoad(t.Context(), lab, "client1", load.Config{
			URL: testlab.URL(a), Rate: 20, Duration: time.Hour, Timeout: 30 * time.Second,
		})
		testlab.Must(t, err)
		runs[a] = run
	}
	before := testlab.Verdicts(t, lab)
	sent, err := netload.Flood(lab, "client2", flood.Config{
		Targets: []netip.AddrPort{netip.AddrPortFrom(victim4, 80), netip.AddrPortFrom(victim6, 80)}, Kind: kind, Rate: floodRate, Duration: floodTime,
	})
	testlab.Must(t, err)
	after, seen := testlab.Verdicts(t, lab), uint64(0)
	for _, verdict := range met {
		seen += after[verdict] - before[verdict]
	}
	t.Logf("%d packets in %v", sent.Packets, sent.Took)
	for a, run := range runs {
		r, err := run.Stop()
		testlab.Must(t, err)
		testlab.Served(t, a, r)
	}
	if seen < uint64(sent.Packets)/4 {
		t.Errorf("%d of %d packets met %v", seen, sent.Packets, met)
	}
}
