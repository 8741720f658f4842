package oracle

import (
	"bytes"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/flowstate"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
	"github.com/weirlb/weir/internal/testkit/oracle/natstate"
)

// NAT is full NAT in a mux.
type NAT struct {
	natstate.Table

	Attached map[NetworkVIP][6]byte           // from where the network's frames come
	Backends map[natstate.Slot]netip.AddrPort // port 0: the VIP's
	Hosts    map[uint32][]netip.Addr          // of clients, by number; one of a family
}

// takes says whether a packet to a VIP of a network has full NAT, or would if it were TCP: of a session, or a SYN.
func (n *NAT) takes(p *packet, part networkPart) bool {
	if n == nil {
		return false
	}
	_, ok := n.Attached[NetworkVIP{p.flow.VNI, p.to}]
	key := natstate.Key{VNI: p.flow.VNI, Client: p.flow.Source, VIP: p.flow.Destination}
	return ok && (!part.numbered || n.Of(key) != nil || inet.ReadSegment(p.l4).Opens())
}

// forward sends a client's segment to the backend of its session.
func (n *NAT) forward(m *Mux, outer, p *packet, part networkPart, e *flowstate.Endpoint, service netip.Addr, host uint32) Outcome {
	switch {
	case !part.numbered || len(p.ip)-len(p.l4) != fixedHeader(p.v4):
		return Outcome{Verdict: "drop_inner_other"}
	case len(p.ip) > m.MTU:
		return Outcome{Verdict: "drop_merged"}
	}
	fresh := natstate.Session{Key: natstate.Key{VNI: p.flow.VNI, Client: p.flow.Source, VIP: p.flow.Destination}, At: natstate.At{Host: host, Over6: !outer.v4}, ClientMAC: [6]byte(p.frame[p.l3-8 : p.l3-2])}
	s, verdict := n.Open(m.keyedHash(p.flow), fresh, inet.ReadSegment(p.l4), func() (b netip.AddrPort) {
		slot, _ := e.Bucket(m.HashKey, p.flow)
		if b = n.Backends[natstate.Slot{Service: service, Port: e.Key.Port, Slot: slot}]; e.At(slot) == nil {
			return netip.AddrPort{}
		} else if b.Port() == 0 {
			return netip.AddrPortFrom(b.Addr(), p.flow.Destination.Port())
		}
		return b
	})
	if verdict != "" {
		return Outcome{Verdict: verdict}
	}
	hop, resolved := m.Hops[s.Backend.Addr()]
	_, has := n.Prefix(p.v4)
	switch {
	case !resolved || !hop.Resolved():
		return Outcome{Verdict: "drop_no_next_hop"}
	case !has:
		return Outcome{Verdict: "drop_no_source"}
	case outer.tos&3 == 3 && p.tos&3 == 0:
		return Outcome{Verdict: "drop_ecn"}
	}
	ip := translated(m, p, n.AddressOf(s), s.Backend, ecn(outer.tos, p.tos), s.Over6)
	out := append(outer.ethernet(hop, !p.v4), ip...)
	return Outcome{Verdict: "forward_nat", Frame: append(out, outer.frame[p.l3+len(p.ip):]...)}
}

// reply sends a backend's segment to the client's host.
func (n *NAT) reply(m *Mux, p *packet) Outcome {
	if p.fragment != nil || p.protocol != protocolTCP || len(p.ip)-len(p.l4) != fixedHeader(p.v4) {
		return Outcome{Verdict: "drop_nat_other"}
	}
	s := n.Find(p.flow.Destination)
	if s == nil {
		return Outcome{Verdict: "drop_no_session"}
	}
	if p.flow.Source != s.Backend {
		return Outcome{Verdict: "drop_nat_source"}
	}
	tunnel, source := natstate.OfFamily(n.Hosts[s.Host], s.Over6), natstate.OfFamily(m.Network.Addresses, s.Over6)
	hop, resolved := m.Hops[tunnel]
	switch {
	case !resolved || !hop.Resolved():
		return Outcome{Verdict: "drop_no_next_hop"}
	case !source.IsValid():
		return Outcome{Verdict: "drop_no_source"}
	case len(p.ip) > m.MTU:
		return Outcome{Verdict: "drop_merged"}
	case len(p.ip)+vxlanRoom(tunnel) > m.MTU && p.v4 && !p.df:
		return Outcome{Verdict: "drop_nat_other"}
	case len(p.ip)+vxlanRoom(tunnel) > m.MTU:
		return tooBigBy(m.MTU, p, 70)
	}
	s.NoteServer(inet.ReadSegment(p.l4))
	mac := n.Attached[NetworkVIP{s.VNI, s.VIP.Addr()}]
	inside := append(append(bytes.Clone(s.ClientMAC[:]), mac[:]...), etherType(p.v4)...)
	inside = append(inside, translated(m, p, s.VIP, s.Client, p.tos, s.Over6)...)
	flow := model.Flow{Protocol: model.TCP, Source: s.VIP, Destination: s.Client, VNI: s.VNI}
	out := p.ethernet(hop, s.Over6)
	out = append(out, vxlanAgain(uint64(s.Row+1)*0x9e3779b97f4a7c15, p.tos, flow, inside, source, tunnel, true)...)
	return Outcome{Verdict: "reply_nat", Frame: append(out, p.frame[p.l3+len(p.ip):]...)}
}

// translated is the packet between other ends; the MSS of a SYN fits in VXLAN between the mux and the client's host.
func translated(m *Mux, p *packet, from, to netip.AddrPort, tos uint8, over6 bool) []byte {
	segment, overhead := bytes.Clone(p.l4), 20+30
	if over6 {
		overhead += 20
	}
	clamp(segment, m.MTU-overhead-fixedHeader(p.v4)-20)
	return p.withEnds(segment, from, to, tos)
}
