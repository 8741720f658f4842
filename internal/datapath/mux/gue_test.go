package mux

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// gueHeader is what stands before the inner packet.
type gueHeader struct {
	Source, Destination netip.Addr
	Length              int // that the outer IP header says
	TOS, TTL            uint8
	Port                uint16 // UDP source
	Protocol            uint8  // of the inner packet
	Step, Kind          uint8
	Other               netip.Addr
}

// parseGUE reads an IP packet in GUE by abi/shared/gue.h, not by the program's own offsets.
func parseGUE(t *testing.T, ip []byte) (h gueHeader, inner []byte) {
	t.Helper()
	switch ip[0] >> 4 {
	case 4:
		if checksum(ip[:20]) != 0xffff || ip[9] != 17 || ip[6] != 0x40 {
			t.Fatalf("outer IPv4 header is wrong: %x", ip[:20])
		}
		h.Source, _ = netip.AddrFromSlice(ip[12:16])
		h.Destination, _ = netip.AddrFromSlice(ip[16:20])
		h.TOS, h.TTL, h.Length = ip[1], ip[8], length(ip)
		ip = ip[20:]
	case 6:
		if ip[6] != 17 {
			t.Fatalf("outer IPv6 header is wrong: %x", ip[:40])
		}
		h.Source, _ = netip.AddrFromSlice(ip[8:24])
		h.Destination, _ = netip.AddrFromSlice(ip[24:40])
		h.TOS, h.TTL, h.Length = ip[0]<<4|ip[1]>>4, ip[7], length(ip)
		ip = ip[40:]
	}
	h.Port = binary.BigEndian.Uint16(ip)
	if got := binary.BigEndian.Uint16(ip[2:]); got != 6080 {
		t.Fatalf("destination port %d", got)
	}
	if got := binary.BigEndian.Uint16(ip[6:]); got != 0 {
		t.Fatalf("checksum %#x, want none", got)
	}
	udp := int(binary.BigEndian.Uint16(ip[4:]))
	ip = ip[8:]
	words := int(ip[0] & 0x1f)
	if ip[0]&^0x1f != 0 || ip[2] != 0 || ip[3] != 0 {
		t.Fatalf("GUE header is wrong: %x", ip[:4])
	}
	h.Protocol = ip[1]
	private := ip[4 : 4+4*words]
	inner = ip[4+4*words:]
	if want := 8 + 4 + 4*words + length(inner); udp != want {
		t.Fatalf("UDP says %d bytes, want %d", udp, want)
	}
	if words == 0 {
		return h, inner
	}
	if private[0] != 1 || !bytes.Equal(private[3:8], make([]byte, 5)) {
		t.Fatalf("Weir's header is wrong: %x", private)
	}
	h.Step, h.Kind = private[1], private[2]
	if len(private) > 8 {
		h.Other, _ = netip.AddrFromSlice(private[8:])
	}
	return h, inner
}

// checkGUE wants frame in GUE, and not a byte of it changed.
func checkGUE(t *testing.T, c packetCase, frame, out []byte) {
	t.Helper()
	l3 := c.packet.L3()
	if !bytes.Equal(out[12:l3-2], frame[12:l3-2]) {
		t.Errorf("VLAN tags were changed: %x", out[:l3])
	}
	if !bytes.Equal(out[:6], testHop.Destination[:]) || !bytes.Equal(out[6:12], testHop.Source[:]) {
		t.Errorf("addresses of Ethernet are %x", out[:12])
	}
	got, inner := parseGUE(t, out[l3:])
	want := gueHeader{
		Source: source4, Destination: netip.MustParseAddr(c.tunnel), TOS: c.packet.IP.TOS, TTL: 64,
		Protocol: 4, Length: got.Length,
	}
	ethertype := []byte{0x08, 0x00}
	if want.Destination.Is6() {
		want.Source, ethertype = source6, []byte{0x86, 0xdd}
	}
	if !bytes.Equal(out[l3-2:l3], ethertype) {
		t.Errorf("ethertype is %x", out[l3-2:l3])
	}
	if !c.packet.IP.Is4() {
		want.Protocol = 41
	}
	if c.other != "" {
		want.Step, want.Other = 1, netip.MustParseAddr(c.other)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(gueHeader{}, "Port")); diff != "" {
		t.Errorf("outer headers (-want +got):\n%s", diff)
	}
	if got.Port < 49152 {
		t.Errorf("source port %d is not ephemeral", got.Port)
	}
	if grown := len(out) - len(frame); got.Length != length(frame[l3:])+grown {
		t.Errorf("outer length is %d of %d", got.Length, len(out)-l3)
	}
	if !bytes.Equal(frame[l3:], inner) {
		t.Errorf("inner packet was changed:\n got %x\nwant %x", inner, frame[l3:])
	}
}
