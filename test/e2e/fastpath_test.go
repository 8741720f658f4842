package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/testkit/netlab"
	"github.com/weirlb/weir/internal/testkit/stream"
)

const (
	fastpathName = "fastpath"
	// fastpathBytes are what each host sends past the muxes; WEIR_FASTPATH_BYTES says another number.
	fastpathBytes = 200 << 20
	// wirePacket is about what a full packet carries.
	wirePacket = 1300
)

// fastpathPair is a client and a server, each behind a VIP of its own.
type fastpathPair struct {
	client, server         string
	clientVIP, serverVIP   netip.Addr
	of                     func(netlab.Node) netip.Addr
	clientsName, serveName string
}

// A container talks to a native workload by IPv4, and the other way round by IPv6.
var fastpathPairs = []fastpathPair{
	{
		client: "host1-w1", server: "host2-w2", clientsName: "crawler", serveName: "shop",
		clientVIP: netip.MustParseAddr("203.0.113.40"), serverVIP: netip.MustParseAddr("203.0.113.41"),
		of: func(n netlab.Node) netip.Addr { return n.IPv4 },
	},
	{
		client: "host2-w2", server: "host1-w1", clientsName: "crawler6", serveName: "shop6",
		clientVIP: netip.MustParseAddr("2001:db8:113::40"), serverVIP: netip.MustParseAddr("2001:db8:113::41"),
		of: func(n netlab.Node) netip.Addr { return n.IPv6 },
	},
}

func newFastpathLab(t *testing.T) *netlab.Lab {
	t.Helper()
	bin, err := binFolder()
	must(t, err)
	lab, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: fastpathName, Clients: 1, Muxes: 2, Hosts: 2, Workloads: 2}, Bin: bin, Tied: true,
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, lab)
		}
		if err := lab.Down(); err != nil {
			t.Error(err)
		}
	})
	var b strings.Builder
	for _, p := range fastpathPairs {
		client, err := lab.Node(p.client)
		must(t, err)
		server, err := lab.Node(p.server)
		must(t, err)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  snat:\n    workloads: [{address: '%s', host: %s}]\n",
			p.clientsName, p.clientVIP, p.of(client), client.Host)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  fastpath: {sources: ['%s']}\n  endpoints:\n"+
			"  - {protocol: TCP, port: 8080, backends: [{host: %s, address: '%s', port: %d}]}\n", p.serveName, p.serverVIP, p.clientVIP, server.Host, p.of(server), netlab.EchoPort)
	}
	file := filepath.Join(lab.Dir(), "fastpath.yaml")
	must(t, os.WriteFile(file, []byte(b.String()), 0o600))
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range fastpathPairs {
		must(t, lab.WaitRouted(t.Context(), bound, p.clientVIP, 2))
		must(t, lab.WaitRouted(t.Context(), bound, p.serverVIP, 2))
	}
	return lab
}

// passed is how many packets all muxes have sent to hosts, direct how many each host past them.
func passed(t *testing.T, lab *netlab.Lab) (forwarded uint64, direct map[string]uint64) {
	t.Helper()
	for _, n := range lab.Of(netlab.Mux) {
		packets, err := lab.Forwarded(n.Name)
		must(t, err)
		forwarded += packets
	}
	return forwarded, sentDirect(t, lab)
}

func sentDirect(t *testing.T, lab *netlab.Lab) map[string]uint64 {
	t.Helper()
	direct := map[string]uint64{}
	for _, n := range lab.Of(netlab.Host) {
		verdicts, err := lab.Verdicts(n.Name)
		must(t, err)
		direct[n.Name] = verdicts["reply_direct"]
	}
	return direct
}

// waitDirect waits until each host has sent so many more packets past the muxes.
func waitDirect(t *testing.T, lab *netlab.Lab, before map[string]uint64, packets uint64) {
	t.Helper()
	must(t, netlab.Poll(t.Context(), 5*bound, func() error {
		for host, now := range sentDirect(t, lab) {
			if now < before[host]+packets {
				return fmt.Errorf("%s has sent %d of %d packets past the muxes", host, now-before[host], packets)
			}
		}
		return nil
	}))
}

// Two services talk by their VIPs: once their connections have left the muxes, no packet of theirs passes
// one, the muxes may stop, and agents may restart.
func TestFastpath(t *testing.T) {
	lab := newFastpathLab(t)
	total := uint64(fastpathBytes)
	if text := os.Getenv("WEIR_FASTPATH_BYTES"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		total = n
	}
	runs := map[string]*netlab.Streams{}
	for _, p := range fastpathPairs {
		run, err := lab.StartStreams(t.Context(), p.client, stream.Config{
			Network: stream.TCP, Target: netip.AddrPortFrom(p.serverVIP, 8080), Streams: 10,
			Interval: 20 * time.Millisecond, Size: 32 << 10, Patience: 4 * bound,
		})
		must(t, err)
		must(t, run.WaitOpened(t.Context(), bound))
		runs[p.serveName] = run
	}
	// All connections have left once the hosts send on and the muxes see none of it.
	must(t, netlab.Poll(t.Context(), bound, func() error {
		before, direct := passed(t, lab)
		waitDirect(t, lab, direct, 2000)
		after, _ := passed(t, lab)
		if after != before {
			return fmt.Errorf("muxes saw %d more packets", after-before)
		}
		return nil
	}))
	for _, n := range lab.Of(netlab.Mux) {
		process, err := lab.Process(n.Name, "weir-mux")
		must(t, err)
		must(t, process.Stop(syscall.SIGTERM, bound))
	}
	direct := sentDirect(t, lab)
	waitDirect(t, lab, direct, total/2/wirePacket)
	for _, n := range lab.Of(netlab.Host) {
		_, err := lab.Restart(n.Name, "weir-agent")
		must(t, err)
	}
	waitDirect(t, lab, direct, total/wirePacket)
	for name, run := range runs {
		result, err := run.Stop()
		must(t, err)
		if result.Broken > 0 || result.Opened == 0 || result.Blocks == 0 {
			t.Errorf("%s: %d of %d streams broke, %d blocks: %+v", name, result.Broken, result.Opened, result.Blocks, result.Breaks)
		}
		t.Logf("%s: %d streams, %d blocks, the slowest answer took %s", name, result.Opened, result.Blocks, result.Slowest)
	}
}
