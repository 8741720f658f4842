package e2e

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// forgesNothing: a workload that knows all of a connection but the key can't take it over. It is no backend: of those
// the own host drops such messages (drop_own_tunnel).
func (l *fastpathLab) forgesNothing() {
	l.t.Helper()
	p := fastpathPairs[0]
	const forger = "host3-w2"
	tunnel, own := p.of(l.node(p.server)), p.of(l.node(forger))
	ns, err := l.NS(forger)
	must(l.t, err)
	l.waitCounted(p, "forged", func() {
		for id := uint32(1); id <= 3; id++ { // the manager's first keys
			m := fastpath.Message{
				Kind: fastpath.Redirect, Nonce: uint64(id), Expires: time.Now().Add(fastpath.Lifetime), Client: own, Server: tunnel,
				Connection: fastpath.Connection{Protocol: model.TCP, Client: netip.AddrPortFrom(p.from, 1024), Server: netip.AddrPortFrom(p.to, 8080)},
			}
			datagram := fastpath.Datagram(fastpath.Seal(m, model.FastpathKey{ID: id}))
			must(l.t, ns.Do(func() error {
				return sendTo(unix.SOCK_DGRAM, 0, netip.AddrPortFrom(tunnel, fastpath.Port), datagram)
			}))
		}
	})
	host := l.node(p.server).Host
	verdicts, err := l.Verdicts(host)
	must(l.t, err)
	inner := pkt.TCP(netip.AddrPortFrom(p.from, 1024).String(), netip.AddrPortFrom(p.to, 8080).String(), pkt.ACK|pkt.PSH).Frame()
	must(l.t, ns.Do(func() error {
		return sendTo(unix.SOCK_RAW, unix.IPPROTO_IPIP, netip.AddrPortFrom(tunnel, 0), inner[14:])
	}))
	must(l.t, netlab.Poll(l.t.Context(), bound, func() error {
		now, err := l.Verdicts(host)
		if err == nil && now["drop_not_a_mux"] == verdicts["drop_not_a_mux"] {
			err = fmt.Errorf("%s has not refused a packet from %s", host, forger)
		}
		return err
	}))
}

// sendTo sends one packet by IPv4.
func sendTo(kind, protocol int, to netip.AddrPort, data []byte) error {
	socket, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	return unix.Sendto(socket, data, 0, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
}

// waitCounted waits until what happens is counted by the host of the pair's server.
func (l *fastpathLab) waitCounted(p fastpathPair, result string, happens func()) {
	l.t.Helper()
	host := l.node(p.server).Host
	before := l.result(host, result)
	happens()
	must(l.t, netlab.Poll(l.t.Context(), bound, func() error {
		if l.result(host, result) == before {
			return fmt.Errorf("%s has counted nothing as %s", host, result)
		}
		return nil
	}))
}

// drains: connections that left the muxes stay where they are when their backend drains, new ones go elsewhere.
func (l *fastpathLab) drains() {
	l.t.Helper()
	p := fastpathPairs[0]
	l.serve(map[string]int{p.server: 0, p.spare: 1})
	verdicts, err := l.Verdicts(l.node(p.spare).Host)
	must(l.t, err)
	l.talk("drained", p, stream.Config{Network: stream.TCP, Streams: 5, Interval: 50 * time.Millisecond, Size: 16 << 10})
	l.waitLeft()
	now, err := l.Verdicts(l.node(p.spare).Host)
	must(l.t, err)
	if now["reply_direct"] <= verdicts["reply_direct"] {
		l.t.Error("new connections did not go to the other backend, or stayed with the muxes")
	}
	l.end("drained", 16<<10)
	l.serve(map[string]int{})
}

// wayIsCut: what goes from host to host is lost, and what goes by the muxes is not.
func (l *fastpathLab) wayIsCut() {
	l.t.Helper()
	cut := func(change string) {
		for _, p := range fastpathPairs {
			family := "-4"
			if p.from.Is6() {
				family = "-6"
			}
			ends := []string{p.of(l.node(p.client)).String(), p.of(l.node(p.server)).String()}
			for i := range ends {
				_, err := l.Run("router", "ip", family, "rule", change, "from", ends[i], "to", ends[1-i], "pref", "10", "blackhole")
				must(l.t, err)
			}
		}
	}
	before := l.passed()
	cut("add")
	must(l.t, netlab.Poll(l.t.Context(), bound, func() error {
		if passed := l.passed(); passed < before+2000 {
			return fmt.Errorf("muxes have seen %d packets since the way is cut", passed-before)
		}
		return nil
	}))
	cut("del")
	l.waitLeft()
}

// moves: a server is moved to another host, with its connections, which leave the muxes again from there. One that
// the new host finds no session for may end, as without Fastpath.
func (l *fastpathLab) moves() {
	l.t.Helper()
	p := fastpathPairs[1]
	l.talk("moved", p, stream.Config{
		Network: stream.TCP, Streams: 5, Interval: 50 * time.Millisecond, Size: 16 << 10, Patience: bound / 2,
	})
	l.waitLeft()
	must(l.t, l.Move(p.server, "host3"))
	l.hosts[p.server] = "host3"
	l.serve(map[string]int{})
	l.waitLeft()
	run := l.talks["moved "+p.name]
	delete(l.talks, "moved "+p.name)
	result, err := run.Stop()
	must(l.t, err)
	if result.Broken == result.Opened {
		l.t.Errorf("all of %d connections broke that their server took with it: %+v", result.Opened, result.Breaks)
	}
	l.t.Logf("%d of %d connections broke that their server took with it", result.Broken, result.Opened)
}

// dies: a server's host loses its power. Its connections come back to the muxes, and end when it is there again.
func (l *fastpathLab) dies() {
	l.t.Helper()
	p := fastpathPairs[0]
	host, dead := l.node(p.client).Host, l.node(p.server).Host
	wait := func(fits func(open uint64) bool) {
		l.t.Helper()
		must(l.t, netlab.Poll(l.t.Context(), bound, func() error {
			if open := l.connections(host, "send"); !fits(open) {
				return fmt.Errorf("%d connections of %s have left the muxes", open, host)
			}
			return nil
		}))
	}
	// A connection whose last question was taken, and not answered, has nothing to send: it stays.
	few := func(open uint64) bool { return open < 4 }
	l.talk("dead", p, stream.Config{Network: stream.TCP, Streams: 10, Interval: 50 * time.Millisecond, Size: 16 << 10})
	wait(func(open uint64) bool { return open > 6 })
	must(l.t, l.CutPower(dead))
	wait(few)
	must(l.t, l.Revive(dead))
	must(l.t, l.WaitReady(l.t.Context()))
	run := l.talks["dead "+p.name]
	delete(l.talks, "dead "+p.name)
	result, err := run.Stop()
	must(l.t, err)
	// Some may have got their last answer all the same: the dead server's kernel sends what was written.
	for _, b := range result.Breaks {
		if b.Reason != "reset" && b.Reason != "closed by the server" {
			l.t.Errorf("a connection to the server that died ended by %q", b.Reason)
		}
	}
	for _, n := range l.Of(netlab.Workload) {
		if n.Host == dead {
			_, err := l.Restart(n.Name, "weir")
			must(l.t, err)
		}
	}
	for _, p := range fastpathPairs {
		must(l.t, netlab.Poll(l.t.Context(), bound, func() error {
			out, err := l.Run(p.client, "curl", "--silent", "--show-error", "--fail", "--max-time", "2",
				"--interface", p.of(l.node(p.client)).String(), url(p.to, 8080, "/"))
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		}))
	}
}
