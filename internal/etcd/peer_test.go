package etcd

import (
	"log/slog"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Connections of other members end when nothing is acknowledged for some seconds: TCP's retransmissions would else decide
// when a network that was down is used again.
func TestConnectionsOfPeersHaveAUserTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	listener.Close()
	client, err := Open(t.Context(), Config{
		Name: "m1", DataDir: t.TempDir(), PeerListen: address.String(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var timeout time.Duration
	accepted := false
	for deadline := time.Now().Add(20 * time.Second); !accepted && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		timeout, accepted = userTimeout(t, address.Port, conn.LocalAddr().(*net.TCPAddr).Port)
	}
	if timeout != peerUserTimeout {
		t.Errorf("a connection that a member accepted has a user timeout of %v, want %v", timeout, peerUserTimeout)
	}
}

// userTimeout is the TCP_USER_TIMEOUT of this process's connection between two local ports.
func userTimeout(t *testing.T, local, remote int) (timeout time.Duration, found bool) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	port := func(a unix.Sockaddr, err error) int {
		if ip, ok := a.(*unix.SockaddrInet4); ok && err == nil {
			return ip.Port
		}
		return 0
	}
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0) // it stays what it is
		if err != nil {
			continue
		}
		if port(unix.Getsockname(fd)) == local && port(unix.Getpeername(fd)) == remote {
			ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if err != nil {
				t.Fatal(err)
			}
			timeout, found = time.Duration(ms)*time.Millisecond, true
		}
		unix.Close(fd)
	}
	return timeout, found
}
