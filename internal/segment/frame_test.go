package segment

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	own  = MAC{2, 0, 0, 0, 0, 9}
	vip4 = netip.MustParseAddr("203.0.113.10")
	vip6 = netip.MustParseAddr("2001:db8:1::a10")
)

// What is sent is decoded by somebody else's code, checksums too.
func TestFrames(t *testing.T) {
	arpOf := func(frame []byte) *layers.ARP {
		arp, ok := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeARP).(*layers.ARP)
		if !ok {
			t.Fatalf("%x is no ARP", frame)
		}
		return arp
	}
	told, asked := arpOf(announcement(vip4, own)), arpOf(probe(vip4, own))
	if told.Operation != layers.ARPRequest || !bytes.Equal(told.SourceProtAddress, vip4.AsSlice()) || !bytes.Equal(told.DstProtAddress, vip4.AsSlice()) {
		t.Errorf("announcement: %+v", told)
	}
	if !bytes.Equal(asked.SourceProtAddress, make([]byte, 4)) || !bytes.Equal(asked.DstProtAddress, vip4.AsSlice()) || !bytes.Equal(asked.SourceHwAddress, own[:]) {
		t.Errorf("probe: %+v", asked)
	}
	for _, c := range []struct {
		frame       []byte
		layer       gopacket.LayerType
		source, to  string
		destination MAC
	}{
		{announcement(vip6, own), layers.LayerTypeICMPv6NeighborAdvertisement, vip6.String(), "ff02::1", MAC{0x33, 0x33, 0, 0, 0, 1}},
		{probe(vip6, own), layers.LayerTypeICMPv6NeighborSolicitation, "::", "ff02::1:ff00:a10", MAC{0x33, 0x33, 0xff, 0, 0x0a, 0x10}},
	} {
		packet := gopacket.NewPacket(c.frame, layers.LayerTypeEthernet, gopacket.Default)
		ip, ok := packet.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		if !ok || packet.Layer(c.layer) == nil || packet.ErrorLayer() != nil {
			t.Fatalf("%x is no %s", c.frame, c.layer)
		}
		if ip.SrcIP.String() != c.source || ip.DstIP.String() != c.to || ip.HopLimit != 255 || !bytes.Equal(c.frame[:6], c.destination[:]) {
			t.Errorf("%s: %+v to %x", c.layer, ip, c.frame[:6])
		}
		icmp, ok := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		if !ok || icmp.SetNetworkLayerForChecksum(ip) != nil {
			t.Fatalf("%s: no ICMPv6", c.layer)
		}
		if err, wrong := packet.VerifyChecksums(); err != nil || len(wrong) > 0 {
			t.Errorf("%s: checksum %v %v", c.layer, err, wrong)
		}
	}
}

func TestClaims(t *testing.T) {
	for whole, frame := range map[int][]byte{ethernetLength + arpLength: announcement(vip4, own), ethernetLength + ipv6Length + ndpLength: announcement(vip6, own)} {
		claim, is := claimOf(frame)
		if !is || claim.MAC != own || claim.Address != vip4 && claim.Address != vip6 {
			t.Errorf("%x claims %+v, %t", frame, claim, is)
		}
		for n := range whole {
			if _, is := claimOf(frame[:n]); is {
				t.Errorf("the first %d bytes of %x claim something", n, frame)
			}
		}
	}
	for _, frame := range [][]byte{probe(vip4, own), probe(vip6, own)} {
		if claim, is := claimOf(frame); is {
			t.Errorf("a probe claims %+v", claim)
		}
	}
	far := announcement(vip6, own)
	far[ethernetLength+7] = 254
	if _, is := claimOf(far); is {
		t.Error("an advertisement from beyond the segment claims something")
	}
}
