package connlimit

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/limits"
)

// listen returns a Listener of loopback and what ends its Run, and waits for that.
func listen(t testing.TB, timeout time.Duration) (l *Listener, run, stop func()) {
	t.Helper()
	below, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if l, err = New(below.(*net.TCPListener), timeout); err != nil {
		t.Fatal(err)
	}
	running := false
	run = func() { running = true; go l.Run() }
	stop = func() {
		l.Close()
		if running {
			<-l.ended
		}
	}
	t.Cleanup(stop)
	return l, run, stop
}

// dial opens a connection from an address of loopback.
func dial(t testing.TB, l *Listener, from string) *net.TCPConn {
	t.Helper()
	opened, err := tryDial(l, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	opened.SetDeadline(time.Now().Add(20 * time.Second)) // the read tells
	return opened.(*net.TCPConn)
}

func tryDial(l *Listener, from string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return dialer.Dial("tcp", l.Addr().String())
}

// dialEnded opens a connection and waits until it is closed, which may be before it was told to be open.
func dialEnded(t *testing.T, l *Listener, from string) {
	t.Helper()
	opened, err := tryDial(l, from)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	opened.SetDeadline(time.Now().Add(20 * time.Second)) // the read tells
	ended(t, opened)
}

// ended waits until the other side has closed a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection of %s is not closed: %v", c.LocalAddr(), err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// What Accept returns is as net.Listener would have it: both ends' addresses, deadlines, keepalive.
func TestAcceptedConnections(t *testing.T) {
	l, run, _ := listen(t, time.Hour)
	run()
	client := dial(t, l, "127.0.0.2")
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if accepted.RemoteAddr().String() != client.LocalAddr().String() || accepted.LocalAddr().String() != l.Addr().String() {
		t.Errorf("accepted at %s from %s, want %s and %s", accepted.LocalAddr(), accepted.RemoteAddr(), l.Addr(), client.LocalAddr())
	}
	accepted.SetReadDeadline(time.Now().Add(time.Millisecond)) // the read tells
	if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read beyond the deadline: %v", err)
	}
	accepted.SetReadDeadline(time.Time{}) // the read tells
	client.Write([]byte("hello"))         // likewise
	text := make([]byte, 5)
	if _, err := io.ReadFull(accepted, text); err != nil || !bytes.Equal(text, []byte("hello")) {
		t.Errorf("read %q, %v", text, err)
	}
	raw, err := accepted.(*conn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for name, option := range map[string][2]int{"keepalive": {unix.SOL_SOCKET, unix.SO_KEEPALIVE}, "no delay": {unix.IPPROTO_TCP, unix.TCP_NODELAY}} {
			if on, err := unix.GetsockoptInt(int(fd), option[0], option[1]); on == 0 || err != nil {
				t.Errorf("%s is off, %v", name, err)
			}
		}
	})
}

// Addresses of IPv4 are one source each, mapped or not; of IPv6 a /64 is.
func TestSources(t *testing.T) {
	mapped := &unix.SockaddrInet6{Addr: netip.MustParseAddr("::ffff:192.0.2.1").As16()}
	bare := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}}
	if sourceOf(mapped) != sourceOf(bare) || sourceOf(bare) != netip.MustParsePrefix("192.0.2.1/32") {
		t.Errorf("%s mapped, %s bare", sourceOf(mapped), sourceOf(bare))
	}
	six := &unix.SockaddrInet6{Addr: netip.MustParseAddr("fe80::1:2:3:4").As16(), ZoneId: 3}
	if sourceOf(six) != netip.MustParsePrefix("fe80::/64") {
		t.Errorf("%s", sourceOf(six))
	}
}

// Connections beyond the queue are closed at once, another address is served meanwhile, and nothing is left open.
func TestStrangersBeyondTheQueueAreRefused(t *testing.T) {
	before := openFiles(t)
	l, run, stop := listen(t, time.Hour)
	run()
	held := make([]*net.TCPConn, 0, limits.ConnectionsEach+limits.ConnectionsWaitEach)
	for range cap(held) {
		held = append(held, dial(t, l, "127.0.0.1"))
	}
	for range 100 {
		dialEnded(t, l, "127.0.0.1")
	}
	for range limits.ConnectionsEach {
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
	}
	user := dial(t, l, "127.0.0.2")
	accepted, err := l.Accept()
	if err != nil || accepted.RemoteAddr().String() != user.LocalAddr().String() {
		t.Fatalf("accepted %v, %v, want %s", accepted, err, user.LocalAddr())
	}
	accepted.Close()
	stop()
	for _, c := range held[limits.ConnectionsEach:] {
		ended(t, c)
		c.Close()
	}
	user.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if open, want := openFiles(t), before+2*limits.ConnectionsEach; open > want {
		t.Errorf("%d files are open, want %d", open, want)
	}
}

// Connections that are queued for too long are closed.
func TestQueuedConnectionsEnd(t *testing.T) {
	l, run, _ := listen(t, 10*time.Millisecond)
	run()
	for range limits.ConnectionsEach {
		dial(t, l, "127.0.0.1")
	}
	dialEnded(t, l, "127.0.0.1")
}

// Without file descriptors connections wait in the kernel's queue, and are accepted when there are some again.
func TestConnectionsWaitForFileDescriptors(t *testing.T) {
	l, run, _ := listen(t, time.Hour)
	clients := []*net.TCPConn{dial(t, l, "127.0.0.1"), dial(t, l, "127.0.0.1"), dial(t, l, "127.0.0.1")}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	full := unix.Rlimit{Cur: uint64(null.Fd()), Max: was.Max} // the next lowest that is free would be beyond
	null.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &full); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	if ready, err := l.tryDrain(); !ready || !errors.Is(err, unix.EMFILE) {
		t.Errorf("accepted without a file descriptor: %v, %v", ready, err)
	}
	if !l.acceptSome() {
		t.Error("Run ends without a file descriptor")
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	run()
	for _, client := range clients {
		accepted, err := l.Accept()
		if err != nil || accepted.RemoteAddr().String() != client.LocalAddr().String() {
			t.Fatalf("accepted %v, %v, want %s", accepted, err, client.LocalAddr())
		}
		defer accepted.Close()
	}
}

// tryDrain accepts what waits.
func (l *Listener) tryDrain() (ready bool, err error) {
	failed := l.raw.Control(func(fd uintptr) { ready, err = l.drain(int(fd)) })
	return ready, errors.Join(failed, err)
}

// BenchmarkRefuse is what it costs to accept and refuse a connection, beside Accept and Close of package net.
func BenchmarkRefuse(b *testing.B) {
	const waiting = 2048 // in the kernel's queue
	for name, refuse := range map[string]func(*Listener, net.Listener) error{
		"net": func(_ *Listener, below net.Listener) error {
			for range waiting {
				accepted, err := below.Accept()
				if err != nil {
					return err
				}
				accepted.Close()
			}
			return nil
		},
		"connlimit": func(l *Listener, _ net.Listener) error {
			for {
				if ready, err := l.tryDrain(); !ready || err != nil {
					return err
				}
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			l, _, _ := listen(b, time.Hour)
			l.queueLength = limits.ConnectionsWait
			l.sources[netip.MustParsePrefix("127.0.0.1/32")] = &source{bucket: newBucket(0, 0)}
			below, err := net.FileListener(l.file)
			if err != nil {
				b.Fatal(err)
			}
			defer below.Close()
			var took time.Duration
			rounds := 0
			for b.Loop() {
				clients := make([]net.Conn, waiting)
				for i := range clients {
					clients[i] = dial(b, l, "127.0.0.1")
				}
				begin := time.Now()
				if err := refuse(l, below); err != nil {
					b.Fatal(err)
				}
				took += time.Since(begin)
				rounds++
				for _, c := range clients {
					c.Close()
				}
			}
			b.ReportMetric(float64(rounds*waiting)/took.Seconds(), "refused/s")
			b.ReportMetric(float64(took.Nanoseconds())/float64(rounds*waiting), "ns/refused")
		})
	}
}

// A client has gone when it has closed its side, or reset the connection, whether or not something that it sent waits; one that
// is there has not.
func TestClientsThatHaveGoneAreKnown(t *testing.T) {
	for name, test := range map[string]struct {
		sent  string
		leave func(*net.TCPConn) error
		gone  bool
	}{
		"there":             {"", func(*net.TCPConn) error { return nil }, false},
		"there, data wait":  {"hello", func(*net.TCPConn) error { return nil }, false},
		"closed":            {"", (*net.TCPConn).Close, true},
		"closed, data wait": {"hello", (*net.TCPConn).Close, true},
		"reset":             {"hello", func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }, true},
	} {
		below, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer below.Close()
		client, err := net.Dial("tcp", below.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := below.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		file, err := server.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := io.WriteString(client, test.sent); err != nil {
			t.Fatal(err)
		}
		if err := test.leave(client.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		if gone := descriptor(file.Fd()).gone(); gone != test.gone {
			t.Errorf("%s: gone is %v", name, gone)
		}
	}
}
