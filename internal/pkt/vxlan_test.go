package pkt_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlb/weir/internal/pkt"
)

func TestDecodeVXLANReadsWhatFrameWrote(t *testing.T) {
	for _, ends := range [][2]string{{"10.0.0.1", "10.1.0.5"}, {"fd00::1", "fd01::5"}} {
		for _, inner := range []pkt.Packet{
			pkt.TCP("192.168.0.5:40000", "10.99.0.1:80", pkt.SYN, pkt.MSS(1400)),
			pkt.UDP("[2001:db8::7]:40000", "[2001:db8:1::10]:80"),
		} {
			v := pkt.VXLAN{
				Source: pkt.MAC{2, 1}, Destination: pkt.MAC{2, 2}, SourcePort: 50000, VNI: 0xabcdef, Reserved: [4]byte{3: pkt.Route},
				Outer: pkt.IP{Source: netip.MustParseAddr(ends[0]), Destination: netip.MustParseAddr(ends[1]), TTL: 64},
			}
			got, p, err := pkt.DecodeVXLAN(v.Frame(inner))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(inner, p, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func TestDecodeVXLANRefusesDamageInside(t *testing.T) {
	v := pkt.VXLAN{VNI: 7, Outer: pkt.IP{
		Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.1.0.5"), TTL: 64,
	}}
	inner := pkt.TCP("192.168.0.5:40000", "10.99.0.1:80", pkt.SYN).Frame()
	inner[len(inner)-1] ^= 1
	if _, _, err := pkt.DecodeVXLAN(v.Carry(inner)); err == nil {
		t.Error("a wrong checksum inside passes")
	}
	if _, _, err := pkt.DecodeVXLAN(pkt.UDP("10.0.0.1:1", "10.1.0.5:4788").Frame()); err == nil {
		t.Error("another port passes")
	}
}
