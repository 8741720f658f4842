package fastpath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/fastpath"
)

// Sender sends datagrams to the GUE port of tunnels, from tunnels of this host. A tunnel is a workload's address, mostly,
// and none of the host's own: so the sockets are transparent ones.
type Sender struct{ v4, v6 *net.UDPConn }

// NewSender opens the sockets.
func NewSender() (*Sender, error) {
	v4, err4 := listenTransparent("udp4", unix.SOL_IP, unix.IP_TRANSPARENT)
	v6, err6 := listenTransparent("udp6", unix.SOL_IPV6, unix.IPV6_TRANSPARENT)
	if err4 != nil && err6 != nil { // a host may be without one of the families
		return nil, fmt.Errorf("open sockets for fastpath: %w", errors.Join(err4, err6))
	}
	return &Sender{v4: v4, v6: v6}, nil
}

func listenTransparent(network string, level, option int) (*net.UDPConn, error) {
	socket, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		err = errors.Join(err, setOption(raw, level, option))
	}
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return socket, nil
}

func setOption(socket syscall.RawConn, level, option int) (err error) {
	outer := socket.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(outer, err)
}

// Send sends a datagram from one tunnel to another.
func (s *Sender) Send(from, to netip.Addr, datagram []byte) error {
	socket, source := s.v4, (&ipv4.ControlMessage{Src: from.AsSlice()}).Marshal()
	if to.Is6() {
		socket, source = s.v6, (&ipv6.ControlMessage{Src: from.AsSlice()}).Marshal()
	}
	if socket == nil {
		return errors.New("the host has no sockets of that family")
	}
	_, _, err := socket.WriteMsgUDPAddrPort(datagram, source, netip.AddrPortFrom(to, fastpath.Port))
	return err
}

// Close ends sending.
func (s *Sender) Close() (err error) {
	for _, socket := range []*net.UDPConn{s.v4, s.v6} {
		if socket != nil {
			err = errors.Join(err, socket.Close())
		}
	}
	return err
}
