package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
)

// networkPart is what a packet of a network is beside its flow.
type networkPart struct {
	next     uint8      // that the IP header says
	numbered bool       // TCP in one piece
	slot     model.Slot // of a later fragment: where the first one went
	forward  string     // the verdict, of what is no whole packet of TCP or UDP
}

// networkDatagram is a fragmented one of a network.
type networkDatagram struct {
	datagram
	vni uint32
}

// holdsError says whether ICMP is an error.
func holdsError(p *packet) bool {
	kinds := []byte{1, 2, 3, 4}
	if p.v4 {
		kinds = []byte{3, 11, 12}
	}
	return len(p.l4) >= 8 && slices.Contains(kinds, p.l4[0])
}

// read finds the flow of a packet: of a fragment its datagram's, of an ICMP error that of what it is about.
func (n *Network) read(p *packet, vni uint32, part *networkPart) (refused string) {
	if n.datagrams == nil {
		n.datagrams = map[networkDatagram]told{}
	}
	if p.isICMP() {
		if !isHost(p.from) {
			return "drop_martian"
		}
		q, _ := quote(p.l4[8:], p.v4)
		if q == nil || q.isICMP() || q.from != p.to {
			return "drop_inner_other"
		}
		part.forward, p.from = "forward_icmp", q.to
		p.flow = model.Flow{Protocol: q.flow.Protocol, Source: q.flow.Destination, Destination: q.flow.Source}
		return ""
	}
	if p.fragment != nil {
		part.forward = "forward_fragment"
	}
	if p.fragment != nil && p.fragment.offset != 0 {
		first, came := n.datagrams[networkDatagram{p.datagram(), vni}]
		if !came {
			return "drop_fragment_early"
		}
		part.slot = first.slot
		p.flow = model.Flow{
			Protocol: first.flow.Protocol, Source: netip.AddrPortFrom(p.from, first.flow.Source.Port()),
			Destination: netip.AddrPortFrom(p.to, first.flow.Destination.Port()),
		}
		return ""
	}
	if p.parseTransport() != "" {
		return "drop_vxlan"
	}
	part.numbered = p.fragment == nil && p.protocol == protocolTCP
	return ""
}

// toHost is what a packet of a network gets on its way to a backend's host.
type toHost struct {
	key            fbt.Key
	source, tunnel netip.Addr
	says           fbt.Content
}

// wrap is the packet in VXLAN, with an FBT if that has room, else with a bypass header.
func (h toHost) wrap(hash uint64, tos uint8, p *packet, part networkPart) []byte {
	of := fbt.Segment{Outer: h.tunnel, Client: p.flow.Source, VIP: p.flow.Destination}
	if part.numbered {
		of.Seq = binary.BigEndian.Uint32(p.l4[4:])
	}
	ethernet := p.frame[p.l3-14 : p.l3]
	if !part.numbered || part.next != protocolTCP || int(p.l4[12]>>4)*4+fbt.Length > 60 {
		inside := slices.Concat(ethernet, withHeader(p, fbt.EncodeHeader(h.key, part.next, of, h.says)))
		return vxlanAgain(hash, tos, p.flow, inside, h.source, h.tunnel, false)
	}
	segment, _ := fbt.Insert(p.l4, fbt.Encode(h.key, of, h.says))
	inside := slices.Concat(ethernet, p.withEnds(segment, p.flow.Source, p.flow.Destination, p.tos))
	return vxlanAgain(hash, tos, p.flow, inside, h.source, h.tunnel, true)
}
