package probe

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// fullBacklog listens with room for one connection that nobody accepts, and fills it.
func fullBacklog(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port))
	for range 8 {
		conn, err := net.DialTimeout("tcp", at.String(), brief)
		if err != nil {
			return at
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the backlog takes more connections than it was given room for")
	return at
}
