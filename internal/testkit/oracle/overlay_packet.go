package oracle

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle/answer"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// What a packet gets before it in VXLAN: IP, UDP, VXLAN, Ethernet.
const (
	vxlanRoom4 = 20 + 8 + 8 + 14
	vxlanRoom6 = 40 + 8 + 8 + 14
	fbtRoom    = 16
)

func vxlanRoom(tunnel netip.Addr) int {
	if tunnel.Is4() {
		return vxlanRoom4
	}
	return vxlanRoom6
}

// Local is the address by which the server knows the client of a row.
func (o *Overlay) Local(row uint32, s *hoststate.Session) netip.Addr {
	return o.local().Address(s.Client.Addr(), o.Attachments[s.Attachment].VNI, row)
}

func (o *Overlay) local() hoststate.LocalPrefixes {
	return hoststate.LocalPrefixes{V4: o.Local4, V6: o.Local6}
}

// deliver is the segment for the server.
func (o *Overlay) deliver(v *vxlanSegment, row uint32, s *hoststate.Session) Outcome {
	r := o.Rules[s.Rule]
	if r.Down || !r.Tunnel.IsValid() {
		return Outcome{Verdict: "drop_no_workload"}
	}
	if !s.UDP && v.inner.fragment == nil {
		s.NoteClient(inet.ReadSegment(v.inner.l4))
	}
	if r.Backend.Addr().Is4() != v.inner.v4 {
		return Outcome{Verdict: "drop_no_rule"}
	}
	p := v.inner
	if v.fromMux && (p.v4 || v.header == nil) && len(p.ip)-len(p.l4) != fixedHeader(p.v4) {
		return Outcome{Verdict: "drop_rewrite"} // muxes insert no FBT behind options and extension headers
	}
	to := r.Backend
	if to.Port() == 0 {
		to = netip.AddrPortFrom(to.Addr(), p.flow.Destination.Port())
	}
	segment := bytes.Clone(p.l4)
	if v.fromMux && v.header == nil {
		segment = append(segment[:20:20], segment[20+fbtRoom:]...)
		segment[12] -= fbtRoom / 4 << 4
	}
	from := netip.AddrPortFrom(o.Local(row, s), p.flow.Source.Port())
	room := vxlanRoom(r.Tunnel)
	if _, to, _ := wayOf(o, v.host, r.Tunnel, v.via); v.via && to.Is6() {
		room = vxlanRoom6
	}
	if !s.UDP && p.fragment == nil {
		clamp(segment, o.MTU-room-20-fixedHeader(p.v4))
	}
	ip := p.withEnds(segment, from, to, ecn(v.outer.tos, p.tos))
	verdict := "deliver_native"
	if r.Behind {
		verdict = "deliver_interface"
	}
	frame := append(bytes.Clone(p.frame[:12]), etherType(p.v4)...)
	frame = append(append(frame, ip...), p.frame[p.l3+len(p.ip):]...)
	return Outcome{Verdict: verdict, Frame: frame}
}

// withEnds is the IP packet with another segment, between others. Its checksums are as right, or wrong, as they were.
func (p *packet) withEnds(segment []byte, from, to netip.AddrPort, tos uint8) []byte {
	header := bytes.Clone(p.ip[:len(p.ip)-len(p.l4)])
	if p.fragment == nil || p.fragment.offset == 0 {
		putPorts(p, segment, from, to)
	}
	if p.v4 {
		header[1] = tos
		binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(segment)))
		copy(header[12:], from.Addr().AsSlice())
		copy(header[16:], to.Addr().AsSlice())
		binary.BigEndian.PutUint16(header[10:], rechecked(p.ip[:len(header)], header, 10))
	} else {
		header[0], header[1] = header[0]&0xf0|tos>>4, header[1]&0x0f|tos<<4
		binary.BigEndian.PutUint16(header[4:], uint16(len(header)-40+len(segment)))
		copy(header[8:], from.Addr().AsSlice())
		copy(header[24:], to.Addr().AsSlice())
	}
	return append(header, segment...)
}

// putPorts has a segment be between other ends than p.
func putPorts(p *packet, segment []byte, from, to netip.AddrPort) {
	binary.BigEndian.PutUint16(segment, from.Port())
	binary.BigEndian.PutUint16(segment[2:], to.Port())
	was := append(pseudo(p.from, p.to, len(p.l4)), p.l4...)
	is := append(pseudo(from.Addr(), to.Addr(), len(segment)), segment...)
	if at := checksumAt(p.protocol); p.protocol != protocolUDP || segment[at]|segment[at+1] != 0 {
		binary.BigEndian.PutUint16(segment[at:], rechecked(was, is, len(was)-len(p.l4)+at))
	}
}

// resetClient turns a segment of no session round.
func (o *Overlay) resetClient(v *vxlanSegment) Outcome {
	p := v.inner
	if p.flags&flagRST != 0 {
		return Outcome{Verdict: "drop_no_session"}
	}
	from, to, refused := wayOf(o, v.host, v.outer.to, v.via)
	if refused != "" {
		return Outcome{Verdict: refused}
	}
	if v.header != nil && len(p.ip)-len(p.l4) != fixedHeader(p.v4) {
		return Outcome{Verdict: "drop_rewrite"} // likewise
	}
	ip := p.reset(ecn(v.outer.tos, p.tos))
	frame := append(bytes.Clone(p.frame[6:12]), p.frame[:6]...)
	frame = append(frame, etherType(to.Is4())...)
	sent := o.inVXLAN(ip, p.v4, p.tos, from, to, v.mac, v.attachment)
	if v.via {
		answer.Sign(sent, o.Keys, fbt.Answer{VNI: v.attachment.VNI, Host: v.host, Client: p.flow.Source, VIP: p.flow.Destination, ClientMAC: v.mac})
	}
	return Outcome{Verdict: "reset_client", Frame: append(frame, sent...)}
}

// wayOf is from where and to where answers to a host's clients go, or why they go nowhere.
func wayOf(o *Overlay, host uint32, own netip.Addr, via bool) (from, to netip.Addr, refused string) {
	to, ok := o.tunnelOf(host, own)
	if from, refused = own, "drop_fbt_host"; via {
		from, to, ok = answer.Way(o.Own, []netip.Addr{o.Mux, o.Mux6}, o.Hosts[host])
		refused = "drop_no_mux"
	}
	if ok {
		refused = ""
	}
	return from, to, refused
}

// tunnelOf is the tunnel address of a host that is of the same family as another address.
func (o *Overlay) tunnelOf(host uint32, like netip.Addr) (netip.Addr, bool) {
	for _, a := range o.Hosts[host] {
		if a.Is4() == like.Is4() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// inVXLAN is an IP packet inside VXLAN. UDP has no checksum; its source port is left to the program.
func (o *Overlay) inVXLAN(ip []byte, v4 bool, tos uint8, from, to netip.Addr, mac [6]byte, a OverlayAttachment) []byte {
	udp := []byte{0, 0, 4789 >> 8, 4789 & 0xff}
	udp = binary.BigEndian.AppendUint16(udp, uint16(30+len(ip)))
	udp = append(udp, 0, 0, 8, 0, 0, 0)
	udp = binary.BigEndian.AppendUint32(udp, a.VNI<<8)
	udp = append(append(append(udp, mac[:]...), a.Gateway[:]...), etherType(v4)...)
	udp = append(udp, ip...)
	return append(inet.Header{Source: from, Destination: to, TOS: tos, Protocol: 17, Length: len(udp)}.Bytes(), udp...)
}

// reset is the packet that answers a segment of no connection (RFC 9293, section 3.10.7.1).
func (p *packet) reset(tos uint8) []byte {
	in := p.l4
	out := make([]byte, 20)
	copy(out, in[2:4])
	copy(out[2:], in[:2])
	out[12], out[13] = 5<<4, flagRST
	if p.flags&flagACK != 0 {
		copy(out[4:8], in[8:12])
	} else {
		length := uint32(len(in) - int(in[12]>>4)*4)
		length += uint32(p.flags&flagSYN)>>1 + uint32(p.flags&flagFIN)
		binary.BigEndian.PutUint32(out[8:], binary.BigEndian.Uint32(in[4:])+length)
		out[13] |= flagACK
	}
	from := netip.AddrPortFrom(p.to, p.flow.Destination.Port())
	ip := p.withEnds(out, from, p.flow.Source, tos)
	segment := ip[len(ip)-20:]
	segment[16], segment[17] = 0, 0
	binary.BigEndian.PutUint16(segment[16:], checksum(pseudo(p.to, p.from, 20), segment))
	return ip
}

// FromServer is a frame's way through the program at a workload's interface, or, of a server on the host itself, at the
// uplink's egress.
func (o *Overlay) FromServer(frame []byte, native bool) Outcome {
	p, verdict := parseIP(frame, 14, len(frame), binary.BigEndian.Uint16(frame[12:]))
	ethertype := binary.BigEndian.Uint16(frame[12:])
	switch {
	case ethertype == 0x8100, ethertype == 0x88a8, verdict == "pass_malformed":
		return Outcome{Verdict: "pass_other"}
	case verdict == "pass_not_ip", !o.Local4.Contains(p.to) && !o.Local6.Contains(p.to):
		return Outcome{Verdict: "pass_not_local"}
	case verdict == "" && p.isICMP() && holdsError(p):
		return o.errorFromServer(p)
	case verdict != "" && verdict != "pass_fragment", p.protocol != protocolTCP && p.protocol != protocolUDP,
		!isLater(p) && p.parseTransport() != "":
		return Outcome{Verdict: "drop_local_other"}
	}
	row := o.local().Row(p.to)
	s := o.Sessions[row]
	if s == nil || !o.isAnswer(p, row, s) {
		return o.resetServer(p, native)
	}
	switch {
	case s.UDP:
		s.NoteDatagram()
	case p.fragment == nil:
		s.NoteServer(inet.ReadSegment(p.l4))
	}
	return o.reply(p, s, native)
}

// reply is a server's packet on its way to the client of its session.
func (o *Overlay) reply(p *packet, s *hoststate.Session, native bool) Outcome {
	r, a, via := o.Rules[s.Rule], o.Attachments[s.Attachment], s.Via && p.fragment == nil
	from, to, refused := wayOf(o, s.Host, r.Tunnel, via)
	switch {
	case refused != "":
		return Outcome{Verdict: refused}
	case len(p.ip)+vxlanRoom(to) > o.MTU:
		out := tooBig(p, o.MTU-vxlanRoom(to), p.fragment == nil)
		if native && out.Frame != nil {
			out.Verdict = "answer_too_big_native"
		}
		return out
	}
	segment := bytes.Clone(p.l4)
	if !s.UDP && p.fragment == nil {
		clamp(segment, o.MTU-max(vxlanRoom(r.Tunnel), vxlanRoom(to))-fbtRoom-20-fixedHeader(p.v4))
	}
	ip := p.withEnds(segment, netip.AddrPortFrom(a.VIP, s.Port), s.Client, p.tos)
	return replyTo(o, p, ip, s, via, from, to)
}

// replyTo is an IP packet for the client of a session, on its way.
func replyTo(o *Overlay, p *packet, ip []byte, s *hoststate.Session, via bool, from, to netip.Addr) Outcome {
	a := o.Attachments[s.Attachment]
	out := append(bytes.Clone(p.frame[:12]), etherType(to.Is4())...)
	sent, verdict := o.inVXLAN(ip, p.v4, p.tos, from, to, s.MAC, a), "reply"
	if via {
		verdict = "reply_by_mux"
		vip := netip.AddrPortFrom(a.VIP, s.Port)
		answer.Sign(sent, o.Keys, fbt.Answer{VNI: a.VNI, Host: s.Host, Client: s.Client, VIP: vip, ClientMAC: s.MAC, UDP: s.UDP})
	}
	if s.UDP && !via && p.fragment == nil && p.protocol == protocolUDP {
		tellTicket(o, sent, s)
	}
	out = append(out, sent...)
	return Outcome{Verdict: verdict, Frame: append(out, p.frame[14+len(p.ip):]...)}
}

// isAnswer says whether a server's segment is of the session.
func (o *Overlay) isAnswer(p *packet, row uint32, s *hoststate.Session) bool {
	r, known := o.Rules[s.Rule]
	port := r.Backend.Port()
	if port == 0 {
		port = s.Port
	}
	return known && s.UDP == (p.protocol == protocolUDP) && o.Attachments[s.Attachment].VNI != 0 && p.to == o.Local(row, s) &&
		p.from == r.Backend.Addr() &&
		(isLater(p) || p.flow.Destination.Port() == s.Client.Port() && p.flow.Source.Port() == port)
}

func (o *Overlay) resetServer(p *packet, native bool) Outcome {
	if p.fragment != nil || p.protocol == protocolUDP || p.flags&flagRST != 0 {
		return Outcome{Verdict: "drop_no_session"}
	}
	frame := append(bytes.Clone(p.frame[6:12]), p.frame[:6]...)
	frame = append(append(frame, etherType(p.v4)...), p.reset(p.tos)...)
	if native {
		return Outcome{Verdict: "reset_server_native", Frame: frame}
	}
	return Outcome{Verdict: "reset_server", Frame: frame}
}
