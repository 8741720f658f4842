// Package multipath has clients with several addresses join their connections in a lab of its own: Multipath TCP of the kernel at
// both ends (RFC 8684).
//
//	client1 ── router ── mux1, mux2 ── host1, host2, host3: a container and a native workload each
package multipath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	connections = 60 // of each family
	patience    = 20 * time.Second
)

var (
	vip4, vip6 = netip.MustParseAddr("203.0.113.60"), netip.MustParseAddr("2001:db8:113::60")
	// plain is a VIP without multipath.
	plain4, plain6 = netip.MustParseAddr("203.0.113.61"), netip.MustParseAddr("2001:db8:113::61")
)

// vip is the manifest of a VIP, with more lines of its endpoint.
func vip(lab *netlab.Lab, name string, address netip.Addr, endpoint string) string {
	return fmt.Sprintf("---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  endpoints:\n    - protocol: TCP\n      port: 80\n%s      backends:\n%s",
		name, address, endpoint, testlab.Backends(lab, address))
}

// counters are those of Multipath TCP of a machine.
func counters(t *testing.T, lab *netlab.Lab, node string) map[string]int {
	t.Helper()
	out, err := lab.Run(node, "cat", "/proc/net/netstat")
	testlab.Must(t, err)
	counted := map[string]int{}
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "MPTcpExt:":
		case names == nil:
			names = fields
		default:
			for i, name := range names[1:] {
				counted[name], err = strconv.Atoi(fields[i+1])
				testlab.Must(t, err)
			}
		}
	}
	return counted
}

// sums are the counters of several machines together.
func sums(t *testing.T, lab *netlab.Lab, nodes ...string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, node := range nodes {
		for name, n := range counters(t, lab, node) {
			all[name] += n
		}
	}
	return all
}

// servers are the machines that workloads' sockets are on, each once.
func servers(lab *netlab.Lab) (all []string) {
	for _, n := range lab.Of(netlab.Workload) {
		if !n.Native {
			all = append(all, n.Name)
		}
	}
	for _, n := range lab.Of(netlab.Host) {
		all = append(all, n.Name)
	}
	return all
}

// connection is one of a client, with Multipath TCP.
type connection struct {
	net.Conn
	reader  *bufio.Reader
	backend string
}

// lastPort is of the client's connections. Each has a port of its own: the VIPs have the same backends, and the kernel may well
// give connections to two of them the same port, of which a backend can tell one alone.
var lastPort atomic.Int32

func dial(ns *netns.NS, to netip.Addr) (*connection, error) {
	const first = 10_000
	c := &connection{}
	err := ns.Do(func() (err error) {
		for {
			dialer := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{Port: first + int(lastPort.Add(1))}}
			dialer.SetMultipathTCP(true)
			c.Conn, err = dialer.Dial("tcp", netip.AddrPortFrom(to, 80).String())
			if !errors.Is(err, syscall.EADDRINUSE) { // else by a subflow
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	c.reader = bufio.NewReader(c.Conn)
	return c, nil
}

// ask makes a request, which the same backend must answer each time.
func (c *connection) ask() error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: vip\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	backend := response.Header.Get("X-Backend")
	if c.backend != "" && backend != c.backend || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers with %s, after %s", backend, response.Status, c.backend)
	}
	c.backend = backend
	return nil
}

// dialAll opens connections to the VIPs, and makes a request on each.
func dialAll(t *testing.T, lab *netlab.Lab, vips ...netip.Addr) (all []*connection) {
	t.Helper()
	ns, err := lab.NS("client1")
	testlab.Must(t, err)
	for _, to := range vips {
		for range connections {
			c, err := dial(ns, to)
			testlab.Must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			testlab.Must(t, c.ask())
			all = append(all, c)
		}
	}
	return all
}

func askAll(t *testing.T, all []*connection) {
	t.Helper()
	for _, c := range all {
		if err := c.ask(); err != nil {
			t.Errorf("to %s at %s: %v", c.RemoteAddr(), c.backend, err)
		}
	}
}

// joined waits until so many more subflows have joined than before, as the client sees it, or for as long as a client tries.
func joined(t *testing.T, lab *netlab.Lab, before map[string]int, want int) int {
	t.Helper()
	got := 0
	for range 60 {
		got = counters(t, lab, "client1")["MPJoinSynAckRx"] - before["MPJoinSynAckRx"]
		if got >= want {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return got
}

// addAddress gives the client one more address of each family, from which its connections join.
func addAddress(t *testing.T, lab *netlab.Lab, number byte) {
	t.Helper()
	client, err := lab.Node("client1")
	testlab.Must(t, err)
	v4, v6 := client.IPv4.As4(), client.IPv6.As16()
	v4[3], v6[15] = number, number
	for _, a := range []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16(v6)} {
		bits, more := "24", []string{}
		if a.Is6() { // at once, and not what connections begin from
			bits, more = "64", []string{"nodad", "preferred_lft", "0"}
		}
		_, err := lab.Run("client1", "ip", append([]string{"address", "add", a.String() + "/" + bits, "dev", netlab.Uplink}, more...)...)
		testlab.Must(t, err)
		_, err = lab.Run("client1", "ip", "mptcp", "endpoint", "add", a.String(), "dev", netlab.Uplink, "subflow")
		testlab.Must(t, err)
	}
}

func logVerdicts(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	for _, host := range lab.Of(netlab.Host) {
		verdicts, err := lab.Verdicts(host.Name)
		testlab.Must(t, err)
		for name, n := range verdicts {
			if n > 0 && strings.Contains(name, "join") {
				t.Logf("%s: %s %d", host.Name, name, n)
			}
		}
	}
}

func TestSubflowsFindTheirConnection(t *testing.T) {
	lab := testlab.Up(t, netlab.Config{Plan: netlab.Plan{Name: "multipath", Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2}})
	for _, node := range append(servers(lab), "client1") {
		_, err := lab.Run(node, "ip", "mptcp", "limits", "set", "subflows", "4")
		testlab.Must(t, err)
	}
	addAddress(t, lab, 101)
	multipath := "      multipath: auto\n"
	testlab.Apply(t, lab, vip(lab, "multipath-4", vip4, multipath), vip(lab, "multipath-6", vip6, multipath), vip(lab, "plain-4", plain4, ""), vip(lab, "plain-6", plain6, ""))
	testlab.WaitServed(t, lab, vip4, vip6, plain4, plain6)
	t.Run("without", func(t *testing.T) { withoutMultipath(t, lab) })
	t.Run("announcements", func(t *testing.T) { onlyTheVIPIsAnnounced(t, lab) })
	t.Run("signalled ports", func(t *testing.T) { portsAreSignalled(t, lab) })
	t.Run("all join", func(t *testing.T) { allJoin(t, lab) })
	t.Run("without timestamps", func(t *testing.T) { withoutTimestamps(t, lab) })
	logVerdicts(t, lab)
}

// withoutMultipath is the control: a subflow finds its connection by chance.
func withoutMultipath(t *testing.T, lab *netlab.Lab) {
	before, wrong := counters(t, lab, "client1"), sums(t, lab, servers(lab)...)
	all := dialAll(t, lab, plain4, plain6)
	got := joined(t, lab, before, len(all))
	refused := sums(t, lab, servers(lab)...)["MPJoinNoTokenFound"] - wrong["MPJoinNoTokenFound"]
	t.Logf("%d of %d joined, %d came to the wrong server", got, len(all), refused)
	if 2*got > len(all) || refused == 0 {
		t.Errorf("%d of %d joined, %d came to the wrong server: then this test says nothing", got, len(all), refused)
	}
}

// allJoin has each connection joined from a second address, and from one that comes later, when other muxes and backends serve.
func allJoin(t *testing.T, lab *netlab.Lab) {
	before, wrong := counters(t, lab, "client1"), sums(t, lab, servers(lab)...)
	all := dialAll(t, lab, vip4, vip6)
	holdJoined(t, lab, before, len(all))
	askAll(t, all)
	before = counters(t, lab, "client1")
	addAddress(t, lab, 102)
	holdJoined(t, lab, before, len(all))
	askAll(t, all)
	if refused := sums(t, lab, servers(lab)...)["MPJoinNoTokenFound"] - wrong["MPJoinNoTokenFound"]; refused != 0 {
		t.Errorf("%d came to the wrong server", refused)
	}
}

func holdJoined(t *testing.T, lab *netlab.Lab, before map[string]int, want int) {
	t.Helper()
	got := joined(t, lab, before, want)
	after := counters(t, lab, "client1")
	t.Logf("%d of %d joined; SYNs %d", got, want, after["MPJoinSynTx"]-before["MPJoinSynTx"])
	if got != want {
		t.Errorf("%d of %d joined", got, want)
	}
}

// withoutTimestamps has all segments of a subflow go by the host that its SYN came to.
func withoutTimestamps(t *testing.T, lab *netlab.Lab) {
	ns, err := lab.NS("client1")
	testlab.Must(t, err)
	testlab.Must(t, ns.Sysctl("net.ipv4.tcp_timestamps", "0"))
	before, servers := counters(t, lab, "client1"), servers(lab)
	acked := sums(t, lab, servers...)
	all := dialAll(t, lab, vip4, vip6)
	want := 2 * len(all) // addresses
	got := joined(t, lab, before, want)
	tried, completed := counters(t, lab, "client1")["MPJoinSynTx"]-before["MPJoinSynTx"], 0
	for range 60 {
		if completed = sums(t, lab, servers...)["MPJoinAckRx"] - acked["MPJoinAckRx"]; completed >= want {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d of %d joined; SYNs %d", got, want, tried)
	if got != want || tried != want || completed != want {
		t.Errorf("of %d SYNs %d were answered, and %d handshakes completed, not %d", tried, got, completed, want)
	}
	askAll(t, all)
}
