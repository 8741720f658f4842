package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
)

const (
	snatName = "snat"
	outside  = "outside1"
)

// snatFamily is who leaves as what, in one family.
type snatFamily struct {
	crawler, front netip.Addr // VIPs: workloads leave as the first, which has an endpoint too, as the second
	of             func(netlab.Node) netip.Addr
}

var snatFamilies = []snatFamily{
	{
		crawler: netip.MustParseAddr("203.0.113.40"), front: netip.MustParseAddr("203.0.113.41"),
		of: func(n netlab.Node) netip.Addr { return n.IPv4 },
	},
	{
		crawler: netip.MustParseAddr("2001:db8:113::40"), front: netip.MustParseAddr("2001:db8:113::41"),
		of: func(n netlab.Node) netip.Addr { return n.IPv6 },
	},
}

// Of the workloads, a container and a native one are listed, and each VIP has an endpoint at another one.
var (
	snatListed   = []string{"host1-w1", "host2-w2"}
	snatUnlisted = "host2-w1" // serves the crawler's endpoint
	snatServer   = "host1-w2" // serves the front's
)

// snatLab has a server outside, and workloads that leave as VIPs.
type snatLab struct {
	*netlab.Lab
	t *testing.T
}

// newSNATLab has so many managers; settings are those of each VIP's snat.
func newSNATLab(t *testing.T, managers int, settings string) *snatLab {
	t.Helper()
	bin, err := binFolder()
	must(t, err)
	lab, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: snatName, Clients: 1, Managers: managers, Muxes: 2, Hosts: 2, Workloads: 2, Outside: 1}, Bin: bin, Tied: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lab.Report(t)
		if err := lab.Down(); err != nil {
			t.Error(err)
		}
	})
	l := &snatLab{Lab: lab, t: t}
	file := filepath.Join(lab.Dir(), "snat.yaml")
	must(t, os.WriteFile(file, []byte(l.manifest(settings)), 0o600))
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, family := range snatFamilies {
		must(t, lab.WaitRouted(t.Context(), bound, family.crawler, 2))
	}
	return l
}

func (l *snatLab) node(name string) netlab.Node {
	l.t.Helper()
	n, err := l.Node(name)
	must(l.t, err)
	return n
}

func (l *snatLab) manifest(settings string) string {
	var b strings.Builder
	vip := func(name string, address netip.Addr, backend string, of func(netlab.Node) netip.Addr) {
		n := l.node(backend)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  endpoints:\n"+
			"  - {protocol: TCP, port: 8080, backends: [{host: %s, address: '%s', port: %d}]}\n", name, address, n.Host, of(n), netlab.EchoPort)
	}
	for i, family := range snatFamilies {
		vip(fmt.Sprintf("front-%d", i), family.front, snatServer, family.of)
		vip(fmt.Sprintf("crawler-%d", i), family.crawler, snatUnlisted, family.of)
		fmt.Fprintf(&b, "  snat:\n    %s\n    maxPorts: 16384\n    except: [none]\n    workloads:\n", settings)
		for _, name := range snatListed {
			n := l.node(name)
			fmt.Fprintf(&b, "    - {address: '%s', host: %s}\n", family.of(n), n.Host)
		}
	}
	return b.String()
}

// ask makes a request from the workload's own address, and returns what the server saw.
func (l *snatLab) ask(workload string, own, server netip.Addr, port uint16) (echo.Answer, error) {
	out, err := l.Run(workload, "curl", "--silent", "--show-error", "--fail", "--max-time", "10", "--retry", "3", "--retry-all-errors",
		"--interface", own.String(), url(server, port, "/"))
	var answer echo.Answer
	if err == nil {
		err = json.Unmarshal([]byte(out), &answer)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return answer, err
}

// sees holds that the server saw the client that the text names.
func sees(t *testing.T, what, client string, want netip.Addr) netip.AddrPort {
	t.Helper()
	got, err := netip.ParseAddrPort(client)
	if err != nil || got.Addr() != want {
		t.Errorf("%s: the server saw %s, want %s", what, client, want)
	}
	return got
}

// askUDP sends a datagram from the workload's own address, until one is answered.
func (l *snatLab) askUDP(workload string, own, server netip.Addr) (client string, err error) {
	ns, err := l.NS(workload)
	if err != nil {
		return "", err
	}
	err = ns.Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, netlab.EchoPort)))
		if err != nil {
			return err
		}
		defer conn.Close()
		buffer := make([]byte, 2048)
		for range 10 {
			if _, err := conn.Write([]byte("who am I")); err != nil {
				return err
			}
			must(l.t, conn.SetReadDeadline(time.Now().Add(time.Second)))
			n, err := conn.Read(buffer)
			if err == nil {
				_, rest, _ := strings.Cut(string(buffer[:n]), " ")
				client, _, _ = strings.Cut(rest, " ")
				return nil
			}
		}
		return fmt.Errorf("ask %s by UDP: no answer", server)
	})
	return client, err
}

// TestWorkloadsLeaveAsTheirVIP: real clients reach a server outside, which sees the VIP.
func TestWorkloadsLeaveAsTheirVIP(t *testing.T) {
	lab := newSNATLab(t, 1, "preallocate: 64")
	_, err := lab.Start(outside, "iperf3", "--server", "--port", strconv.Itoa(iperfPort))
	must(t, err)
	for _, family := range snatFamilies {
		server := family.of(lab.node(outside))
		for _, name := range snatListed {
			own := family.of(lab.node(name))
			lab.leaves(t, name, own, server, family)
			lab.turnsRound(t, name, own, family)
		}
		lab.staysItself(t, family, server)
		lab.forgesNothing(t, family, server)
	}
	for _, family := range snatFamilies { // after nothing may come as a VIP: one of thousands may say its FIN again much later
		lab.manyShortOnes(t, family, family.of(lab.node(outside)))
	}
	lab.lendsPorts(t)
	lab.explains(t)
}

// lendsPorts holds that host1 got a port block of each VIP, by which it served its workload.
func (l *snatLab) lendsPorts(t *testing.T) {
	t.Helper()
	for i := range snatFamilies {
		out, err := l.Weir("snat", fmt.Sprintf("crawler-%d", i), "-o", "json")
		must(t, err)
		var held struct {
			Workloads []struct {
				Host   string
				Block  bool
				Ranges []uint32
			}
		}
		must(t, json.Unmarshal([]byte(out), &held))
		lends := false
		for _, w := range held.Workloads {
			lends = lends || w.Block && w.Host == l.node("host1-w1").Host && len(w.Ranges) > 0
		}
		if !lends {
			t.Errorf("host1 has no port block:\n%s", out)
		}
	}
}

// leaves tries each kind of client.
func (l *snatLab) leaves(t *testing.T, name string, own, server netip.Addr, family snatFamily) {
	t.Helper()
	answer, err := l.ask(name, own, server, netlab.EchoPort)
	must(t, err)
	sees(t, "curl from "+name, answer.Client, family.crawler)

	client, err := l.askUDP(name, own, server)
	must(t, err)
	sees(t, "UDP from "+name, client, family.crawler)

	for _, size := range []string{"56", "1400", "4000"} { // the last in fragments, both ways
		if out, err := l.Run(name, "ping", "-c", "5", "-i", "0.2", "-W", "5", "-s", size, "-I", own.String(), server.String()); err != nil {
			t.Errorf("ping from %s with %s bytes: %v: %s", name, size, err, out)
		}
	}
	for _, way := range []string{"--bytes=8M", "--reverse"} {
		err := netlab.Poll(t.Context(), bound, func() error { // the server does one test after the other
			out, err := l.Run(name, "iperf3", "--client", server.String(), "--bind", own.String(), "--port", strconv.Itoa(iperfPort), "--bytes", "8M", way)
			if err != nil && !strings.Contains(err.Error()+out, "busy") {
				t.Errorf("iperf3 from %s, %s: %v: %s", name, way, err, out)
				return nil
			}
			return err
		})
		must(t, err)
	}
}

// turnsRound reaches the workload's own VIP, and another one of the cluster.
func (l *snatLab) turnsRound(t *testing.T, name string, own netip.Addr, family snatFamily) {
	t.Helper()
	for _, vip := range []netip.Addr{family.crawler, family.front} {
		answer, err := l.ask(name, own, vip, 8080)
		must(t, err)
		sees(t, fmt.Sprintf("%s by VIP %s", name, vip), answer.Client, family.crawler)
	}
}

// staysItself: a workload that is not listed gets no NAT.
func (l *snatLab) staysItself(t *testing.T, family snatFamily, server netip.Addr) {
	t.Helper()
	own := family.of(l.node(snatUnlisted))
	answer, err := l.ask(snatUnlisted, own, server, netlab.EchoPort)
	must(t, err)
	sees(t, "curl from "+snatUnlisted, answer.Client, own)
}

// forgesNothing: a workload that sends from an address that is not its own, be it a listed workload's, the VIP's or
// anybody's, gets nothing to the server.
func (l *snatLab) forgesNothing(t *testing.T, family snatFamily, server netip.Addr) {
	t.Helper()
	ns, err := l.NS(snatUnlisted)
	must(t, err)
	replies, err := netload.CaptureReplies(l, outside) // packets from VIPs on the server's link
	must(t, err)
	defer replies.Close()
	last := time.Now()
	must(t, netlab.Poll(t.Context(), bound, func() error { // until the connections of before have nothing more to say
		n, err := replies.Count()
		if n > 0 {
			last = time.Now()
		}
		if err == nil && time.Since(last) < time.Second {
			err = fmt.Errorf("the last packet from a VIP came %v ago", time.Since(last))
		}
		return err
	}))
	host := l.node(snatUnlisted).Host
	for _, forged := range []netip.Addr{
		family.of(l.node("host1-w1")), family.of(l.node("host2-w2")), family.crawler, family.front, family.of(l.node("client1")),
	} {
		before, err := l.Verdicts(host)
		must(t, err)
		must(t, ns.AddAddress(netlab.Uplink, netip.PrefixFrom(forged, forged.BitLen())))
		_, err = l.Run(snatUnlisted, "curl", "--silent", "--max-time", "2", "--interface", forged.String(), url(server, netlab.EchoPort, "/"))
		if err == nil {
			t.Errorf("%s got an answer as %s", snatUnlisted, forged)
		}
		_, err = l.Run(snatUnlisted, "ip", "address", "delete", fmt.Sprintf("%s/%d", forged, forged.BitLen()), "dev", netlab.Uplink)
		must(t, err)
		after, err := l.Verdicts(host)
		must(t, err)
		if after["drop_spoofed_source"] == before["drop_spoofed_source"] {
			t.Errorf("nothing was dropped of what %s sent as %s", snatUnlisted, forged)
		}
	}
	if n, err := replies.Count(); err != nil || n != 0 {
		t.Errorf("%d packets came to the server in the name of a VIP, error %v", n, err)
	}
}

// How many connections manyShortOnes opens, and with WEIR_WHOLE, in each family.
const (
	shortOnes    = 3000
	allShortOnes = 100_000
)

// manyShortOnes opens a connection for each request.
func (l *snatLab) manyShortOnes(t *testing.T, family snatFamily, server netip.Addr) {
	t.Helper()
	requests := shortOnes
	if os.Getenv("WEIR_WHOLE") != "" {
		requests = allShortOnes
	}
	r, err := netload.RunLoad(t.Context(), l, "host1-w1", load.Config{
		URL: url(server, netlab.EchoPort, "/"), Requests: requests, Concurrency: 16, PerConn: 1, Timeout: 20 * time.Second,
	})
	must(t, err)
	if r.Failed > 0 || r.Clients[family.crawler.String()] != requests {
		t.Errorf("%d of %d requests failed, the server saw %v: %+v", r.Failed, requests, r.Clients, r.Failures)
	}
	t.Logf("%s: %d connections, %.0f a second, slowest %v", family.crawler, requests, float64(requests)/r.Took.Seconds(), r.Slowest)
}

// explains asks a mux whose a port is.
func (l *snatLab) explains(t *testing.T) {
	t.Helper()
	family, own := snatFamilies[0], l.node("host1-w1").IPv4
	answer, err := l.ask("host1-w1", own, l.node(outside).IPv4, netlab.EchoPort)
	must(t, err)
	client := sees(t, "curl", answer.Client, family.crawler)
	out, err := l.Weir("explain", netip.AddrPortFrom(l.node(outside).IPv4, netlab.EchoPort).String(), client.String(), "--mux", "mux1", "--flags", "ack")
	must(t, err)
	for _, want := range []string{"forward_snat", "source NAT range", own.String()} {
		if !strings.Contains(out, want) {
			t.Errorf("weir explain does not say %q:\n%s", want, out)
		}
	}
}
