package oracle

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// datagram is what its fragments have in common (RFC 791, RFC 8200).
type datagram struct {
	from, to netip.Addr
	protocol uint8
	id       [4]byte
}

// told is what the first fragment told of its datagram.
type told struct {
	flow           model.Flow
	slot, previous model.Slot
}

func (p *packet) datagram() datagram {
	return datagram{from: p.from, to: p.to, protocol: p.protocol, id: p.fragment.id}
}

// fragment came from outside.
func (m *Mux) fragment(p *packet) Outcome {
	if !m.takesFragment(p) {
		return Outcome{Verdict: "pass_fragment"}
	}
	if m.isMartian(p.from, p.to) {
		return Outcome{Verdict: "drop_martian"}
	}
	if len(p.ip)+room6 > m.MTU { // nobody knows yet what tunnel it takes
		return m.tooBig(p, true)
	}
	if _, known := m.datagrams[p.datagram()]; !known {
		hash := m.commonHash(p)
		if owner := m.Members.Owner(m.Self, hash); owner.Name != m.Self {
			if out := m.relay(p, owner, hash); out.Verdict != "" {
				return out
			}
		}
	}
	return m.forwardFragment(p)
}

func (m *Mux) takesFragment(p *packet) bool {
	if p.isICMP() { // answers to pings that workloads sent
		return m.isSNAT(p.to)
	}
	known, _ := m.vip(p.to)
	return known && (p.protocol == protocolTCP || p.protocol == protocolUDP)
}

// commonHash is the keyed hash of what all fragments of the datagram have: the id for the ports.
func (m *Mux) commonHash(p *packet) uint64 {
	id := p.fragment.id
	return m.keyedHash(model.Flow{
		Protocol:    model.Protocol(p.protocol),
		Source:      netip.AddrPortFrom(p.from, binary.BigEndian.Uint16(id[:])),
		Destination: netip.AddrPortFrom(p.to, binary.BigEndian.Uint16(id[2:])),
	})
}

// relay hands the packet to another mux, by IPv4 if that can be. There may be no way: no verdict.
func (m *Mux) relay(p *packet, to model.PoolMember, hash uint64) Outcome {
	for _, v4 := range []bool{true, false} {
		source, destination := m.Members.Address(m.Self, v4), m.Members.Address(to.Name, v4)
		hop := m.Hops[destination]
		if !source.IsValid() || !destination.IsValid() || !hop.Resolved() {
			continue
		}
		outer := p.outer(source, destination, hash, true, &weir{kind: gueKindRelay})
		return Outcome{Verdict: "relay_fragment", Frame: p.behind(hop, outer)}
	}
	return Outcome{}
}

// forwardFragment sends a fragment of ours to the backend of its datagram.
func (m *Mux) forwardFragment(p *packet) Outcome {
	if m.isMartian(p.from, p.to) {
		return Outcome{Verdict: "drop_martian"}
	}
	if p.fragment.offset == 0 {
		if verdict := p.parseFirst(); verdict != "" {
			return Outcome{Verdict: verdict}
		}
		if out, ends := m.firstFragment(p); ends {
			return out
		}
	}
	t, known := m.datagrams[p.datagram()]
	if !known {
		return Outcome{Verdict: "punt_fragment", Frame: p.frame, L3: p.l3}
	}
	p.flow = t.flow
	e := m.endpointOf(p.flow) // that of the first fragment: the tables stay
	if e != nil && !e.Takes(p.from, nil) {
		return Outcome{Verdict: "drop_acl"}
	}
	w := &weir{
		kind:  gueKindFragment,
		ports: [2]uint16{p.flow.Source.Port(), p.flow.Destination.Port()},
	}
	if e == nil {
		return m.snat(p, w, "forward_fragment")
	}
	if b := e.Alive(t.previous); b != nil {
		w.ask = b.Tunnel
	}
	return m.send(p, e.At(t.slot).Tunnel, w, "forward_fragment")
}

// firstFragment notes what the first fragment tells, unless it ends here.
func (m *Mux) firstFragment(p *packet) (out Outcome, ends bool) {
	t := told{flow: p.flow}
	switch e := m.endpointOf(p.flow); {
	case e == nil && !m.isSNAT(p.to):
		return Outcome{Verdict: "pass_fragment"}, true
	case e == nil:
		if out := m.snat(p, nil, ""); out.Verdict == "drop_no_range" {
			return out, true
		}
	case !e.Takes(p.from, nil): // which is remembered, too
	default:
		c := m.choose(e, p)
		if c.Backend == nil {
			return Outcome{Verdict: "drop_no_backend"}, true
		}
		if c.Seen != nil {
			c.Seen("") // all that is told is that it is a fragment
		}
		t.slot = c.Backend.Slot
		if c.Previous != nil {
			t.previous = c.Previous.Slot
		}
	}
	if m.datagrams == nil {
		m.datagrams = map[datagram]told{}
	}
	m.datagrams[p.datagram()] = t
	return Outcome{}, false
}

// relayed is TCP or UDP for no endpoint: a fragment that another mux relays, or nothing of ours.
func (m *Mux) relayed(p *packet) Outcome {
	pass := Outcome{Verdict: "pass_no_endpoint"}
	const head = 8 + 4 + 8 // UDP, GUE, and what Weir says, without an address
	if p.flow.Protocol != model.UDP || p.flow.Destination.Port() != 6080 || len(p.l4) < head ||
		p.to != m.Members.Address(m.Self, p.v4) {
		return pass
	}
	gue, says := p.l4[8:12], p.l4[12:20]
	if gue[0] != 2 || gue[2] != 0 || gue[3] != 0 || says[0] != 1 || says[1] != 0 || says[2] != gueKindRelay {
		return pass
	}
	if !m.Members.IsMember(p.from) {
		return Outcome{Verdict: "drop_not_a_mux"}
	}
	ethertype := map[byte]uint16{protocolIPv4: 0x0800, protocolIPv6: 0x86dd}[gue[1]]
	inner := bytes.Clone(p.frame[:p.l3-2])
	inner = binary.BigEndian.AppendUint16(inner, ethertype)
	q, verdict := parse(append(inner, p.frame[p.at()+head:]...))
	if verdict != "pass_fragment" || !m.takesFragment(q) {
		return Outcome{Verdict: "drop_relay_invalid"}
	}
	out := m.forwardFragment(q)
	if out.Verdict == "pass_malformed" || out.Verdict == "pass_fragment" {
		return Outcome{Verdict: "drop_relay_invalid"}
	}
	return out
}
