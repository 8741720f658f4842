package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/stream"
)

// Source NAT is under way in each scenario: workloads hold connections to a server outside, and open others in bursts,
// for which their hosts ask for ranges of ports. The ranges come back when nobody uses them.

// outside is the server that workloads connect to.
const outside = "outside1"

// family is one IP version, with the VIP that all workloads leave as.
type family struct {
	vip string
	of  func(netlab.Node) netip.Addr
}

var families = []family{
	{"crawler4", func(n netlab.Node) netip.Addr { return n.IPv4 }},
	{"crawler6", func(n netlab.Node) netip.Addr { return n.IPv6 }},
}

// leaving is the manifest of the VIPs that workloads leave as. All workloads together may have as many ranges as the VIP
// has: a workload is never refused for what another one has, and soon asks for what others have given back.
func leaving(lab *netlab.Lab) string {
	const most = 256 // ports of a workload
	workloads := lab.Of(netlab.Workload)
	var b strings.Builder
	for _, f := range families {
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  snat:\n    reserved: [1-%d]\n"+
			"    maxPorts: %d\n    preallocate: 32\n    idleTimeout: 1s\n    exhausted: drop\n    workloads:\n",
			f.vip, addresses[f.vip], 1<<16-1-most*len(workloads), most)
		for _, n := range workloads {
			fmt.Fprintf(&b, "    - {address: '%s', host: %s}\n", f.of(n), n.Host)
		}
	}
	return b.String()
}

// heldOutside opens connections from workloads to the server outside, which stay: a container's by IPv4, a native
// workload's by IPv6.
func (w *world) heldOutside(t *testing.T) []*netload.Streams {
	t.Helper()
	server, err := w.Node(outside)
	must(t, err)
	var held []*netload.Streams
	for i, n := range w.Of(netlab.Workload)[:len(families)] {
		f := families[i]
		s, err := netload.StartStreams(t.Context(), w, n.Name, stream.Config{
			Network: stream.TCP, Target: netip.AddrPortFrom(f.of(server), netlab.EchoPort), Source: f.of(n), Streams: 16,
			Interval: 500 * time.Millisecond, Size: 256, Patience: 15 * time.Second,
		})
		must(t, err)
		must(t, s.WaitOpened(t.Context(), bound))
		held = append(held, s)
	}
	return held
}

// bursts are the connections that come and go.
type bursts struct {
	group  errgroup.Group
	cancel context.CancelFunc
	counts chan int // of connections that a burst opened
}

// startBursts has each workload open many connections at once, end them, and be quiet for some time. How many open is not
// asked: without a leader there are no more ports.
func (w *world) startBursts(t *testing.T) *bursts {
	t.Helper()
	server, err := w.Node(outside)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	b := &bursts{cancel: cancel, counts: make(chan int, 1)}
	b.counts <- 0
	for i, n := range w.Of(netlab.Workload) {
		ns, err := w.NS(n.Name)
		must(t, err)
		random := rand.New(rand.NewPCG(w.random.Uint64(), uint64(i)))
		b.group.Go(func() error {
			for round := i; ctx.Err() == nil; round++ {
				f := families[round%len(families)]
				opened, err := burst(ns, f.of(n), netip.AddrPortFrom(f.of(server), netlab.EchoPort), 40+random.IntN(60))
				if err != nil {
					return fmt.Errorf("connect from %s: %w", n.Name, err)
				}
				b.counts <- <-b.counts + opened
				sleep(ctx, time.Second+time.Duration(random.Int64N(int64(4*time.Second))))
			}
			return nil
		})
	}
	return b
}

// stop ends them and returns how many connections they opened.
func (b *bursts) stop() (opened int, err error) {
	b.cancel()
	err = b.group.Wait()
	return <-b.counts, err
}

// burstTime bounds how long a burst waits for its connections.
const burstTime = 3 * time.Second

// burst opens connections from an address all at once, and resets them: what they used is soon unused.
func burst(ns *netns.NS, from netip.Addr, to netip.AddrPort, count int) (opened int, err error) {
	waiting := make([]unix.PollFd, 0, count)
	defer func() {
		for _, s := range waiting {
			_ = unix.SetsockoptLinger(int(s.Fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(int(s.Fd)) // the socket is gone whatever it says
		}
	}()
	err = ns.Do(func() error {
		for range count {
			socket, err := connecting(netip.AddrPortFrom(from, 0), to)
			if err != nil {
				return err
			}
			waiting = append(waiting, unix.PollFd{Fd: int32(socket), Events: unix.POLLOUT})
		}
		return nil
	})
	for end := time.Now().Add(burstTime); err == nil && opened < count && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		opened, err = open(waiting)
	}
	return opened, err
}

// open counts the sockets that are connected.
func open(sockets []unix.PollFd) (count int, err error) {
	if _, err := unix.Poll(sockets, 0); err != nil && err != unix.EINTR {
		return 0, err
	}
	for _, s := range sockets {
		if s.Revents == unix.POLLOUT {
			count++
		}
	}
	return count, nil
}

// connecting is a socket that connects.
func connecting(from, to netip.AddrPort) (socket int, err error) {
	family, address := unix.AF_INET6, func(a netip.AddrPort) unix.Sockaddr {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	if to.Addr().Is4() {
		family, address = unix.AF_INET, func(a netip.AddrPort) unix.Sockaddr {
			return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
		}
	}
	if socket, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err = unix.Bind(socket, address(from)); err == nil {
		err = unix.Connect(socket, address(to))
	}
	if err == nil || err == unix.EINPROGRESS {
		return socket, nil
	}
	_ = unix.Close(socket) // that it failed before says more
	return 0, err
}
