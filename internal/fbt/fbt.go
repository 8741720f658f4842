// Package fbt is the Fast Bypass TCP option as muxes insert it and servers' hosts check it: the twin of bpf/net/fbt.h,
// used to test what both do, and to derive the keys of both. bpf/abi/shared/fbt.h tells what the option holds.
//
// Pure: no I/O, no clock, no state.
package fbt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/dchest/siphash"
)

// The option's form; see enum fbt_format.
const (
	Kind    = 253
	Length  = 16
	exID    = 0x5752
	version = 1

	flagNumber = 0x10
	flagVia    = 0x20
	keyShift   = 6
	macOffset  = 12
)

// Content is what an option says of the client.
type Content struct {
	VNI    uint32
	Host   netip.Addr // tunnel address of the client's host, IPv4; not valid: Number says it
	Number uint32     // of the client's host in the cluster
	Via    bool       // the client's host has no agent
}

// Segment is what the MAC is of, beside the option.
type Segment struct {
	Outer       netip.Addr // destination of the VXLAN packet: a tunnel of the server's host
	Client, VIP netip.AddrPort
	Seq         uint32
}

// Why an option is refused.
var (
	ErrNone   = errors.New("no option of ours")
	ErrKey    = errors.New("of a key that is not valid any more")
	ErrForged = errors.New("forged")
)

// Encode returns the option of a segment under a key of the host that receives it.
func Encode(key Key, s Segment, c Content) (option [Length]byte) {
	option[0], option[1] = Kind, Length
	binary.BigEndian.PutUint16(option[2:], exID)
	option[4], option[5], option[6] = byte(c.VNI>>16), byte(c.VNI>>8), byte(c.VNI)
	option[7] = version | byte(key.ID)<<keyShift
	if c.Via {
		option[7] |= flagVia
	}
	if c.Host.IsValid() {
		host := c.Host.As4()
		copy(option[8:], host[:])
	} else {
		option[7] |= flagNumber
		binary.BigEndian.PutUint32(option[8:], c.Number)
	}
	binary.LittleEndian.PutUint32(option[macOffset:], mac(key, option, s))
	return option
}

// Decode reads an option, whoever wrote it.
func Decode(option [Length]byte) (Content, error) {
	if option[0] != Kind || option[1] != Length || binary.BigEndian.Uint16(option[2:]) != exID ||
		option[7]&0x0f != version {
		return Content{}, ErrNone
	}
	c := Content{
		VNI: uint32(option[4])<<16 | uint32(option[5])<<8 | uint32(option[6]),
		Via: option[7]&flagVia != 0,
	}
	if option[7]&flagNumber != 0 {
		c.Number = binary.BigEndian.Uint32(option[8:])
	} else {
		c.Host = netip.AddrFrom4([4]byte(option[8:]))
	}
	return c, nil
}

// Check reads an option that one of keys made for the segment.
func Check(keys []Key, s Segment, option [Length]byte) (Content, error) {
	c, err := Decode(option)
	if err != nil {
		return Content{}, err
	}
	if err := checkMAC(keys, s, option); err != nil {
		return Content{}, err
	}
	return c, nil
}

func checkMAC(keys []Key, s Segment, option [Length]byte) error {
	for _, key := range keys {
		if key.ID == 0 || byte(key.ID)<<keyShift != option[7]&(3<<keyShift) {
			continue
		}
		if mac(key, option, s) != binary.LittleEndian.Uint32(option[macOffset:]) {
			return ErrForged
		}
		return nil
	}
	return ErrKey
}

// mac is the low half of SipHash-2-4: see fbt_mac() in C.
func mac(key Key, option [Length]byte, s Segment) uint32 {
	b := append([]byte(nil), option[:macOffset]...)
	b = binary.BigEndian.AppendUint32(b, s.Seq)
	b = binary.BigEndian.AppendUint16(b, s.Client.Port())
	b = binary.BigEndian.AppendUint16(b, s.VIP.Port())
	if s.Outer.Is4() {
		b = append(b, s.Outer.AsSlice()...)
	} else {
		b = append(append(b, 0, 0, 0, 0), s.Outer.AsSlice()...)
	}
	b = append(b, s.Client.Addr().AsSlice()...)
	b = append(b, s.VIP.Addr().AsSlice()...)
	k0, k1 := binary.LittleEndian.Uint64(key.Secret[:8]), binary.LittleEndian.Uint64(key.Secret[8:])
	return uint32(siphash.Hash(k0, k1, b))
}

// headerMost is the length of the largest TCP header.
const headerMost = 60

// Insert puts the option before all others of a TCP segment; its checksum is the caller's to compute. It fails when the
// header has no room.
func Insert(segment []byte, option [Length]byte) ([]byte, error) {
	header, err := headerLength(segment)
	if err != nil {
		return nil, err
	}
	if header+Length > headerMost {
		return nil, fmt.Errorf("insert option: the TCP header has %d bytes of options", header-fixed)
	}
	with := append(append(append([]byte(nil), segment[:fixed]...), option[:]...), segment[fixed:]...)
	with[12] += Length / 4 << 4
	return with, nil
}

// Find returns the option if it is the segment's first one: later ones are the client's own.
func Find(segment []byte) (option [Length]byte, found bool) {
	header, err := headerLength(segment)
	if err != nil || header < fixed+Length {
		return option, false
	}
	option = [Length]byte(segment[fixed:])
	_, err = Decode(option)
	return option, err == nil
}

// Strip removes the option that Find has found; the checksum is the caller's to compute.
func Strip(segment []byte) []byte {
	without := append(append([]byte(nil), segment[:fixed]...), segment[fixed+Length:]...)
	without[12] -= Length / 4 << 4
	return without
}

// fixed is the length of a TCP header without options.
const fixed = 20

func headerLength(segment []byte) (int, error) {
	if len(segment) < fixed {
		return 0, fmt.Errorf("read TCP header: %d bytes", len(segment))
	}
	header := int(segment[12]>>4) * 4
	if header < fixed || header > len(segment) {
		return 0, fmt.Errorf("read TCP header: it says that it has %d bytes", header)
	}
	return header, nil
}
