package snat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
)

// Offsets in headers, and flags.
const (
	v4Header, v6Header, tcpHeader = 20, 40, 20

	protocolTCP, protocolUDP, protocolICMPv6 = 6, 17, 58

	flagSYN, flagRST, flagACK = 0x02, 0x04, 0x10
)

// Packet is the IP packet of a notice as it leaves, from the external address and port; a SYN announces at most mss bytes a
// segment, or what it does if mss is 0. Its checksums are made anew: those of a workload on this machine may not have been
// filled in yet.
func (n Notice) Packet(external netip.AddrPort, mss int) ([]byte, error) {
	packet, l4, v4 := slices.Clone(n.Frame[n.L3:]), n.L4-n.L3, external.Addr().Is4()
	if len(packet) < l4Base(v4) {
		return nil, errors.New("is cut short")
	}
	length := int(binary.BigEndian.Uint16(packet[2:]))
	if !v4 {
		length = v6Header + int(binary.BigEndian.Uint16(packet[4:]))
	}
	packet = packet[:min(len(packet), length)] // what lies behind is padding
	source := 8
	if v4 {
		source = 12
	}
	port := l4 // of TCP and UDP the first two bytes, of an echo the identifier
	if n.Flow.Protocol != model.TCP && n.Flow.Protocol != model.UDP {
		port += 4
	}
	if len(packet) < l4+8 {
		return nil, errors.New("is cut short")
	}
	copy(packet[source:], external.Addr().AsSlice())
	binary.BigEndian.PutUint16(packet[port:], external.Port())
	if n.Flow.Protocol == model.TCP {
		if len(packet) < l4+tcpHeader {
			return nil, errors.New("is cut short")
		}
		clampMSS(packet[l4:], mss)
	}
	setChecksum(packet, l4, byte(n.Flow.Protocol), v4)
	return packet, nil
}

func l4Base(v4 bool) int {
	if v4 {
		return v4Header
	}
	return v6Header
}

// clampMSS lowers the maximum segment size that a SYN announces.
func clampMSS(segment []byte, bound int) {
	end := min(int(segment[12]>>4)*4, len(segment))
	if segment[13]&flagSYN == 0 || bound <= 0 {
		return
	}
	for at := tcpHeader; at+1 < end; {
		switch kind := segment[at]; {
		case kind == 0:
			return
		case kind == 1:
			at++
			continue
		case kind == 2 && at+4 <= end && int(binary.BigEndian.Uint16(segment[at+2:])) > bound:
			binary.BigEndian.PutUint16(segment[at+2:], uint16(bound))
			return
		}
		if segment[at+1] < 2 {
			return
		}
		at += int(segment[at+1])
	}
}

// setChecksum makes the checksum of the transport header, which is of the protocol. That of the IPv4
// header the kernel makes.
func setChecksum(packet []byte, l4 int, protocol byte, v4 bool) {
	first, last := 8, v6Header // of the addresses
	if v4 {
		first, last = 12, v4Header
	}
	addresses := packet[first:last]
	at, pseudo := 2, true
	switch protocol {
	case protocolTCP:
		at = 16
	case protocolUDP:
		at = 6
	case protocolICMPv6:
	default: // ICMP
		pseudo = false
	}
	segment := packet[l4:]
	if protocol == protocolUDP && segment[at] == 0 && segment[at+1] == 0 {
		return // it has none, and needs none
	}
	segment[at], segment[at+1] = 0, 0
	var sum uint32
	if pseudo {
		sum = session.Checksum(addresses, 0) + uint32(protocol) + uint32(len(segment))
	}
	whole := segment
	if len(whole)%2 == 1 {
		whole = append(slices.Clone(whole), 0)
	}
	made := ^session.Fold(session.Checksum(whole, sum))
	if protocol == protocolUDP && made == 0 {
		made = 0xffff
	}
	binary.BigEndian.PutUint16(segment[at:], made)
}

// Refusal is what tells the workload that its packet can't leave: a reset, or that it is administratively
// prohibited (RFC 792, RFC 1812, RFC 4443). nil: there is nothing to be told.
func (n Notice) Refusal() []byte {
	packet := n.Frame[n.L3:]
	l4 := n.L4 - n.L3
	remote, workload := n.Flow.Remote.Addr(), n.Flow.Workload.Addr()
	if n.Flow.Protocol == model.TCP {
		if len(packet) < l4+tcpHeader || packet[l4+13]&flagRST != 0 {
			return nil
		}
		return ipPacket(remote, workload, protocolTCP, resetOf(packet[l4:]))
	}
	quote := packet[:min(len(packet), l4+64)]
	if remote.Is4() {
		return ipPacket(remote, workload, 1, append([]byte{3, 13, 0, 0, 0, 0, 0, 0}, quote...))
	}
	return ipPacket(remote, workload, protocolICMPv6, append([]byte{1, 1, 0, 0, 0, 0, 0, 0}, quote...))
}

// resetOf answers a segment (RFC 9293, section 3.5.2).
func resetOf(segment []byte) []byte {
	reset := slices.Concat(segment[2:4], segment[0:2], make([]byte, 16))
	reset[12] = tcpHeader / 4 << 4
	if segment[13]&flagACK != 0 {
		copy(reset[4:8], segment[8:12])
		reset[13] = flagRST
		return reset
	}
	next := binary.BigEndian.Uint32(segment[4:])
	if segment[13]&flagSYN != 0 {
		next++
	}
	binary.BigEndian.PutUint32(reset[8:], next)
	reset[13] = flagRST | flagACK
	return reset
}

// ipPacket puts a payload behind an IP header, and makes the payload's checksum.
func ipPacket(from, to netip.Addr, protocol byte, payload []byte) []byte {
	const hops = 64
	var header []byte
	if from.Is4() {
		header = []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, hops, protocol, 0, 0}
		binary.BigEndian.PutUint16(header[2:], uint16(v4Header+len(payload)))
	} else {
		header = []byte{0x60, 0, 0, 0, 0, 0, protocol, hops}
		binary.BigEndian.PutUint16(header[4:], uint16(len(payload)))
	}
	packet := slices.Concat(header, from.AsSlice(), to.AsSlice(), payload)
	setChecksum(packet, len(packet)-len(payload), protocol, from.Is4())
	return packet
}

// Sender sends IP packets with headers of their own.
type Sender struct {
	uplink  string
	sockets [4]int // by family, and whether they leave by the uplink; -1: the kernel has no such family
}

// NewSender makes one. It must be called in the uplink's network namespace, as must Send.
func (t *Translator) NewSender() (*Sender, error) {
	s := &Sender{uplink: t.uplink}
	for i := range s.sockets {
		s.sockets[i] = -1
	}
	for i := range s.sockets {
		family := unix.AF_INET
		if i%2 == 1 {
			family = unix.AF_INET6
		}
		socket, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
		if errors.Is(err, unix.EAFNOSUPPORT) { // as after ipv6.disable=1
			continue
		}
		if err == nil && i < 2 {
			err = unix.BindToDevice(socket, t.uplink)
		}
		s.sockets[i] = socket
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close ends it.
func (s *Sender) Close() error {
	var errs []error
	for _, socket := range s.sockets {
		if socket >= 0 {
			errs = append(errs, unix.Close(socket))
		}
	}
	return errors.Join(errs...)
}

// Transmit sends a packet to the network; Tell sends one to a workload of this host.
func (s *Sender) Transmit(to netip.Addr, packet []byte) error {
	err := s.send(0, to, packet)
	if !slices.ContainsFunc(gone, func(is error) bool { return errors.Is(err, is) }) {
		return err
	}
	for _, socket := range s.sockets[:2] {
		if socket >= 0 {
			if err := unix.BindToDevice(socket, s.uplink); err != nil {
				return fmt.Errorf("bind to %s, which was made anew: %w", s.uplink, err)
			}
		}
	}
	return s.send(0, to, packet)
}

// gone are the errors of a socket that is bound to an uplink by its index, which another one of the name has not.
var gone = []error{unix.ENODEV, unix.ENXIO, unix.ENETUNREACH, unix.EHOSTUNREACH}

// Reject sends a packet to a workload of this host, by the route to it.
func (s *Sender) Reject(to netip.Addr, packet []byte) error { return s.send(2, to, packet) }

func (s *Sender) send(first int, to netip.Addr, packet []byte) error {
	if !to.Is4() {
		first++
	}
	if s.sockets[first] < 0 {
		return unix.EAFNOSUPPORT
	}
	if to.Is4() {
		return unix.Sendto(s.sockets[first], packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	}
	return unix.Sendto(s.sockets[first], packet, 0, &unix.SockaddrInet6{Addr: to.As16()})
}
