package hardware

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// listed is the workload that leaves as the VIP, and outside whom it asks.
const (
	listed  = "host1-w1"
	outside = "outside1"

	ethernetHeader = 14
)

// TestSwitchesBringWhatIsNoConnection has a switch bring datagrams, fragments, answers and GRE of a VIP by host, until a flood.
func TestSwitchesBringWhatIsNoConnection(t *testing.T) {
	l := &lab{t: t}
	l.Lab = testlab.Up(t, netlab.Config{Plan: netlab.Plan{Name: "hardware", Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2, Switches: 1, Outside: 1}})
	l.require, l.settings = true, fmt.Sprintf(", byHost: true}\n  snat:\n    workloads: [{host: host1, address: '%s', tunnel: '%s'}]\n", l.node(listed).IPv4, l.node(listed).IPv6)
	l.apply()
	l.servedBySwitch(true)
	t.Run("by host", l.byHost)
	t.Run("fragments", l.fragments)
	t.Run("answers", l.answers)
	t.Run("GRE", l.gre)
	t.Run("flood", l.flooded)
}

func (l *lab) node(name string) netlab.Node {
	l.t.Helper()
	n, err := l.Node(name)
	l.must(err)
	return n
}

// ask sends a datagram to the VIP from a port of its own, and gives the answer.
func (l *lab) ask(payload string) (answer string, err error) {
	return l.exchange(func(conn *net.UDPConn) error {
		_, err := conn.Write([]byte(payload))
		return err
	})
}

// exchange has a datagram sent for a client's socket, until there is an answer.
func (l *lab) exchange(send func(*net.UDPConn) error) (answer string, err error) {
	ns, err := l.NS("client1")
	if err != nil {
		return "", err
	}
	var conn *net.UDPConn
	err = ns.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, port)))
		return err
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	buffer := make([]byte, 64<<10)
	for range 5 {
		if err := errors.Join(send(conn), conn.SetReadDeadline(time.Now().Add(time.Second))); err != nil {
			return "", err
		}
		n := 0
		if n, err = conn.Read(buffer); err == nil {
			return string(buffer[:n]), nil
		}
	}
	return "", err
}

// counted is how many packets of all hosts met a verdict.
func (l *lab) counted(verdict string) (packets uint64) {
	l.t.Helper()
	for _, n := range l.Of(netlab.Host) {
		all, err := l.Verdicts(n.Name)
		l.must(err)
		packets += all[verdict]
	}
	return packets
}

// byHost: the switch has a tunnel to each host alone, and all backends serve.
func (l *lab) byHost(t *testing.T) {
	tunnels, err := l.Run("sw1", "ip", "nexthop", "show", "protocol", "87")
	testlab.Must(t, err)
	if n, hosts := strings.Count(tunnels, "encap seg6"), len(l.Of(netlab.Host)); n != hosts {
		t.Errorf("the switch has %d tunnels to %d hosts: %s", n, hosts, tunnels)
	}
	served := map[string]int{}
	for range 120 {
		answer, err := l.ask("who")
		testlab.Must(t, err)
		backend, _, _ := strings.Cut(answer, " ")
		served[backend]++
	}
	if len(served) != len(l.Of(netlab.Workload)) {
		t.Errorf("datagrams were served by %v", served)
	}
}

// fragments: hosts relay them to a mux, where all of a datagram meet.
func (l *lab) fragments(t *testing.T) {
	// The links have no room for an outer header beside 1500 bytes.
	if out, err := l.Run("client1", "ip", "route", "change", "default", "via", l.node("client1").IPv4.Prev().String(), "mtu", "1400"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before, forwarded := l.counted("relay_fragment"), l.forwarded()
	payload := strings.Repeat("fragment", 500)
	for range 10 {
		answer, err := l.ask(payload)
		testlab.Must(t, err)
		if !strings.HasSuffix(answer, " "+payload) {
			t.Fatalf("the answer has %d bytes: %.60s", len(answer), answer)
		}
	}
	if l.counted("relay_fragment") == before || l.forwarded() == forwarded {
		t.Error("hosts relayed none")
	}
}

// answers: what comes back to a workload that has left as the VIP arrives at any host, and goes on to its own.
func (l *lab) answers(t *testing.T) {
	server := netip.AddrPortFrom(l.node(outside).IPv4, netlab.EchoPort)
	steered, forwarded := l.counted("steered_answer"), l.forwarded()
	for range 10 {
		out, err := l.Run(listed, "curl", "--silent", "--show-error", "--fail", "--max-time", "10", "--interface", l.node(listed).IPv4.String(), "http://"+server.String()+"/")
		var answer echo.Answer
		if err == nil {
			err = json.Unmarshal([]byte(out), &answer)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if client, err := netip.ParseAddrPort(answer.Client); err != nil || client.Addr() != vip {
			t.Fatalf("the server saw %s", answer.Client)
		}
	}
	if l.counted("steered_answer") == steered {
		t.Error("all answers arrived at their workload's host: none was steered")
	}
	if n := l.forwarded() - forwarded; n > 0 {
		t.Errorf("the muxes forwarded %d packets", n)
	}
}

// gre: the kernel has no GRE here, so what a switch would send is put onto a host's link.
func (l *lab) gre(t *testing.T) {
	outer := pkt.IP{Source: l.node("sw1").IPv6, Destination: l.node("host2-w1").IPv6, TTL: 64}
	for range 10 {
		answer, err := l.exchange(func(conn *net.UDPConn) error {
			inner := pkt.UDP(conn.LocalAddr().String(), conn.RemoteAddr().String(), pkt.Payload([]byte("by GRE"))).Frame()[ethernetHeader:]
			p := pkt.ICMP(outer.Source.String(), outer.Destination.String(), pkt.Protocol(layers.IPProtocolGRE), pkt.Payload(append([]byte{0, 0, 8, 0}, inner...)))
			p.IP = outer
			return netload.Inject(l, "host2", p.Frame())
		})
		if err != nil || !strings.HasSuffix(answer, " by GRE") {
			t.Fatalf("the answer is %q (%v)", answer, err)
		}
	}
}

// flooded: hosts tell of sessions that nobody goes on with, and muxes serve the VIP.
func (l *lab) flooded(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		_, err := netload.Flood(l, "client1", flood.Config{
			Targets: []netip.AddrPort{netip.AddrPortFrom(vip, port)}, Rate: 6000, Duration: 20 * time.Second,
		})
		done <- err
	}()
	l.servedBySwitch(false)
	if events := testlab.Events(t, l.Lab, "HardwareFlooded"); len(events) == 0 {
		t.Error("no event tells of the flood")
	}
	testlab.Must(t, <-done)
	if _, err := l.ask("after"); err != nil {
		t.Errorf("the muxes do not serve the VIP: %v", err)
	}
}
