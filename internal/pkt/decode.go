package pkt

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Decode reads a frame and refuses one that is truncated or has a wrong length or checksum.
func Decode(frame []byte) (Packet, error) {
	decoded := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	if failure := decoded.ErrorLayer(); failure != nil {
		return Packet{}, fmt.Errorf("decode frame: %w", failure.Error())
	}
	if decoded.Metadata().Truncated {
		return Packet{}, errors.New("decode frame: truncated")
	}
	p, length, err := collect(decoded.Layers())
	if err != nil {
		return Packet{}, fmt.Errorf("decode frame: %w", err)
	}
	p.Padding = len(frame) - length
	if p.Padding < 0 {
		return Packet{}, fmt.Errorf("decode frame: says %d bytes, has %d", length, len(frame))
	}
	if p.IP.IsFragment() { // its transport checksum spans the other fragments
		return p, nil
	}
	err, mismatches := decoded.VerifyChecksums()
	if err != nil {
		return Packet{}, fmt.Errorf("decode frame: verify checksums: %w", err)
	}
	if len(mismatches) != 0 {
		return Packet{}, fmt.Errorf("decode frame: wrong checksum of %v: is %#x, must be %#x",
			mismatches[0].Layer.LayerType(), mismatches[0].Actual, mismatches[0].Correct)
	}
	return p, nil
}

// collect turns the layers into a Packet and the length that its outermost IP header claims.
func collect(stack []gopacket.Layer) (p Packet, length int, err error) {
	var headers []IP
	var network gopacket.NetworkLayer
	add := func(ip IP, bytes int) {
		if len(headers) == 0 {
			length = p.L3() + bytes
		}
		headers = append(headers, ip)
	}
	for _, layer := range stack {
		switch l := layer.(type) {
		case *layers.Ethernet:
			p.Source, p.Destination = MAC(l.SrcMAC), MAC(l.DstMAC)
		case *layers.Dot1Q:
			p.VLANs = append(p.VLANs, l.VLANIdentifier)
		case *layers.IPv4:
			network, p.Protocol, p.Payload = l, l.Protocol, l.Payload
			add(fromV4(l), int(l.Length))
		case *layers.IPv6:
			network, p.Protocol, p.Payload = l, l.NextHeader, l.Payload
			add(IP{
				Source: address(l.SrcIP), Destination: address(l.DstIP),
				TOS: l.TrafficClass, TTL: l.HopLimit,
			}, 40+int(l.Length))
		case *layers.IPv6Fragment:
			ip := &headers[len(headers)-1]
			ip.FragmentOffset, ip.MoreFragments = l.FragmentOffset, l.MoreFragments
			ip.ID = uint16(l.Identification)
			p.Protocol, p.Payload = l.NextHeader, l.Payload
		case *layers.TCP:
			_ = l.SetNetworkLayerForChecksum(network)
			p.fromTCP(l)
		case *layers.UDP:
			_ = l.SetNetworkLayerForChecksum(network)
			p.SourcePort, p.DestinationPort = uint16(l.SrcPort), uint16(l.DstPort)
			p.Payload = l.Payload
		case *layers.ICMPv4:
			p.Payload = l.Payload
		case *layers.ICMPv6:
			_ = l.SetNetworkLayerForChecksum(network)
		case *layers.ICMPv6Echo:
			p.Payload = l.Payload
		}
	}
	switch len(headers) {
	case 1:
		p.IP = headers[0]
	case 2:
		p.Outer, p.IP = &headers[0], headers[1]
	default:
		return p, 0, fmt.Errorf("has %d IP headers", len(headers))
	}
	p.Payload = slices.Clone(p.Payload)
	return p, length, nil
}

func fromV4(l *layers.IPv4) IP {
	ip := IP{
		Source: address(l.SrcIP), Destination: address(l.DstIP),
		TOS: l.TOS, TTL: l.TTL, ID: l.Id, FragmentOffset: l.FragOffset,
		DontFragment:  l.Flags&layers.IPv4DontFragment != 0,
		MoreFragments: l.Flags&layers.IPv4MoreFragments != 0,
	}
	if len(l.Contents) > 20 {
		ip.Options = slices.Clone(l.Contents[20:])
	}
	return ip
}

func (p *Packet) fromTCP(l *layers.TCP) {
	p.SourcePort, p.DestinationPort = uint16(l.SrcPort), uint16(l.DstPort)
	p.Seq, p.Ack, p.Payload = l.Seq, l.Ack, l.Payload
	p.Flags = Flags(l.Contents[13])
	for _, option := range l.Options {
		if option.OptionType == layers.TCPOptionKindNop || option.OptionType == layers.TCPOptionKindEndList {
			continue
		}
		p.Options = append(p.Options, option)
	}
}

func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a
}
