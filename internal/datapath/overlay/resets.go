package overlay

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/fbt"
)

// Resets end a connection at both ends.
type Resets = reset.Pair

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
	if _, attached := n.attachments[s.Attachment]; attached && s.Events&ViaMux != 0 { // else muxes send nothing on
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
