package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
)

const (
	fastpathName = "fastpath"
	// fastpathBytes are exchanged without a mux; WEIR_FASTPATH_BYTES says another number.
	fastpathBytes = 256 << 20
	// wirePacket is less than what a packet carries on average, acknowledgements included.
	wirePacket = 1000
)

// fastpathPair is a client's service and a server's, each with a VIP of its own, in one family.
type fastpathPair struct {
	name           string
	client, server string // workloads
	spare          string // a backend that drains until the server does
	from, to       netip.Addr
	of             func(netlab.Node) netip.Addr
}

// A container talks to a native workload by IPv4, and the other way round by IPv6.
var fastpathPairs = []fastpathPair{
	{
		name: "v4", client: "host1-w1", server: "host2-w2", spare: "host3-w1",
		from: netip.MustParseAddr("203.0.113.40"), to: netip.MustParseAddr("203.0.113.41"),
		of: func(n netlab.Node) netip.Addr { return n.IPv4 },
	},
	{
		name: "v6", client: "host2-w2", server: "host1-w1", spare: "host3-w1",
		from: netip.MustParseAddr("2001:db8:113::40"), to: netip.MustParseAddr("2001:db8:113::41"),
		of: func(n netlab.Node) netip.Addr { return n.IPv6 },
	},
}

// fastpathLab has two services that talk by their VIPs, in each family.
type fastpathLab struct {
	*netlab.Lab
	t     *testing.T
	talks map[string]*netload.Streams
	hosts map[string]string // of workloads that have moved
}

func newFastpathLab(t *testing.T) *fastpathLab {
	t.Helper()
	bin, err := binFolder()
	must(t, err)
	lab, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: fastpathName, Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2}, Bin: bin, Tied: true,
	})
	must(t, err)
	t.Cleanup(func() {
		lab.Report(t)
		if err := lab.Down(); err != nil {
			t.Error(err)
		}
	})
	l := &fastpathLab{Lab: lab, t: t, talks: map[string]*netload.Streams{}, hosts: map[string]string{}}
	l.serve(map[string]int{})
	for _, p := range fastpathPairs {
		must(t, lab.WaitRouted(t.Context(), bound, p.from, 2))
		must(t, lab.WaitRouted(t.Context(), bound, p.to, 2))
	}
	return l
}

func (l *fastpathLab) node(name string) netlab.Node {
	l.t.Helper()
	n, err := l.Node(name)
	must(l.t, err)
	if host, moved := l.hosts[name]; moved {
		n.Host = host
	}
	return n
}

// serve applies the services; a backend has the weight that is given, else the servers have 1 and the spares 0.
func (l *fastpathLab) serve(weights map[string]int) {
	l.t.Helper()
	var b strings.Builder
	for _, p := range fastpathPairs {
		client := l.node(p.client)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: crawler-%s}\nspec:\n  address: '%s'\n  snat:\n    workloads: [{address: '%s', host: %s}]\n",
			p.name, p.from, p.of(client), client.Host)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: shop-%s}\nspec:\n  address: '%s'\n  fastpath: {sources: ['%s'], udpPackets: 3}\n  endpoints:\n", p.name, p.to, p.from)
		for _, protocol := range []string{"TCP", "UDP"} {
			fmt.Fprintf(&b, "  - protocol: %s\n    port: 8080\n    backends:\n", protocol)
			for name, weight := range map[string]int{p.server: 1, p.spare: 0} {
				if set, given := weights[name]; given {
					weight = set
				}
				server := l.node(name)
				fmt.Fprintf(&b, "    - {host: %s, address: '%s', port: %d, weight: %d}\n", server.Host, p.of(server), netlab.EchoPort, weight)
			}
		}
	}
	file := filepath.Join(l.Dir(), "fastpath.yaml")
	must(l.t, os.WriteFile(file, []byte(b.String()), 0o600))
	if out, err := l.Weir("apply", "-f", file, "--wait"); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

// talk holds streams of the pair's client to its server's VIP.
func (l *fastpathLab) talk(name string, p fastpathPair, config stream.Config) {
	l.t.Helper()
	config.Target, config.Source = netip.AddrPortFrom(p.to, 8080), p.of(l.node(p.client))
	config.Patience = cmp.Or(config.Patience, 2*bound)
	run, err := netload.StartStreams(l.t.Context(), l, p.client, config)
	must(l.t, err)
	must(l.t, run.WaitOpened(l.t.Context(), bound))
	l.talks[name+" "+p.name] = run
}

// talkAll holds streams of both networks in both families, one network from the first packet on.
func (l *fastpathLab) talkAll(name string) {
	for _, p := range fastpathPairs {
		l.talk(name+" tcp", p, stream.Config{Network: stream.TCP, Streams: 5, Interval: 50 * time.Millisecond, Size: 16 << 10})
		l.talk(name+" udp", p, stream.Config{Network: stream.UDP, Streams: 5, Interval: 50 * time.Millisecond})
	}
}

// end holds that the streams of a name have not broken, and returns the bytes that TCP exchanged, both ways.
func (l *fastpathLab) end(name string, size int) (bytes uint64) {
	l.t.Helper()
	for full, run := range l.talks {
		if !strings.HasPrefix(full, name+" ") {
			continue
		}
		result, err := run.Stop()
		must(l.t, err)
		if result.Broken > 0 || result.Opened == 0 || result.Blocks == 0 {
			l.t.Errorf("%s: %d of %d streams broke, %d blocks: %+v", full, result.Broken, result.Opened, result.Blocks, result.Breaks)
		}
		l.t.Logf("%s: %d streams, %d blocks, the slowest answer took %s, %d datagrams without one", full, result.Opened, result.Blocks, result.Slowest, result.Lost)
		bytes += 2 * uint64(result.Blocks) * uint64(size)
		delete(l.talks, full)
	}
	return bytes
}

// passed is how many packets all muxes have sent to hosts.
func (l *fastpathLab) passed() (packets uint64) {
	l.t.Helper()
	for _, n := range l.Of(netlab.Mux) {
		forwarded, err := l.Forwarded(n.Name)
		must(l.t, err)
		packets += forwarded
	}
	return packets
}

// direct is how many packets hosts have sent past the muxes.
func (l *fastpathLab) direct() map[string]uint64 {
	l.t.Helper()
	direct := map[string]uint64{}
	for _, p := range fastpathPairs {
		for _, workload := range []string{p.client, p.server} {
			host := l.node(workload).Host
			verdicts, err := l.Verdicts(host)
			must(l.t, err)
			direct[host] = verdicts["reply_direct"]
		}
	}
	return direct
}

// waitDirect waits until both hosts have sent so many more packets past the muxes.
func (l *fastpathLab) waitDirect(before map[string]uint64, packets uint64) {
	l.t.Helper()
	must(l.t, netlab.Poll(l.t.Context(), 20*bound, func() error {
		for host, now := range l.direct() {
			if now < before[host]+packets {
				return fmt.Errorf("%s has sent %d of %d packets past the muxes", host, now-before[host], packets)
			}
		}
		return nil
	}))
}

// waitLeft waits until all connections have left: the hosts send on, and the muxes see none of it.
func (l *fastpathLab) waitLeft() {
	l.t.Helper()
	must(l.t, netlab.Poll(l.t.Context(), 2*bound, func() error {
		before := l.passed()
		l.waitDirect(l.direct(), 500)
		if after := l.passed(); after != before {
			return fmt.Errorf("muxes saw %d more packets", after-before)
		}
		return nil
	}))
}

// result is how often a host has counted something of Fastpath.
func (l *fastpathLab) result(host, result string) uint64 {
	l.t.Helper()
	return l.metric(host, "weir_agent_fastpath_messages_total", `result="`+result+`"`)
}

// connections is how many of a host have left the muxes so far.
func (l *fastpathLab) connections(host, state string) uint64 {
	l.t.Helper()
	return l.metric(host, "weir_agent_fastpath_connections", `state="`+state+`"`)
}

func (l *fastpathLab) metric(host, name, label string) (sum uint64) {
	l.t.Helper()
	text, err := l.Run(host, "curl", "--silent", "--fail", "--retry", "5", "--retry-connrefused", "http://127.0.0.1:7412/metrics")
	must(l.t, err)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) && strings.Contains(line, label) {
			fields := strings.Fields(line)
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			must(l.t, err)
			sum += uint64(value)
		}
	}
	return sum
}

// TestFastpath: two services talk by their VIPs, and once their connections have left the muxes, no packet of
// theirs passes one, whatever happens to agents and muxes.
func TestFastpath(t *testing.T) {
	t.Parallel()
	l := newFastpathLab(t)
	l.dies()
	l.talkAll("first")
	l.waitLeft()

	requests := map[string]*netload.Capture{}
	for _, n := range l.Of(netlab.Mux) {
		capture, err := netload.CaptureRequests(l, n.Name)
		must(t, err)
		defer capture.Close()
		requests[n.Name] = capture
	}
	l.noneAtMuxes("while nothing happens", requests, func() {})
	l.forgesNothing()
	l.noneAtMuxes("while agents restart", requests, func() {
		for _, host := range []string{"host1", "host2"} {
			l.restart(host, "weir-agent")
		}
	})
	l.noneAtMuxes("while muxes restart", requests, func() {
		for _, n := range l.Of(netlab.Mux) {
			l.restart(n.Name, "weir-mux")
		}
	})
	must(t, l.WaitReady(t.Context()))
	l.drains()
	l.wayIsCut()
	l.end("first", 16<<10)
	l.moves()
	l.withoutMuxes()
}

// noneAtMuxes holds that no packet to a VIP comes to a mux, while it happens, and hosts go on to send.
func (l *fastpathLab) noneAtMuxes(when string, requests map[string]*netload.Capture, happens func()) {
	l.t.Helper()
	for _, capture := range requests {
		_, err := capture.Count()
		must(l.t, err)
	}
	happens()
	l.waitDirect(l.direct(), 2000)
	for mux, capture := range requests {
		if seen, err := capture.Count(); err != nil || seen != 0 {
			l.t.Errorf("%s: %s saw %d packets, %v", when, mux, seen, err)
		}
	}
}

// restart kills a program, and starts it again.
func (l *fastpathLab) restart(node, program string) {
	l.t.Helper()
	process, err := l.Process(node, program)
	must(l.t, err)
	must(l.t, process.Stop(unix.SIGKILL, bound))
	_, err = l.Restart(node, program)
	must(l.t, err)
}

// withoutMuxes exchanges many bytes after the last mux is gone.
func (l *fastpathLab) withoutMuxes() {
	l.t.Helper()
	total := uint64(fastpathBytes)
	if text := os.Getenv("WEIR_FASTPATH_BYTES"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		must(l.t, err)
		total = n
	}
	const size = 256 << 10
	for _, p := range fastpathPairs {
		l.talk("bulk", p, stream.Config{Network: stream.TCP, Streams: 4, Interval: time.Millisecond, Size: size})
	}
	l.waitLeft()
	for _, n := range l.Of(netlab.Mux) {
		must(l.t, l.Crash(n.Name))
	}
	began, before := time.Now(), l.direct()
	l.waitDirect(before, total/2/wirePacket)
	took := time.Since(began)
	if bytes := l.end("bulk", size); bytes < total {
		l.t.Errorf("%d bytes were exchanged, not %d", bytes, total)
	}
	l.t.Logf("%d bytes without muxes in %s", total, took.Round(time.Millisecond))
}
