package main

import (
	"errors"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle"
)

// The virtual network whose clients' segments are measured, and the class names of these.
const (
	networkVNI     = 100
	networkHost    = 7 // the clients'
	networkTenant  = 1
	networkSYN     = "network-syn"
	networkLater   = "network-later"
	networkFullNAT = "network-full-nat"
)

var (
	networkAddresses = map[family]netip.Addr{v4: netip.MustParseAddr("203.0.113.250"), v6: netip.MustParseAddr("2001:db8:1::250")}
	networkHosts     = map[family]netip.Addr{v4: netip.MustParseAddr("10.2.0.1"), v6: netip.MustParseAddr("fd02::1")}
	networkVIPs      = map[family]netip.Addr{v4: netip.MustParseAddr("10.99.0.1"), v6: netip.MustParseAddr("fd12::99")}
	fullNATVIPs      = map[family]netip.Addr{v4: netip.MustParseAddr("10.99.0.2"), v6: netip.MustParseAddr("fd12::98")}
	fullNATPrefixes  = map[family]netip.Prefix{v4: netip.MustParsePrefix("10.66.0.0/16"), v6: netip.MustParsePrefix("fd66::/112")}
	networkServices  = map[family]netip.Addr{v4: netip.MustParseAddr("203.0.113.0"), v6: netip.MustParseAddr("2001:db8:1::")}
)

// hostKeys are those of the hosts of all backends.
func hostKeys() map[uint32][]fbt.Key {
	all := map[uint32][]fbt.Key{}
	for host := range uint32(backends) {
		all[host+1] = []fbt.Key{{Secret: [16]byte{byte(host), 'f', 'b', 't'}, ID: 1}}
	}
	return all
}

// attachNetwork has both VIPs measured be in the network.
func attachNetwork(d *mux.Datapath) error {
	return errors.Join(
		d.SetOverlayAddresses(networkAddresses[v4], networkAddresses[v6]), d.SetAttachments(networkAttachments(true)),
		d.SetVTEPs([]overlay.Host{{Number: networkHost, Agent: true, VNIs: []uint32{networkVNI}, Addresses: []netip.Addr{networkHosts[v4], networkHosts[v6]}}}),
		d.SetHostKeys(1, hostKeys()), setFullNAT(d))
}

// oracleNetwork is the same for the oracle.
func oracleNetwork(d *mux.Datapath) oracle.Network {
	n := oracle.Network{VIPs: map[oracle.NetworkVIP]netip.Addr{}, Hosts: map[netip.Addr]oracle.NetworkHost{}, Keys: map[uint32]fbt.Key{}}
	for _, of := range []family{v4, v6} {
		n.Addresses = append(n.Addresses, networkAddresses[of])
		n.VIPs[oracle.NetworkVIP{VNI: networkVNI, VIP: networkVIPs[of]}] = networkServices[of]
		n.Hosts[networkHosts[of]] = oracle.NetworkHost{Number: networkHost, Agent: true, VNIs: []uint32{networkVNI}}
	}
	for host, keys := range hostKeys() {
		n.Keys[host] = keys[0]
	}
	for _, of := range []family{v4, v6} {
		n.VIPs[oracle.NetworkVIP{VNI: networkVNI, VIP: fullNATVIPs[of]}] = networkServices[of]
	}
	n.NAT = oracleFullNAT(d)
	return n
}

// networkClasses are the segments of a virtual network's client, in VXLAN of the same family.
func networkClasses(of family) []class {
	client := "192.0.0.0:40000"
	if of == v6 {
		client = "[fd12::c000:0]:40000"
	}
	vip := netip.AddrPortFrom(networkVIPs[of], portCookies).String()
	v := pkt.VXLAN{
		Source: pkt.MAC{2, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a}, Destination: poolOf().MAC, VNI: networkVNI, SourcePort: 50000,
		Reserved: [4]byte{3: pkt.Route},
		Outer:    pkt.IP{Source: networkHosts[of], Destination: networkAddresses[of], TTL: 64},
	}
	later := pkt.TCP(client, vip, pkt.ACK, timestamps(2), pkt.Payload(make([]byte, 100)))
	inNetwork := func(name string, p pkt.Packet) class {
		return class{name: name, packet: p, vxlan: &v, program: benchProgBenchVxlan, beside: "floor-network", empty: "harness-network", action: xdpTX}
	}
	return []class{
		{name: "floor-network", packet: linuxSYN(client, vip), vxlan: &v, program: benchProgVxlanFloor, action: xdpTX},
		{name: "harness-network", packet: linuxSYN(client, vip), vxlan: &v, program: benchProgVxlanEmpty, action: xdpPass},
		inNetwork(networkSYN, linuxSYN(client, vip)), inNetwork(networkLater, later), fullNATClass(of, client, &v),
	}
}
