package oracle

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/answer"
)

// Network is a mux's side of load-balancer bypass (NGLB, section IV-A): what it is given of virtual networks.
type Network struct {
	Addresses []netip.Addr // that VXLAN comes to
	VIPs      map[NetworkVIP]netip.Addr
	Hosts     map[netip.Addr]NetworkHost
	Keys      map[uint32]fbt.Key // that make FBTs, by the number of the receiving host
	Answers   answer.Mux         // what it is given of answers that go by muxes
	NAT       *NAT               // nil: none

	datagrams map[networkDatagram]told // whose first fragment came
}

// NetworkVIP is an address of a virtual network.
type NetworkVIP struct {
	VNI uint32
	VIP netip.Addr
}

// NetworkHost is one of clients.
type NetworkHost struct {
	Number uint32
	Agent  bool
	VNIs   []uint32 // that it speaks for
}

const (
	vxlanPort  = 4789
	vxlanFront = 30 // UDP, VXLAN, Ethernet
	routeFlag  = 0x57
)

// isFor says whether a packet is VXLAN to the muxes.
func (n *Network) isFor(p *packet) bool {
	header := len(p.ip) - len(p.l4)
	plain := p.v4 || header == 40 // no VTEP sends extension headers
	return plain && slices.Contains(n.Addresses, p.to) && p.protocol == protocolUDP && p.flow.Destination.Port() == vxlanPort
}

// handle is a packet to a port that no endpoint has, if it is VXLAN to the muxes; false: it is not.
func (n *Network) handle(m *Mux, p *packet) (Outcome, bool) {
	if !n.isFor(p) {
		return Outcome{}, false
	}
	inner, vni, verdict := p.unwrap()
	if verdict != "" {
		return Outcome{Verdict: verdict}, true
	}
	if answer.Is(p.l4[8:]) {
		verdict, frame := n.Answers.Forward(p.frame, p.l3, p.at(), len(p.ip), m.MTU)
		return Outcome{Verdict: verdict, Frame: frame}, true
	}
	says, ok := n.sender(p, vni)
	if !ok {
		return Outcome{Verdict: "drop_not_a_vtep"}, true
	}
	next, verdict := inner.parseInner()
	service, attached := n.VIPs[NetworkVIP{vni, inner.to}]
	part := networkPart{next: next}
	switch {
	case verdict == "drop_vxlan":
	case !attached:
		verdict = "drop_no_attachment"
	case verdict == "" && inner.isICMP() && !holdsError(inner):
		_, answers := m.vip(service)
		return echoIn(p, inner, answers), true
	case verdict == "":
		verdict = n.read(inner, vni, &part)
	}
	if verdict == "" && (!isHost(inner.from) || inner.from == inner.to) {
		verdict = "drop_martian"
	}
	if verdict != "" {
		return Outcome{Verdict: verdict}, true
	}
	inner.flow.VNI = vni
	says.Via = n.Answers.IsVia(vni, inner.to, !says.Via)
	return n.bypass(m, p, inner, part, service, says), true
}

// unwrap is the frame inside VXLAN, not looked at.
func (p *packet) unwrap() (inner *packet, vni uint32, verdict string) {
	if len(p.l4) < vxlanFront {
		return nil, 0, "drop_vxlan"
	}
	length, h := int(binary.BigEndian.Uint16(p.l4[4:])), p.l4[8:16]
	plain := h[1]|h[2]|h[3] == 0 && (h[7] == 0 || h[7] == routeFlag)
	if length < vxlanFront || length > len(p.l4) || h[0] != 8 || !plain && !answer.Is(h) {
		return nil, 0, "drop_vxlan"
	}
	end := p.at() + length
	return &packet{frame: p.frame[:end], l3: p.at() + vxlanFront}, binary.BigEndian.Uint32(h[4:]) >> 8, ""
}

// parseInner reads the IP header inside VXLAN, which says what is next.
func (p *packet) parseInner() (next uint8, verdict string) {
	switch binary.BigEndian.Uint16(p.frame[p.l3-2:]) {
	case 0x0800:
		verdict = p.parse4()
		next = p.protocol
	case 0x86dd:
		if next, verdict = p.parse6Header(); verdict == "" {
			if verdict = p.skipExtensions(next); verdict == "pass_malformed" {
				return next, "drop_inner_other"
			}
		}
	default:
		return 0, "drop_vxlan"
	}
	switch {
	case verdict == "pass_malformed":
		return next, "drop_vxlan"
	case verdict == "" && p.isICMP():
		return next, ""
	case verdict != "" && verdict != "pass_fragment" || p.protocol != protocolTCP && p.protocol != protocolUDP:
		return next, "drop_inner_other"
	}
	return next, ""
}

// echoIn answers a ping in VXLAN in the frame that it came in: all ends change places, outside and inside. UDP's
// checksum, if there is one, is of what changes otherwise: the route flag, and a hop limit inside.
func echoIn(outer, p *packet, answers bool) Outcome {
	echo := byte(128)
	if p.v4 {
		echo = 8
	}
	if len(p.l4) < 8 || p.l4[0] != echo {
		return Outcome{Verdict: "drop_inner_other"}
	}
	if !answers || !isHost(p.from) {
		return Outcome{Verdict: "drop_echo"}
	}
	frame := append(p.echo(), outer.frame[len(p.frame):]...)
	copy(frame, outer.frame[6:12])
	copy(frame[6:], outer.frame[:6])
	copy(frame[p.l3-14:], p.frame[p.l3-8:p.l3-2])
	copy(frame[p.l3-8:], p.frame[p.l3-14:p.l3-8])
	turn(frame[outer.l3:], outer.v4)
	udp := frame[outer.at():]
	changed := [][2]uint16{{binary.BigEndian.Uint16(udp[14:]), uint16(udp[14]) << 8}}
	if !p.v4 {
		hop := binary.BigEndian.Uint16(p.frame[p.l3+6:])
		changed = append(changed, [2]uint16{hop, hop&0xff00 | answerTTL})
	}
	udp[15] = 0
	if sum := binary.BigEndian.Uint16(udp[6:]); sum != 0 {
		for _, word := range changed {
			sum = mended(sum, word[0], word[1])
		}
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(udp[6:], sum)
	}
	return Outcome{Verdict: "reply_echo", Frame: frame}
}

// sender is what the FBT says of the host that sent VXLAN; false: it is none of the network's.
func (n *Network) sender(p *packet, vni uint32) (fbt.Content, bool) {
	if h := n.Hosts[p.from]; slices.Contains(h.VNIs, vni) {
		return fbt.Content{VNI: vni, Number: h.Number, Via: !h.Agent || p.l4[15] != routeFlag}, true
	}
	return fbt.Content{}, false
}

// bypass sends a client's segment to a backend of the VIP, with an FBT.
func (n *Network) bypass(m *Mux, outer, p *packet, part networkPart, service netip.Addr, says fbt.Content) Outcome {
	at := p.flow
	at.Destination = netip.AddrPortFrom(service, at.Destination.Port())
	e := m.endpointOf(at)
	switch {
	case e == nil:
		return Outcome{Verdict: "drop_no_endpoint"}
	case !e.Takes(p.from, nil):
		return Outcome{Verdict: "drop_acl"}
	case n.NAT.takes(p, part):
		return n.NAT.forward(m, outer, p, part, e, service, says.Number)
	}
	slot, previous := e.Bucket(m.HashKey, p.flow)
	if part.slot != 0 {
		slot, previous = part.slot, part.slot
	}
	b := e.At(slot)
	if b == nil {
		return Outcome{Verdict: "drop_no_backend"}
	}
	verdict := "forward_bucket"
	if p.opens() {
		verdict = "forward_syn"
	}
	verdict = cmp.Or(part.forward, verdict)
	moves := p.flow.Protocol == model.TCP && !p.opens() && previous != slot && e.Alive(previous) != nil
	if p.fragment != nil && !moves {
		n.datagrams[networkDatagram{p.datagram(), p.flow.VNI}] = told{flow: p.flow, slot: slot}
	}
	to := toHost{tunnel: b.Tunnel, source: m.Source4, says: says}
	if b.Tunnel.Is6() {
		to.source = m.Source6
	}
	if moves {
		return Outcome{Verdict: "drop_bucket_moves"}
	}
	if verdict := n.refuses(m, outer, p, to); verdict != "" {
		return Outcome{Verdict: verdict}
	}
	var known bool
	if to.key, known = n.Keys[b.Host]; !known {
		return Outcome{Verdict: "drop_no_host_key"}
	}
	out := append(outer.ethernet(m.Hops[b.Tunnel], b.Tunnel.Is6()), to.wrap(m.keyedHash(p.flow), outer.tos, p, part)...)
	return Outcome{Verdict: verdict, Frame: append(out, outer.frame[p.l3+len(p.ip):]...)}
}

// refuses says why a packet can't be sent to a backend's host, if so.
func (*Network) refuses(m *Mux, outer, p *packet, to toHost) (verdict string) {
	hop, resolved := m.Hops[to.tunnel]
	length := vxlanRoom(to.tunnel) + len(p.ip) + fbt.Length
	switch {
	case !resolved || !hop.Resolved():
		return "drop_no_next_hop"
	case !to.source.IsValid():
		return "drop_no_source"
	case p.v4 && len(p.ip)-len(p.l4) != fixedHeader(true):
		return "drop_fbt_no_room"
	case length > m.MTU && len(outer.ip) > m.MTU:
		return "drop_merged"
	case length > m.MTU:
		return "drop_too_big"
	}
	return ""
}
