package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/pkt"
)

var (
	clientMAC             = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	broadcastMAC          = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	ownerVIP4, ownerVIP6  = netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:1::10")
	clientIP4, clientIP6  = netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8:1::7")
	unspecified6, noOther = netip.IPv6Unspecified(), netip.MustParseAddr("2001:db8:1::11")
)

// arpFrame is an ARP request, padded as it comes from a wire.
func arpFrame(to net.HardwareAddr, sender, target netip.Addr, change ...func(*layers.ARP)) []byte {
	arp := &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: layers.ARPRequest, SourceHwAddress: clientMAC, SourceProtAddress: sender.AsSlice(),
		DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
	}
	for _, c := range change {
		c(arp)
	}
	frame := serialize(&layers.Ethernet{SrcMAC: clientMAC, DstMAC: to, EthernetType: layers.EthernetTypeARP}, arp)
	return append(frame, make([]byte, 60-len(frame))...)
}

// solicitation is a neighbor solicitation, with the client's MAC as an option unless it asks from no address.
func solicitation(to net.HardwareAddr, sender, target netip.Addr, change ...func(*layers.IPv6, *layers.ICMPv6NeighborSolicitation)) []byte {
	group := target.As16()
	copy(group[:], []byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff})
	if to == nil {
		to = net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]}
	}
	ip := &layers.IPv6{
		Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: sender.AsSlice(), DstIP: group[:],
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	ns := &layers.ICMPv6NeighborSolicitation{TargetAddress: target.AsSlice()}
	if sender != unspecified6 {
		ns.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: clientMAC}}
	}
	for _, c := range change {
		c(ip, ns)
	}
	return serialize(&layers.Ethernet{SrcMAC: clientMAC, DstMAC: to, EthernetType: layers.EthernetTypeIPv6}, ip, icmp, ns)
}

func serialize(all ...gopacket.SerializableLayer) []byte {
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err)
	}
	return buffer.Bytes()
}

// tagged puts two VLAN tags into a frame.
func tagged(frame []byte) []byte {
	tags := []byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 6}
	return append(append(bytes.Clone(frame[:12]), tags...), frame[12:]...)
}

// boottime is the clock of leases.
func boottime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// owning makes the mux the owner of the VIPs of both families, for a time from now on.
func owning(left time.Duration) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		if err := d.SetNeighbors([]netip.Addr{ownerVIP4, ownerVIP6}); err != nil {
			t.Fatal(err)
		}
		if err := d.SetNeighborLease(boottime(t) + left); err != nil {
			t.Fatal(err)
		}
	}
}

// checkARP wants the answer that RFC 826 asks for, in the request's frame.
func checkARP(t *testing.T, frame, out []byte) {
	t.Helper()
	want := arpFrame(clientMAC, ownerVIP4, clientIP4, func(a *layers.ARP) {
		a.Operation, a.SourceHwAddress, a.DstHwAddress = layers.ARPReply, testMAC[:], clientMAC
	})
	if len(frame) > 60 {
		want = tagged(want)
	}
	copy(want[6:12], testMAC[:])
	if bytes.Equal(frame[len(frame)-18-14:len(frame)-18-10], make([]byte, 4)) { // a probe, from no address
		copy(want[len(want)-18-4:], make([]byte, 4))
	}
	if !bytes.Equal(out, want) {
		t.Errorf("answer\n got %x\nwant %x", out, want)
	}
}

// checkAdvertisement wants the answer of RFC 4861, section 7.2.4: to the client, or to all nodes.
func checkAdvertisement(client netip.Addr, tags bool) func(*testing.T, []byte, []byte) {
	return func(t *testing.T, _, out []byte) {
		t.Helper()
		to, mac, flags := client, clientMAC, byte(0x60)
		if client == unspecified6 {
			to, mac, flags = netip.MustParseAddr("ff02::1"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, 0x20
		}
		ip := &layers.IPv6{
			Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: ownerVIP6.AsSlice(), DstIP: to.AsSlice(),
		}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(136, 0)}
		_ = icmp.SetNetworkLayerForChecksum(ip)
		want := serialize(&layers.Ethernet{SrcMAC: testMAC[:], DstMAC: mac, EthernetType: layers.EthernetTypeIPv6}, ip, icmp,
			&layers.ICMPv6NeighborAdvertisement{
				Flags: flags, TargetAddress: ownerVIP6.AsSlice(),
				Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: testMAC[:]}},
			})
		if tags {
			want = tagged(want)
		}
		if !bytes.Equal(out, want) {
			t.Errorf("answer\n got %x\nwant %x", out, want)
		}
	}
}

// neighborCases are requests for the addresses of VIPs, and what looks like some.
func neighborCases() []packetCase {
	var cases []packetCase
	add := func(name string, frame []byte, change func(*testing.T, *Datapath), verdict string, check func(*testing.T, []byte, []byte)) {
		cases = append(cases, packetCase{
			name: name, packet: pkt.TCP(client4, vip4, pkt.SYN), damage: func([]byte) []byte { return frame },
			change: change, verdict: verdict, check: check,
		})
	}
	own := owning(time.Hour)
	ask4, ask6 := arpFrame(broadcastMAC, clientIP4, ownerVIP4), solicitation(nil, clientIP6, ownerVIP6)
	add("ARP", ask4, own, "reply_neighbor", checkARP)
	add("ARP in VLANs", tagged(ask4), own, "reply_neighbor", checkARP)
	add("ARP to our MAC", arpFrame(testMAC[:], clientIP4, ownerVIP4), own, "reply_neighbor", checkARP)
	add("ARP probe", arpFrame(broadcastMAC, netip.IPv4Unspecified(), ownerVIP4), own, "reply_neighbor", checkARP)
	add("ARP without a lease", ask4, nil, "pass_other_mac", nil)
	add("ARP after the lease", ask4, owning(-time.Nanosecond), "pass_no_lease", nil)
	add("ARP to our MAC after the lease", arpFrame(testMAC[:], clientIP4, ownerVIP4), owning(-time.Nanosecond), "pass_no_lease", nil)
	add("ARP for another address", arpFrame(broadcastMAC, clientIP4, netip.MustParseAddr("203.0.113.11")), own, "pass_other_mac", nil)
	add("ARP to our MAC for another", arpFrame(testMAC[:], clientIP4, netip.MustParseAddr("203.0.113.11")), own, "pass_not_ip", nil)
	add("ARP announcement", arpFrame(broadcastMAC, ownerVIP4, ownerVIP4), own, "pass_other_mac", nil)
	for name, change := range map[string]func(*layers.ARP){
		"reply":              func(a *layers.ARP) { a.Operation = layers.ARPReply },
		"of another network": func(a *layers.ARP) { a.AddrType = layers.LinkTypeFDDI },
		"from a group":       func(a *layers.ARP) { a.SourceHwAddress = broadcastMAC },
	} {
		add("ARP "+name, arpFrame(broadcastMAC, clientIP4, ownerVIP4, change), own, "pass_other_mac", nil)
	}
	add("ARP that is cut off", ask4[:41], own, "pass_other_mac", nil)
	add("NDP", ask6, own, "reply_neighbor", checkAdvertisement(clientIP6, false))
	add("NDP in VLANs", tagged(ask6), own, "reply_neighbor", checkAdvertisement(clientIP6, true))
	add("NDP to our MAC", toVIP(solicitation(testMAC[:], clientIP6, ownerVIP6)), own, "reply_neighbor", checkAdvertisement(clientIP6, false))
	add("NDP for a duplicate", solicitation(nil, unspecified6, ownerVIP6), own, "reply_neighbor", checkAdvertisement(unspecified6, false))
	add("NDP with a nonce", solicitation(nil, unspecified6, ownerVIP6, func(_ *layers.IPv6, ns *layers.ICMPv6NeighborSolicitation) {
		ns.Options = layers.ICMPv6Options{{Type: 14, Data: make([]byte, 14)}} // RFC 7527
	}), own, "reply_neighbor", checkAdvertisement(unspecified6, false))
	add("NDP without a lease", ask6, nil, "pass_other_mac", nil)
	add("NDP after the lease", ask6, owning(-time.Nanosecond), "pass_no_lease", nil)
	add("NDP for another address", solicitation(nil, clientIP6, noOther), own, "pass_other_mac", nil)
	add("NDP to our MAC for another", toVIP(solicitation(testMAC[:], clientIP6, noOther)), own, "pass_icmp", nil)
	add("NDP from beyond the segment", solicitation(nil, clientIP6, ownerVIP6, func(ip *layers.IPv6, _ *layers.ICMPv6NeighborSolicitation) {
		ip.HopLimit = 254
	}), own, "pass_other_mac", nil)
	add("NDP that is cut off", ask6[:len(ask6)-9], own, "pass_other_mac", nil)
	long := bytes.Clone(ask6)
	binary.BigEndian.PutUint16(long[18:], 33)
	add("NDP longer than its frame", long, own, "pass_other_mac", nil)
	advertisement := bytes.Clone(ask6)
	advertisement[54] = 136
	add("NDP advertisement", advertisement, own, "pass_other_mac", nil)
	add("broadcast of another kind", serialize(&layers.Ethernet{SrcMAC: clientMAC, DstMAC: broadcastMAC, EthernetType: 0x88cc},
		gopacket.Payload(make([]byte, 50))), own, "pass_other_mac", nil)
	add("ping to the mux", pkt.ICMP("198.51.100.7", "203.0.113.12").Frame(), own, "pass_icmp", nil)
	for i := range cases[:2] {
		limited := cases[i]
		limited.name, limited.limited, limited.verdict = limited.name+", too many", true, "drop_neighbor"
		cases = append(cases, limited)
	}
	return cases
}

// toVIP sends a solicitation to the VIP itself, as one tests whether a neighbor is still there.
func toVIP(frame []byte) []byte {
	vip := ownerVIP6.As16()
	copy(frame[38:54], vip[:])
	return frame
}

// What a mux does not answer for any more passes, and the rest stays.
func TestNeighborsAreReplaced(t *testing.T) {
	d := newFilled(t, world()...)
	owning(time.Hour)(t, d)
	if err := d.SetNeighbors([]netip.Addr{ownerVIP6}); err != nil {
		t.Fatal(err)
	}
	if live, err := d.Neighbors.Neighbors(); err != nil || len(live) != 1 || live[0] != ownerVIP6 {
		t.Errorf("VIPs that are answered for: %v, %v", live, err)
	}
	if action, _ := run(t, d, arpFrame(broadcastMAC, clientIP4, ownerVIP4)); action != xdpPass {
		t.Errorf("a VIP that was taken away: action %d", action)
	}
	if action, _ := run(t, d, solicitation(nil, clientIP6, ownerVIP6)); action != xdpTX {
		t.Errorf("the VIP that stays: action %d", action)
	}
	many := make([]netip.Addr, 1025)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
	}
	if err := d.SetNeighbors(many); err == nil {
		t.Error("more VIPs than there is room for were taken")
	}
}

// Who renews a lease does not wait for a write of tables, which may last for longer than the lease.
func TestALeaseIsRenewedDuringAWrite(t *testing.T) {
	d := newFilled(t, world()...)
	d.mu.Lock()
	defer d.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- errors.Join(d.SetNeighbors([]netip.Addr{ownerVIP4}), d.SetNeighborLease(boottime(t))) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits")
	}
}
