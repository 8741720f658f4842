package pkt_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/pkt"
)

var compareAddresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

const (
	v4From, v4To = "198.51.100.7:40000", "203.0.113.10:80"
	v6From, v6To = "[2001:db8::7]:40000", "[2001:db8:1::10]:80"
)

func samples() map[string]pkt.Packet {
	outer4 := pkt.IP{
		Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"),
		TTL: 64, DontFragment: true,
	}
	outer6 := pkt.IP{
		Source: netip.MustParseAddr("fd00::1"), Destination: netip.MustParseAddr("fd00::2"), TTL: 64,
	}
	return map[string]pkt.Packet{
		"tcp4":                pkt.TCP(v4From, v4To, pkt.SYN, pkt.MSS(1460)),
		"tcp6":                pkt.TCP(v6From, v6To, pkt.ACK|pkt.PSH, pkt.TOS(0xb9)),
		"udp4":                pkt.UDP(v4From, v4To, pkt.Padding(9)),
		"udp6":                pkt.UDP(v6From, v6To, pkt.VLANs(5)),
		"icmp4":               pkt.ICMP("198.51.100.7", "203.0.113.10", pkt.VLANs(5, 6)),
		"icmp6":               pkt.ICMP("2001:db8::7", "2001:db8:1::10"),
		"options":             pkt.UDP(v4From, v4To, pkt.IPOptions(12)),
		"4 in 4":              pkt.TCP(v4From, v4To, pkt.ACK).Inside(outer4),
		"4 in 6":              pkt.TCP(v4From, v4To, pkt.ACK).Inside(outer6),
		"6 in 4":              pkt.UDP(v6From, v6To).Inside(outer4),
		"6 in 6":              pkt.UDP(v6From, v6To, pkt.VLANs(3)).Inside(outer6),
		"short":               pkt.UDP(v4From, v4To, pkt.Payload([]byte{1})),
		"later fragment of 4": pkt.UDP(v4From, v4To, pkt.Fragment(3, false)).With(noPorts),
		"later fragment of 6": pkt.UDP(v6From, v6To, pkt.Fragment(3, true)).With(noPorts),
	}
}

func noPorts(p *pkt.Packet) { p.SourcePort, p.DestinationPort = 0, 0 }

func TestDecodeReadsWhatFrameWrote(t *testing.T) {
	for name, want := range samples() {
		t.Run(name, func(t *testing.T) {
			got, err := pkt.Decode(want.Frame())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compareAddresses); diff != "" {
				t.Errorf("decoded packet (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefusesDamage(t *testing.T) {
	p := pkt.TCP(v4From, v4To, pkt.ACK)
	for name, damage := range map[string]func([]byte) []byte{
		"truncated":      func(f []byte) []byte { return f[:len(f)-1] },
		"ip checksum":    func(f []byte) []byte { f[p.L3()+10] ^= 1; return f },
		"tcp checksum":   func(f []byte) []byte { f[p.L4()+16] ^= 1; return f },
		"payload":        func(f []byte) []byte { f[len(f)-1] ^= 1; return f },
		"header missing": func(f []byte) []byte { return f[:20] },
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := pkt.Decode(damage(p.Frame())); err == nil {
				t.Errorf("decoded %+v, want an error", got)
			}
		})
	}
}

func TestOffsetsPointAtHeaders(t *testing.T) {
	for name, p := range samples() {
		frame := p.Frame()
		if version := frame[p.L3()] >> 4; version != 4 && version != 6 {
			t.Errorf("%s: no IP header at L3 = %d", name, p.L3())
		}
		if p.SourcePort != 0 && (frame[p.L4()] != 40000>>8 || frame[p.L4()+1] != 40000&0xff) {
			t.Errorf("%s: no ports at L4 = %d", name, p.L4())
		}
	}
}
