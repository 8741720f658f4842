package pkt

import (
	"fmt"
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

const echoID, echoSeq = 7, 1

// Frame serialises p with right lengths and checksums. It panics on what can't be serialised,
// which is a mistake in the test.
func (p Packet) Frame() []byte {
	stack := p.ethernet()
	if p.Outer != nil {
		stack = append(stack, p.Outer.layers(innerProtocol(p.IP))...)
	}
	stack = append(stack, p.IP.layers(p.Protocol)...)
	stack = append(stack, p.transport()...)
	stack = append(stack, gopacket.Payload(p.Payload))

	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, stack...); err != nil {
		panic(fmt.Sprintf("serialise packet: %v", err))
	}
	frame := append([]byte(nil), buffer.Bytes()[:p.frameLen(buffer.Bytes())]...)
	return append(frame, make([]byte, p.Padding)...)
}

// frameLen is the length of the frame without the padding to 60 bytes that gopacket appends.
func (p Packet) frameLen(frame []byte) int {
	l3 := p.L3()
	if frame[l3]>>4 == 4 {
		return l3 + int(frame[l3+2])<<8 + int(frame[l3+3])
	}
	return l3 + 40 + int(frame[l3+4])<<8 + int(frame[l3+5])
}

func (p Packet) ethernet() []gopacket.SerializableLayer {
	outermost := p.IP
	if p.Outer != nil {
		outermost = *p.Outer
	}
	innermost := layers.EthernetTypeIPv6
	if outermost.Is4() {
		innermost = layers.EthernetTypeIPv4
	}
	types := []layers.EthernetType{innermost}
	for i := range p.VLANs {
		tag := layers.EthernetTypeDot1Q
		if i == 1 {
			tag = layers.EthernetTypeQinQ
		}
		types = append([]layers.EthernetType{tag}, types...)
	}
	stack := []gopacket.SerializableLayer{&layers.Ethernet{
		SrcMAC: p.Source[:], DstMAC: p.Destination[:], EthernetType: types[0],
	}}
	for i, id := range p.VLANs {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: id, Type: types[i+1]})
	}
	return stack
}

func innerProtocol(inner IP) layers.IPProtocol {
	if inner.Is4() {
		return layers.IPProtocolIPv4
	}
	return layers.IPProtocolIPv6
}

func (ip IP) layers(next layers.IPProtocol) []gopacket.SerializableLayer {
	if ip.Is4() {
		return []gopacket.SerializableLayer{ip.v4(next)}
	}
	header := &layers.IPv6{
		Version: 6, TrafficClass: ip.TOS, HopLimit: ip.TTL, NextHeader: next,
		SrcIP: ip.Source.AsSlice(), DstIP: ip.Destination.AsSlice(),
	}
	if !ip.IsFragment() {
		return []gopacket.SerializableLayer{header}
	}
	header.NextHeader = layers.IPProtocolIPv6Fragment
	return []gopacket.SerializableLayer{header, &layers.IPv6Fragment{
		NextHeader: next, FragmentOffset: ip.FragmentOffset,
		MoreFragments: ip.MoreFragments, Identification: uint32(ip.ID),
	}}
}

func (ip IP) v4(next layers.IPProtocol) *layers.IPv4 {
	header := &layers.IPv4{
		Version: 4, TOS: ip.TOS, TTL: ip.TTL, Id: ip.ID, Protocol: next,
		FragOffset: ip.FragmentOffset,
		SrcIP:      net.IP(ip.Source.AsSlice()), DstIP: net.IP(ip.Destination.AsSlice()),
	}
	if ip.DontFragment {
		header.Flags |= layers.IPv4DontFragment
	}
	if ip.MoreFragments {
		header.Flags |= layers.IPv4MoreFragments
	}
	for _, option := range ip.Options {
		header.Options = append(header.Options, layers.IPv4Option{OptionType: option, OptionLength: 1})
	}
	return header
}

// transport is the layers between the inner IP header and the payload: none in a later fragment.
func (p Packet) transport() []gopacket.SerializableLayer {
	if p.IP.FragmentOffset != 0 {
		return nil
	}
	var network gopacket.NetworkLayer
	if p.IP.Is4() {
		network = p.IP.v4(p.Protocol)
	} else {
		network = p.IP.layers(p.Protocol)[0].(*layers.IPv6)
	}
	switch p.Protocol {
	case layers.IPProtocolTCP:
		tcp := p.tcp()
		_ = tcp.SetNetworkLayerForChecksum(network)
		return []gopacket.SerializableLayer{tcp}
	case layers.IPProtocolUDP:
		udp := &layers.UDP{
			SrcPort: layers.UDPPort(p.SourcePort), DstPort: layers.UDPPort(p.DestinationPort),
		}
		_ = udp.SetNetworkLayerForChecksum(network)
		return []gopacket.SerializableLayer{udp}
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{&layers.ICMPv4{
			TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0),
			Id:       echoID, Seq: echoSeq,
		}}
	case layers.IPProtocolICMPv6:
		icmp := &layers.ICMPv6{
			TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0),
		}
		_ = icmp.SetNetworkLayerForChecksum(network)
		return []gopacket.SerializableLayer{icmp, &layers.ICMPv6Echo{Identifier: echoID, SeqNumber: echoSeq}}
	}
	return nil
}

func (p Packet) tcp() *layers.TCP {
	return &layers.TCP{
		SrcPort: layers.TCPPort(p.SourcePort), DstPort: layers.TCPPort(p.DestinationPort),
		Seq: p.Seq, Ack: p.Ack, Window: 65535, Options: p.Options,
		FIN: p.Flags&FIN != 0, SYN: p.Flags&SYN != 0, RST: p.Flags&RST != 0,
		PSH: p.Flags&PSH != 0, ACK: p.Flags&ACK != 0, URG: p.Flags&URG != 0,
		ECE: p.Flags&ECE != 0, CWR: p.Flags&CWR != 0,
	}
}
