package pkt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gopacket/gopacket/layers"
)

// VXLAN is what carries a frame of a virtual network (RFC 7348).
type VXLAN struct {
	Source, Destination MAC // of the outer frame
	Outer               IP
	SourcePort          uint16
	VNI                 uint32
	Reserved            [4]byte // the three bytes before the VNI, and the one behind it
}

// VXLANPort is that of UDP.
const VXLANPort = 4789

// Route is the route flag: the last reserved byte of a packet to a mux.
const Route = 0x57

const vxlanValid, vxlanHeader = 0x08, 8

// Frame serialises p's frame inside v, without a UDP checksum.
func (v VXLAN) Frame(p Packet) []byte { return v.Carry(p.Frame()) }

// Carry puts any frame inside v.
func (v VXLAN) Carry(inner []byte) []byte {
	payload := []byte{vxlanValid, v.Reserved[0], v.Reserved[1], v.Reserved[2], 0, 0, 0, v.Reserved[3]}
	payload[4], payload[5], payload[6] = byte(v.VNI>>16), byte(v.VNI>>8), byte(v.VNI)
	outer := Packet{
		Source: v.Source, Destination: v.Destination, IP: v.Outer, Protocol: layers.IPProtocolUDP,
		SourcePort: v.SourcePort, DestinationPort: VXLANPort, Payload: append(payload, inner...),
	}
	frame := outer.Frame()
	copy(frame[outer.L4()+6:], []byte{0, 0})
	return frame
}

// DecodeVXLAN reads a frame in VXLAN and the packet inside. As Decode it refuses what is wrong in either.
func DecodeVXLAN(frame []byte) (VXLAN, Packet, error) {
	v, inner, err := OpenVXLAN(frame)
	if err != nil {
		return v, Packet{}, err
	}
	p, err := Decode(inner)
	if err != nil {
		return v, p, fmt.Errorf("inside VXLAN: %w", err)
	}
	return v, p, nil
}

// OpenVXLAN reads the headers of a frame in VXLAN and returns the frame inside, which it does not look at.
func OpenVXLAN(frame []byte) (v VXLAN, inner []byte, err error) {
	outer, err := Decode(anotherPort(frame))
	if err != nil {
		return v, nil, err
	}
	if outer.Protocol != layers.IPProtocolUDP || outer.DestinationPort != 0 || outer.Outer != nil {
		return v, nil, errors.New("decode frame: no VXLAN")
	}
	if len(outer.Payload) < vxlanHeader || outer.Payload[0] != vxlanValid {
		return v, nil, errors.New("decode frame: a VXLAN header without a VNI")
	}
	v = VXLAN{
		Source: outer.Source, Destination: outer.Destination, Outer: outer.IP, SourcePort: outer.SourcePort,
		VNI:      binary.BigEndian.Uint32(outer.Payload[4:]) >> 8,
		Reserved: [4]byte{outer.Payload[1], outer.Payload[2], outer.Payload[3], outer.Payload[7]},
	}
	return v, outer.Payload[vxlanHeader:], nil
}

// anotherPort is a frame of VXLAN's port with port 0 instead, so that what is inside is left as it is.
func anotherPort(frame []byte) []byte {
	frame = slices.Clone(frame)
	l4 := 14 + 40
	if len(frame) > 14 && frame[14]>>4 == 4 {
		l4 = 14 + int(frame[14]&0xf)*4
	}
	if len(frame) < l4+8 || binary.BigEndian.Uint16(frame[l4+2:]) != VXLANPort {
		return frame
	}
	binary.BigEndian.PutUint16(frame[l4+2:], 0)
	if check := uint32(binary.BigEndian.Uint16(frame[l4+6:])); check != 0 {
		check += VXLANPort
		binary.BigEndian.PutUint16(frame[l4+6:], uint16(check+check>>16))
	}
	return frame
}
