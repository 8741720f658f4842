package overlay

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/fbt"
)

// Resets end a connection at both ends.
type Resets struct {
	ToServer []byte     // an IP packet
	Server   netip.Addr // where it goes
	ToClient []byte     // what is inside UDP: VXLAN, and the frame
	Tunnel   netip.Addr // where that comes from
	Host     netip.Addr // and goes: the client's host, or the muxes; not valid: it is not known
	Bare     bool       // the host has no agent, so over IPv6 it wants a checksum of UDP
}

// resets are those of a session; false: too little is known of it by now.
func (n *Network) resets(s Session) (r Resets, ok bool) {
	attachment := n.attachmentOf(s)
	rule, known := n.rules[s.Rule]
	if !known {
		if rule, known = n.removed[s.Rule]; !known {
			return r, false
		}
	}
	if attachment.VNI == 0 || !rule.Tunnel.IsValid() {
		return r, false
	}
	server := rule.Backend
	if server.Port() == 0 {
		server = netip.AddrPortFrom(server.Addr(), s.Port)
	}
	r.ToServer, r.Server = resetPacket(n.local(s), server, s.ClientNext), server.Addr()
	r.ToClient = vxlanHeader(attachment, s.ClientMAC, s.Client.Addr().Is4())
	r.ToClient = append(r.ToClient, resetPacket(netip.AddrPortFrom(attachment.VIP, s.Port), s.Client, s.ServerNext)...)
	host := n.hosts[s.Host]
	if s.Events&ViaMux != 0 {
		ok = n.resetByMux(&r, attachment, s, host)
		return r, ok
	}
	r.Tunnel, r.Host, r.Bare = rule.Tunnel, host.V4, host.Roles&Bare != 0
	if rule.Tunnel.Is6() {
		r.Host = host.V6
	}
	return r, true
}

// resetByMux has the reset for the client go by a mux, as all answers to it do; false: it can't be known how.
func (n *Network) resetByMux(r *Resets, a Attachment, s Session, host Host) bool {
	var settings overlayOverlaySettings
	if err := n.objects.Settings.Get(&settings); err != nil {
		return false
	}
	for _, way := range []struct {
		own, mux [4]uint32
		host     netip.Addr
	}{
		{settings.Own4.Words, settings.Mux4.Words, host.V4}, {settings.Own6.Words, settings.Mux6.Words, host.V6},
	} {
		own, mux := abi.Address(way.own), abi.Address(way.mux)
		if r.Host.IsValid() || !way.host.IsValid() || !own.IsValid() || !mux.IsValid() || n.answerKey.ID == 0 {
			continue
		}
		answer := fbt.Answer{VNI: a.VNI, Host: s.Host, Client: s.Client, VIP: netip.AddrPortFrom(a.VIP, s.Port), ClientMAC: s.ClientMAC}
		mac := answer.MAC(n.answerKey)
		copy(r.ToClient, answer.VXLAN(n.answerKey))
		copy(r.ToClient[vxlanLength+len(mac):], mac[:])
		r.Tunnel, r.Host = own, mux
	}
	return true
}

const vxlanLength = 8

// vxlanHeader is VXLAN and the Ethernet header of the frame inside (RFC 7348, section 5).
func vxlanHeader(a Attachment, to [6]byte, v4 bool) []byte {
	b := []byte{8, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, a.VNI<<8)
	b = append(append(b, to[:]...), a.GatewayMAC[:]...)
	if v4 {
		return append(b, 0x08, 0x00)
	}
	return append(b, 0x86, 0xdd)
}

// resetPacket is a TCP reset with its IP header.
func resetPacket(from, to netip.AddrPort, seq uint32) []byte {
	const hops, tcp, rst, words = 64, 6, 0x04, 5
	s := binary.BigEndian.AppendUint16(nil, from.Port())
	s = binary.BigEndian.AppendUint16(s, to.Port())
	s = binary.BigEndian.AppendUint32(s, seq)
	s = append(s, 0, 0, 0, 0, words<<4, rst, 0, 0, 0, 0, 0, 0)
	source, destination := from.Addr().AsSlice(), to.Addr().AsSlice()
	sum := onesSum(source, 0) + onesSum(destination, 0) + tcp + uint32(len(s))
	binary.BigEndian.PutUint16(s[16:], ^fold(onesSum(s, sum)))
	if to.Addr().Is6() {
		header := []byte{0x60, 0, 0, 0, 0, byte(len(s)), tcp, hops}
		return append(append(append(header, source...), destination...), s...)
	}
	header := []byte{0x45, 0, 0, byte(20 + len(s)), 0, 0, 0x40, 0, hops, tcp, 0, 0}
	header = append(append(header, source...), destination...)
	binary.BigEndian.PutUint16(header[10:], ^fold(onesSum(header, 0)))
	return append(header, s...)
}

// onesSum adds data, of an even length, to a ones' complement sum that fold ends.
func onesSum(data []byte, sum uint32) uint32 {
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
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
func (s *Sender) Send(r Resets) error {
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

func sockaddr(a netip.Addr, port int) (int, unix.Sockaddr) {
	if a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4(), Port: port}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16(), Port: port}
}

const socketFlags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK

// toServer has the route lead to the host's own stack, or by the workload's interface.
func (s *Sender) toServer(r Resets) error {
	of, to := sockaddr(r.Server, 0)
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

func (s *Sender) toClient(r Resets) error {
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
	_, to := sockaddr(r.Host, vxlanPort)
	return unix.Sendto(socket, r.ToClient, 0, to)
}

// openUDP opens a socket at a tunnel, which may be an address of a workload and none of the host: so it is a transparent one.
// Its packets have no checksum, as those of the programs.
func openUDP(key udpKey) (int, error) {
	of, from := sockaddr(key.tunnel, 0)
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
