package oracle

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// isSNAT says whether workloads leave as the address.
func (m *Mux) isSNAT(a netip.Addr) bool {
	for _, s := range m.SNAT {
		if s.Key.VIP == a {
			return true
		}
	}
	return false
}

// snat sends the packet, which is for a VIP with source NAT and no endpoint, to who has the port that
// its flow is to.
func (m *Mux) snat(p *packet, w *weir, verdict string) Outcome {
	for _, s := range m.SNAT {
		if s.Key.VIP != p.flow.Destination.Addr() {
			continue
		}
		for _, r := range s.Ranges {
			if p.flow.Destination.Port()/8 != uint16(r) {
				continue
			}
			out := m.send(p, s.Tunnel, w, verdict)
			if out.Verdict == "drop_too_big" && verdict == "forward_snat" {
				return m.tooBig(p, p.isICMP() || s.Tunnel.Is6())
			}
			return out
		}
	}
	return Outcome{Verdict: "drop_no_range"}
}

func (p *packet) isICMP() bool {
	return p.v4 && p.protocol == protocolICMP || !p.v4 && p.protocol == protocolICMPv6
}

func (p *packet) isEchoReply() bool {
	return p.v4 && p.l4[0] == 0 || !p.v4 && p.l4[0] == 129
}

// parseFirst reads the transport header in the first fragment.
func (p *packet) parseFirst() string {
	switch {
	case !p.isICMP():
		return p.parseTransport()
	case len(p.l4) < 8:
		return "pass_malformed"
	case !p.isEchoReply():
		return "pass_fragment"
	}
	p.readEcho()
	return ""
}

// readEcho has the identifier of an echo reply as the port that it is to.
func (p *packet) readEcho() {
	p.flow = model.Flow{
		Protocol: model.Protocol(p.protocol), Source: netip.AddrPortFrom(p.from, 0),
		Destination: netip.AddrPortFrom(p.to, binary.BigEndian.Uint16(p.l4[4:])),
	}
}

// echoReply counts as a packet to the port of its identifier, from none.
func (m *Mux) echoReply(p *packet) Outcome {
	p.readEcho()
	return m.snat(p, nil, "forward_snat")
}
