package reset

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Pair are the resets for both ends of a connection.
type Pair struct {
	ToServer []byte     // an IP packet
	Server   netip.Addr // where it goes
	ToClient []byte     // what is inside UDP: VXLAN, and the frame
	Tunnel   netip.Addr // where that comes from
	Host     netip.Addr // and goes: the client's host, or the muxes; not valid: it is not known
	Bare     bool       // the host has no agent, so over IPv6 it wants a checksum of UDP
}

// Sender sends resets. Its sockets are of the network namespace in which it first sends.
type Sender struct {
	raw map[bool]int // by whether of IPv4; takes IP headers
	udp map[udpKey]int
}

type udpKey struct {
	tunnel netip.Addr
	bare   bool
}

// Send sends both. That one end can't be reached keeps none from the other.
func (s *Sender) Send(r Pair) error {
	err := s.toServer(r)
	if r.Host.IsValid() {
		err = errors.Join(err, s.toClient(r))
	}
	return err
}

// Close closes its sockets.
func (s *Sender) Close() (err error) {
	for _, socket := range s.raw {
		err = errors.Join(err, unix.Close(socket))
	}
	for _, socket := range s.udp {
		err = errors.Join(err, unix.Close(socket))
	}
	s.raw, s.udp = nil, nil
	return err
}

// Sockaddr is the family and the socket address of an address and a port.
func Sockaddr(a netip.Addr, port int) (int, unix.Sockaddr) {
	if a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4(), Port: port}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16(), Port: port}
}

const socketFlags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK

// toServer has the route lead to the host's own stack, or by the workload's interface.
func (s *Sender) toServer(r Pair) error {
	of, to := Sockaddr(r.Server, 0)
	socket, open := s.raw[r.Server.Is4()]
	if !open {
		var err error
		if socket, err = unix.Socket(of, unix.SOCK_RAW|socketFlags, unix.IPPROTO_RAW); err != nil {
			return err
		}
		if s.raw == nil {
			s.raw = map[bool]int{}
		}
		s.raw[r.Server.Is4()] = socket
	}
	return unix.Sendto(socket, r.ToServer, 0, to)
}

func (s *Sender) toClient(r Pair) error {
	const vxlanPort = 4789
	key := udpKey{r.Tunnel, r.Bare}
	socket, open := s.udp[key]
	if !open {
		var err error
		if socket, err = openUDP(key); err != nil {
			return err
		}
		if s.udp == nil {
			s.udp = map[udpKey]int{}
		}
		s.udp[key] = socket
	}
	_, to := Sockaddr(r.Host, vxlanPort)
	return unix.Sendto(socket, r.ToClient, 0, to)
}

// openUDP opens a socket at a tunnel, which may be an address of a workload and none of the host: so it is a transparent one.
// Its packets have no checksum, as those of the programs.
func openUDP(key udpKey) (int, error) {
	of, from := Sockaddr(key.tunnel, 0)
	socket, err := unix.Socket(of, unix.SOCK_DGRAM|socketFlags, 0)
	if err != nil {
		return 0, err
	}
	level, option := unix.SOL_SOCKET, unix.SO_NO_CHECK
	of4or6, transparent := unix.SOL_IP, unix.IP_TRANSPARENT
	if of == unix.AF_INET6 {
		level, option = unix.SOL_UDP, unix.UDP_NO_CHECK6_TX
		of4or6, transparent = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	if !key.bare {
		err = unix.SetsockoptInt(socket, level, option, 1)
	}
	err = errors.Join(err, unix.SetsockoptInt(socket, of4or6, transparent, 1))
	if err = errors.Join(err, unix.Bind(socket, from)); err != nil {
		return 0, errors.Join(err, unix.Close(socket))
	}
	return socket, nil
}
