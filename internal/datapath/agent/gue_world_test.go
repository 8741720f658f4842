package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

// gue has the network encapsulate in GUE, and ask after the backend behind other if there is one.
func (w *world) gue(vip, tunnel, other string) {
	w.t.Helper()
	source := netip.MustParseAddr("10.77.2.254")
	if netip.MustParseAddr(tunnel).Is6() {
		source = netip.MustParseAddr("fd77:2::254")
	}
	var ask netip.Addr
	if other != "" {
		ask = netip.MustParseAddr(other)
	}
	link := "host"
	if tunnel == beforeDIP4 || tunnel == beforeDIP6 {
		link = "before"
	}
	to, err := w.network.Index(link)
	w.must(err)
	w.must(w.mux.SendGUE(netip.MustParseAddr(vip), source, netip.MustParseAddr(tunnel), ask, to))
}

func (w *world) gueEverywhere() {
	w.gue(nativeVIP4, hostDIP4, "")
	w.gue(nativeVIP6, hostDIP4, "")
	w.gue(interfaceVIP4, workloadDIP6, "")
	w.gue(interfaceVIP6, workloadDIP6, "")
}

// TestGUETransfers is TestTransfers in GUE: buffers with segments inside a UDP tunnel keep them.
func TestGUETransfers(t *testing.T) {
	const size = 32 << 20
	w := newWorld(t)
	w.gueEverywhere()
	for _, offloads := range []struct {
		name string
		set  func()
	}{
		{"all on", func() { w.offloads(true) }},
		{"all off", func() { w.offloads(false) }},
		{"cut on the way", func() {
			w.offloads(true)
			w.must(w.network.SetOffload("host", netns.TSO, false), w.network.SetOffload("host", netns.GSO, false))
		}},
		{"cut for the workload", func() {
			w.offloads(true)
			w.must(w.host.SetOffload("w0", netns.TSO, false), w.host.SetOffload("w0", netns.TxChecksum, false))
		}},
	} {
		offloads.set()
		for name, way := range w.ways() {
			t.Run(offloads.name+"/"+name, func(t *testing.T) { w.transfer(t, way.server, way.dip, way.vip, size) })
		}
	}
	w.wantNoDrops()
}

// TestNarrowPath has the way to the client take less than the hosts' links: the network tells the VIP,
// and its error must lower the path's MTU at the workload that sent.
func TestNarrowPath(t *testing.T) {
	w := newWorld(t)
	// What the network itself says to a VIP comes back from the client, and is encapsulated.
	for _, to := range []string{"10.77.1.1/32", "fd77:1::1/128"} {
		_, err := w.network.Run("ip", "route", "add", to, "dev", "client", "mtu", "1300")
		w.must(err)
	}
	w.must(
		w.client.Sysctl("net.ipv4.ip_forward", "1"), w.client.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		w.client.Sysctl("net.ipv4.conf.all.rp_filter", "0"), w.client.Sysctl("net.ipv4.conf.eth0.rp_filter", "0"),
		routes(w.network, "10.77.1.1", "fd77:1::1",
			nativeVIP4+"/32", nativeVIP6+"/128", interfaceVIP4+"/32", interfaceVIP6+"/128"))
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) {
			w.transfer(t, way.server, way.dip, way.vip, 10<<20)
			route, err := way.server.Run("ip", "route", "get", clientAddress(way.vip).String())
			w.must(err)
			if !strings.Contains(route, "mtu 1300") {
				t.Errorf("the workload's path is %s", route)
			}
		})
	}
	w.wantNoDrops()
}

// TestLargeReplies has workloads answer with datagrams that leave in fragments.
func TestLargeReplies(t *testing.T) {
	w := newWorld(t)
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) {
			server := w.udp(way.server, netip.AddrPortFrom(netip.MustParseAddr(way.dip), dipPort), "")
			client := w.udp(w.client, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(way.vip), vipPort).String())
			answer := slices.Repeat([]byte("weir spreads a river"), 400)
			for range 3 {
				_, err := client.Write([]byte("how wide?"))
				w.must(err)
				buffer := make([]byte, 10000)
				_, from, err := server.ReadFromUDPAddrPort(buffer)
				w.must(err)
				_, err = server.WriteToUDPAddrPort(answer, from)
				w.must(err)
				n, err := client.Read(buffer)
				w.must(err)
				if !slices.Equal(buffer[:n], answer) {
					t.Fatalf("got %d other bytes than the %d sent", n, len(answer))
				}
			}
		})
	}
	w.wantNoDrops()
}

// TestClosedDatagramPort has workloads refuse a datagram: the client's socket must hear of it.
func TestClosedDatagramPort(t *testing.T) {
	w := newWorld(t)
	for name, way := range w.ways() {
		client := w.udp(w.client, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(way.vip), vipPort).String())
		_, err := client.Write([]byte("anyone?"))
		w.must(err)
		if _, err := client.Read(make([]byte, 10)); !isRefused(err) {
			t.Errorf("%s: got %v, not a refusal", name, err)
		}
	}
}

func isRefused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && strings.Contains(err.Error(), "refused")
}

// The host that had a bucket before, beside the one that has it now:
//
//	network: 10.77.5.254, fd77:5::254  host2 ──── uplink  10.77.5.3, fd77:5::3 :host2
const beforeDIP4, beforeDIP6 = "10.77.5.3", "fd77:5::3"

// plugBefore adds a host with an agent of its own that serves the native VIPs, too.
func (w *world) plugBefore() (*netns.NS, *agent.Datapath) {
	w.t.Helper()
	ns := netns.New(w.t, fmt.Sprintf("wagent%d-before", os.Getpid()))
	w.must(
		netns.Veth(ns, "uplink", w.network, "before"),
		ns.AddAddress("uplink", prefixes("10.77.5.3/24", "fd77:5::3/64")...),
		w.network.AddAddress("before", prefixes("10.77.5.254/24", "fd77:5::254/64")...),
		w.network.Sysctl("net.ipv4.conf.before.rp_filter", "0"),
		routes(ns, "10.77.5.254", "fd77:5::254", "0.0.0.0/0", "::/0"))
	var before *agent.Datapath
	w.must(ns.Do(func() (err error) {
		before, err = agent.Open(agent.Config{
			Uplink: "uplink", PinPath: fmt.Sprintf("/sys/fs/bpf/weir-agent-before-%d", os.Getpid()), MaxSessions: 1 << 12,
		})
		return err
	}))
	w.t.Cleanup(func() { w.must(before.Unload()) })
	w.must(
		before.SetMuxes(prefixes("10.77.2.254/32", "fd77:2::254/128")),
		before.Replace([]model.HostBackend{
			peered(nativeVIP4, beforeDIP4, beforeDIP4, hostDIP4), peered(nativeVIP6, beforeDIP6, beforeDIP6, hostDIP4, hostDIP6),
		}),
		ns.Do(func() error {
			return before.SetWorkloads(map[netip.Addr]int{netip.MustParseAddr(beforeDIP4): 0, netip.MustParseAddr(beforeDIP6): 0}, nil)
		}),
		w.datapath.Replace([]model.HostBackend{
			peered(nativeVIP4, hostDIP4, hostDIP4, beforeDIP4), peered(nativeVIP6, hostDIP4, hostDIP6, beforeDIP6, beforeDIP4),
		}))
	return ns, before
}

func peered(vip, tunnel, dip string, peers ...string) model.HostBackend {
	b := backend(model.TCP, vip, tunnel, dip)
	for _, p := range peers {
		b.ChainPeers = append(b.ChainPeers, netip.MustParseAddr(p))
	}
	return b
}

// TestBucketMoves moves a bucket to another host while a connection sends: it stays where it was, by
// way of the new host, and new connections go to the new one. The v4 VIP's tunnels are both IPv4,
// those of the v6 one are of two families.
func TestBucketMoves(t *testing.T) {
	w := newWorld(t)
	ns, before := w.plugBefore()
	w.outer = outerIPv4
	for _, c := range []struct{ vip, now, dip, before string }{
		{nativeVIP4, hostDIP4, hostDIP4, beforeDIP4}, {nativeVIP6, hostDIP4, hostDIP6, beforeDIP6},
	} {
		t.Run(c.vip, func(t *testing.T) {
			w.gue(c.vip, c.before, "")
			old := listen(t, ns, c.before)
			connection := dial(t, w.client, c.vip)
			defer connection.Close()
			accepted, err := old.Accept()
			w.must(err)
			defer accepted.Close()
			w.must(accepted.SetDeadline(time.Now().Add(patience)))

			w.gue(c.vip, c.now, c.before)
			const size = 16 << 20
			sent := make(chan error, 1)
			go func() { sent <- send(connection, size) }()
			w.must(receive(accepted, size), <-sent)

			// Even if the sessions of before were lost: the socket is there.
			w.must(forgetAll(before))
			go func() { sent <- send(connection, size) }()
			w.must(receive(accepted, size), <-sent)

			w.transfer(t, w.host, c.dip, c.vip, 1<<20)

			// Nobody knows it any more: it comes back, and is reset.
			w.must(accepted.Close(), forgetAll(before))
			_, err = connection.Write([]byte("still there?"))
			w.must(err)
			if _, err := connection.Read(make([]byte, 1)); err == nil {
				t.Error("a connection without a backend goes on")
			}
		})
	}
	w.wantNoDrops()
	verdicts, err := w.datapath.Verdicts()
	if err != nil || verdicts["chain_on"].Packets == 0 {
		t.Errorf("nothing was handed on: %v (%v)", verdicts, err)
	}
}

// forgetAll ends all sessions.
func forgetAll(d *agent.Datapath) error {
	_, err := d.Sweep(session.Now()+100*time.Hour, session.DefaultTimeouts())
	return err
}
