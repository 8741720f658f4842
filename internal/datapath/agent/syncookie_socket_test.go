package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// cookieWays are a native workload and one behind an interface, of either family.
func (w *world) cookieWays(t *testing.T, each func(t *testing.T, server *netns.NS, dip, vip string)) {
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) { each(t, way.server, way.dip, way.vip) })
	}
}

// echoes serves every connection of a listener: what comes goes back.
func echoes(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			_, _ = io.Copy(connection, connection)
		}()
	}
}

// asked sends a question over a connection and wants it back.
func asked(connection net.Conn, question string) error {
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte(question)); err != nil {
		return err
	}
	answer := make([]byte, len(question))
	if _, err := io.ReadFull(connection, answer); err != nil || string(answer) != question {
		return errors.Join(fmt.Errorf("asked %q, got %q", question, answer), err)
	}
	return nil
}

// TestSYNCookieListeners reaches listeners of every kind: at an address, at any, at any of both
// families, and two that share the port.
func TestSYNCookieListeners(t *testing.T) {
	w := newWorld(t)
	w.answer()
	share := func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		any := "0.0.0.0"
		if netip.MustParseAddr(dip).Is6() {
			any = "::"
		}
		for _, c := range []struct{ name, address string }{{"at the address", dip}, {"at any", any}, {"at any of both families", "::"}} {
			t.Run(c.name, func(t *testing.T) {
				listener := listenTCP(t, server, c.address, false, nil)
				defer listener.Close()
				go echoes(listener)
				connection := dial(t, w.client, vip)
				defer connection.Close()
				if err := asked(connection, "who listens?"); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run("two that share", func(t *testing.T) {
			var mu sync.Mutex
			served := map[int]int{}
			for i := range 2 {
				listener := listenTCP(t, server, dip, false, share)
				defer listener.Close()
				go echoes(counting{listener, func() { mu.Lock(); served[i]++; mu.Unlock() }})
			}
			for range 32 {
				connection := dial(t, w.client, vip)
				if err := asked(connection, "who shares?"); err != nil {
					t.Error(err)
				}
				connection.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			if served[0]+served[1] != 32 || served[0] == 0 || served[1] == 0 {
				t.Errorf("the listeners served %v", served)
			}
		})
	})
	w.wantTaken("syncookie_socket", "syncookie_interface")
}

// wantTaken checks that cookies were taken in just these ways.
func (w *world) wantTaken(ways ...string) {
	w.t.Helper()
	want := map[string]bool{}
	for _, way := range ways {
		want[way] = true
	}
	verdicts := w.verdicts()
	for _, name := range []string{"syncookie_socket", "syncookie_native", "syncookie_interface", "drop_syncookie_invalid", "drop_syncookie_expired", "drop_syncookie_rewrite"} {
		if got := verdicts[name].Packets; want[name] != (got != 0) {
			w.t.Errorf("%s: %d packets", name, got)
		}
	}
}

// counting is a listener that tells of each connection.
type counting struct {
	net.Listener
	accepted func()
}

func (c counting) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err == nil {
		c.accepted()
	}
	return connection, err
}

// TestSYNCookieFullQueue has more clients than a listener takes: those that wait are served once it does.
func TestSYNCookieFullQueue(t *testing.T) {
	w := newWorld(t)
	w.answer()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		w.must(server.Sysctl("net.core.somaxconn", "1"))
		listener := listenTCP(t, server, dip, false, nil)
		defer listener.Close()
		const clients = 5
		failed := make(chan error, clients)
		for range clients {
			connection := dial(t, w.client, vip)
			defer connection.Close()
			go func() { failed <- asked(connection, strings.Repeat("is there room? ", 2000)) }()
		}
		w.eventually("the queue overflows", func() bool { return w.tcpCounters(server)["ListenOverflows"] > 0 })
		go echoes(listener)
		for range clients {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSYNCookieLoss loses packets both ways, and wants SACK to have mended it.
func TestSYNCookieLoss(t *testing.T) {
	w := newWorld(t)
	w.answer()
	for _, name := range []string{"client", "host"} {
		index, err := w.network.Index(name)
		w.must(err)
		w.must(w.network.Do(func() error {
			lossy, err := w.mux.Lose(index)
			if err == nil {
				t.Cleanup(func() { lossy.Close() })
			}
			return err
		}))
	}
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		listener := listenTCP(t, server, dip, false, nil)
		defer listener.Close()
		served := make(chan error, 1)
		go func() { served <- serveWithOptions(listener, optTimestamps|optSACK|optWScale) }()
		connection := dial(t, w.client, vip)
		defer connection.Close()
		if err := errors.Join(exchange(connection, 20<<20), <-served); err != nil {
			t.Error(err)
		}
	})
	for _, ns := range []*netns.NS{w.client, w.host, w.workload} {
		if w.tcpCounters(ns)["TCPSackRecovery"] == 0 {
			t.Errorf("%s has never recovered by SACK", ns.Name())
		}
	}
}

// TestSYNCookiesWithoutHelp switches off what the host's stack needs to make sockets of cookies.
func TestSYNCookiesWithoutHelp(t *testing.T) {
	w := newWorld(t)
	w.must(w.host.Sysctl("net.ipv4.tcp_syncookies", "0"))
	w.answer()
	for _, vip := range []string{nativeVIP4, nativeVIP6} {
		dip := map[string]string{nativeVIP4: hostDIP4, nativeVIP6: hostDIP6}[vip]
		listener := listenTCP(t, w.host, dip, false, nil)
		go echoes(listener)
		connection := dial(t, w.client, vip)
		defer connection.Close()
		if err := asked(connection, "without help?"); err != nil {
			t.Error(err)
		}
	}
	w.wantTaken("syncookie_native")
}

// TestSYNCookieSpeaksFirst has workloads speak first, to clients that say nothing.
func TestSYNCookieSpeaksFirst(t *testing.T) {
	w := newWorld(t)
	w.answer()
	const size = 1 << 20
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		listener := listenTCP(t, server, dip, false, nil)
		defer listener.Close()
		go func() {
			if accepted, err := listener.Accept(); err == nil {
				_ = send(accepted, size)
				accepted.Close()
			}
		}()
		connection := dial(t, w.client, vip)
		defer connection.Close()
		if err := receive(connection, size); err != nil {
			t.Error(err)
		}
	})
}

// TestSYNCookieWithData has clients send data with the acknowledgement that ends the handshake, so that
// it has to be sent again where a workload is led through one, and right behind it.
func TestSYNCookieWithData(t *testing.T) {
	w := newWorld(t)
	w.offloads(true) // buffers come in batches
	w.answer()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		listener := listenTCP(t, server, dip, false, nil)
		defer listener.Close()
		go echoes(listener)
		for _, late := range []int{0, 1} { // 0: the acknowledgement waits for data
			var connection net.Conn
			w.must(w.client.Do(func() (err error) {
				dialer := net.Dialer{Timeout: 10 * time.Second, Control: rawControl(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, late)
				})}
				connection, err = dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(vip), vipPort).String())
				return err
			}))
			if err := asked(connection, strings.Repeat("all at once? ", 800)); err != nil {
				t.Error(err)
			}
			connection.Close()
		}
	})
}

// TestSYNCookieRefusal has nobody listen: the client is reset.
func TestSYNCookieRefusal(t *testing.T) {
	w := newWorld(t)
	w.answer()
	w.cookieWays(t, func(t *testing.T, _ *netns.NS, _, vip string) {
		err := w.client.Do(func() error {
			connection, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(vip), vipPort).String(), 10*time.Second)
			if err != nil {
				return err // so soon comes the reset
			}
			defer connection.Close()
			_, err = connection.Read(make([]byte, 1))
			return err
		})
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("got %v, not a reset", err)
		}
	})
}

// TestSYNCookiesOfOnePort opens connections from the same port, one after the other: what the server
// still keeps of the one before does not stand in the way.
func TestSYNCookiesOfOnePort(t *testing.T) {
	w := newWorld(t)
	w.answer()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		listener := listenTCP(t, server, dip, false, nil)
		defer listener.Close()
		go func() {
			for {
				accepted, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = accepted.Read(make([]byte, 64))
				accepted.Close() // first, so that it waits for what is late
			}
		}()
		for i := range 3 {
			connection := w.dialFrom(44000, vip)
			w.must(connection.SetDeadline(time.Now().Add(patience)))
			_, err := connection.Write([]byte("once more"))
			w.must(err)
			if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("connection %d ended with %v", i, err)
			}
			connection.Close()
		}
	})
}

// dialFrom connects from a port, as soon as the client's own socket of the connection before is gone.
func (w *world) dialFrom(port int, vip string) (connection net.Conn) {
	w.t.Helper()
	from := &net.TCPAddr{IP: clientAddress(vip).AsSlice(), Port: port}
	dialer := net.Dialer{LocalAddr: from, Timeout: 10 * time.Second, Control: rawControl(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})}
	dialer.SetMultipathTCP(false)
	w.eventually("the client's own socket of the connection before is gone", func() bool {
		err := w.client.Do(func() (err error) {
			connection, err = dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(vip), vipPort).String())
			return err
		})
		if !errors.Is(err, unix.EADDRNOTAVAIL) {
			w.must(err)
		}
		return err == nil
	})
	return connection
}

// TestSYNCookiesAfterResets has a client reset its connection and open the next one from the same port at once. The
// host can't tell that the reset is not forged: its number is not the one that was noted last.
func TestSYNCookiesAfterResets(t *testing.T) {
	w := newWorld(t)
	w.answer()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		go echoes(listenTCP(t, server, dip, false, nil))
		for i := range 3 {
			connection := w.dialFrom(45000, vip)
			for _, question := range []string{"who", "is", "there?"} {
				if err := asked(connection, question); err != nil {
					t.Fatalf("connection %d: %v", i, err)
				}
			}
			w.must(connection.(*net.TCPConn).SetLinger(0), connection.Close())
		}
	})
}

// TestSYNCookiesOutliveTheAgent takes cookies while no agent runs, and when one has come back.
func TestSYNCookiesOutliveTheAgent(t *testing.T) {
	w := newWorld(t)
	w.answer()
	w.must(w.datapath.Close())
	serve := func(when string) {
		for name, way := range w.ways() {
			listener := listenTCP(t, way.server, way.dip, false, nil)
			go echoes(listener)
			connection := dial(t, w.client, way.vip)
			if err := asked(connection, "who is there?"); err != nil {
				t.Errorf("%s, %s: %v", when, name, err)
			}
			connection.Close()
			listener.Close()
		}
	}
	serve("without an agent")
	w.start()
	serve("with the next one")
	w.wantTaken("syncookie_socket", "syncookie_interface")
}

// TestSYNCookiesWhileSecretsRotate replaces the secrets between each answer of the mux and the client's.
func TestSYNCookiesWhileSecretsRotate(t *testing.T) {
	w := newWorld(t)
	a := w.answer()
	a.mu.Lock()
	a.rotates = func() { a.rotate(w, a.secrets[1].ID) }
	a.mu.Unlock()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		listener := listenTCP(t, server, dip, false, nil)
		defer listener.Close()
		go echoes(listener)
		for range 20 {
			connection := dial(t, w.client, vip)
			if err := asked(connection, "which secret?"); err != nil {
				t.Error(err)
			}
			connection.Close()
		}
	})
	w.wantTaken("syncookie_socket", "syncookie_interface")
}
