package oracle

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// OverlayClient is a workload of a virtual network behind the one port that the oracle knows.
type OverlayClient struct{ MAC [6]byte }

// FromClient is a frame's way through the program at the client's port.
func (o *Overlay) FromClient(frame []byte) Outcome {
	ethertype := binary.BigEndian.Uint16(frame[12:])
	if ethertype == 0x0806 {
		return o.answerARP(frame)
	}
	if ethertype == 0x86dd {
		if out, ok := o.answerND(frame); ok {
			return out
		}
	}
	l3, tagged := 14, ethertype == 0x8100 || ethertype == 0x88a8
	for range 2 {
		if ethertype != 0x8100 && ethertype != 0x88a8 {
			break
		}
		if len(frame) < l3+4 {
			return Outcome{Verdict: "pass_other"}
		}
		ethertype, l3 = binary.BigEndian.Uint16(frame[l3+2:]), l3+4
	}
	p, verdict := parseIP(frame, l3, len(frame), ethertype)
	if verdict == "pass_malformed" {
		return Outcome{Verdict: "pass_other"}
	}
	number, a := attachmentOf(o.Attachments, o.PortVNI, p.to)
	switch {
	case number == 0:
		return Outcome{Verdict: "pass_not_a_vip"}
	case tagged:
		return Outcome{Verdict: "drop_tagged"}
	case o.Clients[p.from] != OverlayClient{MAC: [6]byte(frame[6:])}:
		return Outcome{Verdict: "drop_spoofed"}
	}
	direct := netip.Addr{}
	if verdict == "" && p.protocol == 6 {
		if p.parseTransport() != "" {
			return Outcome{Verdict: "drop_inner_malformed"}
		}
		key := hoststate.FlowKey{Client: p.flow.Source, Attachment: number, Port: p.flow.Destination.Port()}
		direct = o.Flows.NoteClient(key, inet.ReadSegment(p.l4))
	}
	marked := func([]byte) {}
	if verdict == "" && p.protocol == protocolUDP && p.parseTransport() == "" {
		direct, marked = o.datagramFromClient(p, number)
	}
	return o.send(p, a, direct, verdict == "", marked)
}

func attachmentOf(all map[uint32]OverlayAttachment, vni uint32, vip netip.Addr) (uint32, OverlayAttachment) {
	for number, a := range all {
		if a.VNI == vni && a.VIP == vip {
			return number, a
		}
	}
	return 0, OverlayAttachment{}
}

// sameFamily is the address of the family of another one.
func sameFamily(all []netip.Addr, like netip.Addr) netip.Addr {
	for _, a := range all {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// send is the packet in VXLAN, to the server's host or to the muxes.
func (o *Overlay) send(p *packet, a OverlayAttachment, direct netip.Addr, whole bool, marked func([]byte)) Outcome {
	to, verdict, route := direct, "send_direct", byte(0)
	if !direct.IsValid() {
		to, verdict, route = o.Mux, "send_mux", 0x57
	}
	own := sameFamily(o.Own, to)
	room := o.MTU - vxlanRoom(to)
	if p.protocol == protocolUDP { // which gets a header from the muxes, and leaves them by either family
		room = o.MTU - vxlanRoom6 - fbt.Length
	}
	if len(p.ip) > room {
		return tooBig(p, room, whole)
	}
	ip := bytes.Clone(p.ip)
	if whole && p.protocol == 6 {
		segment := bytes.Clone(p.l4)
		clamp(segment, o.MTU-vxlanRoom(to)-20-fixedHeader(p.v4))
		ip = p.withEnds(segment, p.flow.Source, p.flow.Destination, p.tos)
	}
	a.Gateway = [6]byte(p.frame[6:]) // the inner frame is from the client
	out := append(bytes.Clone(p.frame[:12]), etherType(to.Is4())...)
	carrier := o.inVXLAN(ip, p.v4, p.tos, own, to, [6]byte(p.frame), a)
	carrier[len(carrier)-len(ip)-15] = route
	marked(carrier)
	out = append(append(out, carrier...), p.frame[14+len(p.ip):]...)
	return Outcome{Verdict: verdict, Frame: out}
}

// tooBig tells the sender what would fit.
func tooBig(p *packet, room int, whole bool) Outcome {
	front := 0
	if p.fragment != nil && p.fragment.offset == 0 && p.protocol == protocolUDP {
		if whole = true; !p.v4 {
			front = 8
		}
	}
	if !whole || p.protocol != 6 && p.protocol != 17 || len(p.ip)-len(p.l4) != fixedHeader(p.v4)+front {
		return Outcome{Verdict: "drop_too_big"}
	}
	frame := append(bytes.Clone(p.frame[6:12]), p.frame[:6]...)
	frame = append(frame, etherType(p.v4)...)
	return Outcome{Verdict: "answer_too_big", Frame: append(frame, inet.TooBig(p.ip, p.protocol, front, room)...)}
}

// answerARP answers who asks for a VIP (RFC 826).
func (o *Overlay) answerARP(frame []byte) Outcome {
	if len(frame) < 42 || !bytes.Equal(frame[14:22], []byte{0, 1, 8, 0, 6, 4, 0, 1}) {
		return Outcome{Verdict: "pass_other"}
	}
	number, a := attachmentOf(o.Attachments, o.PortVNI, netip.AddrFrom4([4]byte(frame[38:])))
	if number == 0 {
		return Outcome{Verdict: "pass_not_a_vip"}
	}
	return Outcome{Verdict: "answer_arp", Frame: inet.ARPReply(frame, a.Gateway)}
}

// answerND answers who solicits a VIP (RFC 4861, sections 4.3 and 4.4).
func (o *Overlay) answerND(frame []byte) (Outcome, bool) {
	if len(frame) < 14+40+24 || frame[20] != 58 || frame[21] != 255 || frame[54] != 135 || frame[55] != 0 {
		return Outcome{}, false
	}
	target := netip.AddrFrom16([16]byte(frame[62:]))
	number, a := attachmentOf(o.Attachments, o.PortVNI, target)
	if number == 0 || target.Is4In6() {
		return Outcome{}, false
	}
	return Outcome{Verdict: "answer_nd", Frame: inet.Advertisement(frame, target, a.Gateway)}, true
}

// toClient is what came by the underlay and is for no VIP here.
func (o *Overlay) toClient(frame []byte) Outcome {
	foreign := Outcome{Verdict: "pass_not_ours"}
	outer, _ := parseIP(frame, 14, len(frame), binary.BigEndian.Uint16(frame[12:]))
	rest := frame[outer.at():]
	at, ethertype := outer.at()+30, binary.BigEndian.Uint16(rest[28:])
	limit := outer.at() + int(binary.BigEndian.Uint16(rest[4:]))
	inner, verdict := parseIP(frame, at, limit, ethertype)
	if verdict == "pass_malformed" || verdict == "pass_not_ip" {
		return foreign
	}
	client, known := o.Clients[inner.to]
	number, a := attachmentOf(o.Attachments, binary.BigEndian.Uint32(rest[12:])>>8, inner.from)
	from := o.Tunnels[outer.from]
	from.Mux = from.Mux || outer.from == o.Mux || o.Mux6.IsValid() && outer.from == o.Mux6
	switch {
	case !known || number == 0 || a.VNI != o.PortVNI:
		return foreign
	case !from.Mux && !from.Server:
		return Outcome{Verdict: "drop_not_a_vtep"}
	case outer.tos&3 == 3 && inner.tos&3 == 0:
		return Outcome{Verdict: "drop_ecn"}
	}
	if verdict == "" && inner.protocol == 6 {
		if inner.parseTransport() != "" {
			return Outcome{Verdict: "drop_inner_malformed"}
		}
		key := hoststate.FlowKey{Client: inner.flow.Destination, Attachment: number, Port: inner.flow.Source.Port()}
		if refused := o.Flows.NoteServer(key, inet.ReadSegment(inner.l4), outer.from, from.Mux); refused != "" {
			return Outcome{Verdict: refused}
		}
	}
	if verdict == "" && inner.protocol == protocolUDP && !from.Mux {
		o.datagramToClient(inner, number, outer.from, rest)
	}
	out := append(client.MAC[:], a.Gateway[:]...)
	out = append(append(out, etherType(inner.v4)...), inner.withTOS(ecn(outer.tos, inner.tos))...)
	return Outcome{Verdict: "deliver_client", Frame: append(out, frame[at+len(inner.ip):]...)}
}

// withTOS is the packet with another class of service.
func (p *packet) withTOS(tos uint8) []byte {
	ip := bytes.Clone(p.ip)
	if !p.v4 {
		ip[0], ip[1] = ip[0]&0xf0|tos>>4, ip[1]&0x0f|tos<<4
		return ip
	}
	ip[1] = tos
	n := len(p.ip) - len(p.l4)
	binary.BigEndian.PutUint16(ip[10:], rechecked(p.ip[:n], ip[:n], 10))
	return ip
}
