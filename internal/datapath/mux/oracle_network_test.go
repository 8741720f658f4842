package mux

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle"
	"github.com/weirlb/weir/internal/testkit/oracle/answer"
)

// The virtual networks of the oracle's world. Two have the same addresses.
var (
	overlay4, overlay6 = netip.MustParseAddr("203.0.113.250"), netip.MustParseAddr("2001:db8:1::250")

	oracleAttachments = map[uint32]overlay.Attachment{
		1: {VNI: 100, VIP: netip.MustParseAddr("10.99.0.1"), Service: oracleVIPs[0], Relay: true, GatewayMAC: oracleGateway},
		2: {VNI: 0xabcdef, VIP: netip.MustParseAddr("10.99.0.1"), Service: oracleVIPs[0], FullNAT: true, Relay: true},
		3: {VNI: 100, VIP: netip.MustParseAddr("fd12::99"), Service: oracleVIPs[1], Relay: true, GatewayMAC: oracleGateway},
		4: {VNI: 0xabcdef, VIP: netip.MustParseAddr("fd12::99"), Service: oracleVIPs[1]},
		5: {VNI: 100, VIP: netip.MustParseAddr("10.99.0.2"), Service: oracleAllPorts[0], FullNAT: true},
		6: {VNI: 100, VIP: netip.MustParseAddr("fd12::98"), Service: oracleAllPorts[1]},
		7: {VNI: 100, VIP: netip.MustParseAddr("10.99.0.3"), Service: oracleSNAT[0]}, // has no endpoints
		// With full NAT, twice in each family, for two networks have the same addresses.
		8:  {VNI: 100, VIP: netip.MustParseAddr("10.99.0.8"), Service: oracleVIPs[0], NAT: true, Tenant: 1, GatewayMAC: oracleGateway},
		9:  {VNI: 0xabcdef, VIP: netip.MustParseAddr("10.99.0.8"), Service: oracleVIPs[0], NAT: true, Tenant: 2, GatewayMAC: oracleGateway},
		10: {VNI: 100, VIP: netip.MustParseAddr("fd12::97"), Service: oracleVIPs[1], NAT: true, Tenant: 1, GatewayMAC: oracleGateway},
		11: {VNI: 100, VIP: netip.MustParseAddr("10.99.0.9"), Service: oracleAllPorts[0], NAT: true, Tenant: 1, GatewayMAC: oracleGateway},
	}
	oracleVNIs  = []uint32{100, 101, 0xabcdef}
	oracleHosts = []overlay.Host{
		{Number: 7, Agent: true, VNIs: oracleVNIs, Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fd02::1")}},
		{Number: 8, VNIs: oracleVNIs, Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("fd02::2")}},
		{Number: 9, Agent: true, VNIs: []uint32{100}, Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.3"), netip.MustParseAddr("fd02::4")}},
	}
	oracleGateway = [6]byte{2, 0x57, 0x45, 9}
	// Hosts with servers; one has no keys, and one no clients.
	oracleServers = []overlay.Host{
		{Number: 1, Agent: true, Server: true, VNIs: []uint32{100}, Addresses: []netip.Addr{netip.MustParseAddr("10.3.0.1"), netip.MustParseAddr("fd03::1")}},
		{Number: 2, Agent: true, Server: true, Addresses: []netip.Addr{netip.MustParseAddr("10.3.0.2"), netip.MustParseAddr("fd03::2")}},
		{Number: 4, Agent: true, Server: true, Addresses: []netip.Addr{netip.MustParseAddr("10.3.0.4"), netip.MustParseAddr("fd03::4")}},
	}
	oracleVTEPs = []string{"10.2.0.1", "10.2.0.2", "10.2.0.3", "10.7.7.7", "fd02::1", "fd02::2", "fd02::3", "fd02::4"}
)

// oracleKeys are those of hosts 1 to 3 of the backends, which have 0 to 4; FBTs are made with the second.
func oracleKeys() (makes uint32, all map[uint32][]fbt.Key) {
	all = map[uint32][]fbt.Key{}
	for host := range uint32(3) {
		all[host+1] = []fbt.Key{{Secret: [16]byte{byte(host), 1}, ID: 5}, {Secret: [16]byte{byte(host), 2}, ID: 6}}
	}
	return 6, all
}

// setNetworks tells the program of the virtual networks.
func setNetworks(t testing.TB, d *Datapath) {
	t.Helper()
	makes, keys := oracleKeys()
	err := errors.Join(
		d.SetOverlayAddresses(overlay4, overlay6), d.SetAttachments(oracleAttachments), d.SetVTEPs(slices.Concat(oracleHosts, oracleServers)),
		d.SetHostKeys(makes, keys))
	if err != nil {
		t.Fatal(err)
	}
	setNAT(t, d)
}

// oracleNetwork is the same for the oracle.
func oracleNetwork() oracle.Network {
	n := oracle.Network{
		Addresses: []netip.Addr{overlay4, overlay6}, VIPs: map[oracle.NetworkVIP]netip.Addr{},
		Hosts: map[netip.Addr]oracle.NetworkHost{}, Keys: map[uint32]fbt.Key{},
		Answers: answer.Mux{
			Addresses: []netip.Addr{overlay4, overlay6}, Modes: map[answer.VIP]answer.Mode{}, Servers: map[netip.Addr]uint32{},
			Hosts: map[netip.Addr]answer.Host{},
		},
	}
	for _, a := range oracleAttachments {
		n.VIPs[oracle.NetworkVIP{VNI: a.VNI, VIP: a.VIP}] = a.Service
		n.Answers.Modes[answer.VIP{VNI: a.VNI, Address: a.VIP}] = answer.Mode{Gateway: a.GatewayMAC, FullNAT: a.FullNAT, Relay: a.Relay}
	}
	for _, h := range slices.Concat(oracleHosts, oracleServers) {
		for _, address := range h.Addresses {
			if h.Server {
				n.Answers.Servers[address] = h.Number
			}
			n.Answers.Hosts[address] = answer.Host{Number: h.Number, VNIs: h.VNIs}
			n.Hosts[address] = oracle.NetworkHost{Number: h.Number, Agent: h.Agent, VNIs: h.VNIs}
		}
	}
	_, keys := oracleKeys()
	n.Answers.Keys = keys
	for host, all := range keys {
		n.Keys[host] = all[1]
	}
	n.NAT = oracleNAT()
	return n
}

// networkClasses are packets of virtual networks' clients.
func networkClasses(s scene) []oracleClass {
	syn := func(r *rand.Rand) draft { return s.inVXLAN(r, s.ofTenant(r, 0x02, fittingOptions(r), everyPort...)) }
	any := func(r *rand.Rand) draft {
		return s.inVXLAN(r, s.ofTenant(r, drawFlags(r), sometimes(r, fittingOptions(r), drawOptions(r)), everyPort...))
	}
	others := []string{"drop_no_endpoint", "drop_inner_other", "drop_martian"}
	if s.vip.Is4() { // IPv6 has no options before what follows
		others = append(others, "drop_fbt_no_room")
	}
	return append(headedClasses(s), []oracleClass{
		{name: "network-syn", verdict: "forward_syn", more: []string{
			"drop_no_backend", "drop_no_next_hop", "drop_no_host_key", "drop_acl",
		}, draw: syn},
		{name: "network-tcp", verdict: "forward_bucket", more: []string{"forward_syn", "drop_bucket_moves"}, draw: any},
		{name: "network-bare", verdict: "drop_not_a_vtep", more: []string{"forward_syn"}, draw: func(r *rand.Rand) draft {
			f := syn(r)
			if from := netip.MustParseAddr(oracleVTEPs[r.IntN(len(oracleVTEPs))]); from.Is4() == f.from.Is4() {
				f.from = from
			}
			return f
		}},
		{name: "network-other", verdict: "drop_no_attachment", more: others, draw: func(r *rand.Rand) draft {
			return s.inVXLAN(r, s.otherOfTenant(r))
		}},
		{name: "network-echo", verdict: "reply_echo", more: []string{"drop_echo", "drop_inner_other"}, draw: func(r *rand.Rand) draft {
			_, to, vni := s.tenantEnds(r, portPlain)
			ping := s.drawEcho(r, r.IntN(80))
			if ping.to = to.Addr(); r.IntN(8) == 0 {
				ping.transport = ping.transport[:4+r.IntN(len(ping.transport)-4)]
			}
			return s.carried(r, vni, ping)
		}},
		{name: "network-broken", verdict: "drop_vxlan", more: []string{"forward_syn", "pass_no_endpoint"}, draw: func(r *rand.Rand) draft {
			f := syn(r)
			switch at := r.IntN(30); r.IntN(4) {
			case 0:
				f.transport[at] ^= 1 << r.IntN(8)
			case 1:
				f.transport = f.transport[:8+r.IntN(len(f.transport)-8)]
			case 2:
				f.to = s.vip
			}
			return f
		}},
		{name: "network-large", verdict: "drop_too_big", more: []string{"forward_bucket", "drop_merged"}, draw: func(r *rand.Rand) draft {
			from, to, vni := s.tenantEnds(r, portPlain)
			return s.carried(r, vni, draftTCP(from, to, 0x10, nil, 1340+r.IntN(200), r))
		}},
		{name: "network-no-source", verdict: "drop_no_source", draw: syn, settings: func(p pool.Settings) pool.Settings {
			p.Source6 = netip.Addr{}
			return p
		}},
	}...)
}

// headedClasses are packets that get a bypass header.
func headedClasses(s scene) []oracleClass {
	return []oracleClass{
		{name: "network-udp", verdict: "forward_bucket", more: []string{
			"drop_no_backend", "drop_no_next_hop", "drop_no_host_key", "drop_acl",
		}, draw: func(r *rand.Rand) draft {
			from, to, vni := s.tenantEnds(r, everyPort...)
			return s.carried(r, vni, draftUDP(from, to, r.IntN(40), r))
		}},
		{name: "network-fragment", verdict: "forward_fragment", more: []string{"drop_fragment_early"}, draw: func(r *rand.Rand) draft {
			from, to, vni := s.tenantEnds(r, everyPort...)
			f := s.drawFragment(r, 8)
			f.from, f.to = from.Addr(), to.Addr()
			return s.carried(r, vni, f)
		}},
		{name: "network-error", verdict: "forward_icmp", more: []string{"drop_inner_other"}, draw: func(r *rand.Rand) draft {
			from, to, vni := s.tenantEnds(r, everyPort...)
			f := s.drawEcho(r, 0)
			f.to = to.Addr()
			about := sometimes(r, draftUDP(to, from, 20, r), draftTCP(to, from, 0x10, nil, 20, r), draftUDP(from, to, 20, r)).frame()[14:]
			kind := sometimes(r, byte(3), 11, 12, 5)
			if !f.to.Is4() {
				kind = sometimes(r, byte(1), 2, 3, 4, 5)
			}
			f.transport = append([]byte{kind, 4, 0, 0, 0, 0, 5, 120}, about[:sometimes(r, len(about), r.IntN(len(about)))]...)
			return s.carried(r, vni, f)
		}},
	}
}

// tenantEnds are those of a packet from some client of a network to one of the ports of a VIP there.
func (s scene) tenantEnds(r *rand.Rand, ports ...uint16) (from, to netip.AddrPort, vni uint32) {
	var numbers []uint32
	for number, a := range oracleAttachments {
		if a.VIP.Is4() == s.vip.Is4() && a.Service != oracleSNAT[0] && !a.NAT {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	a := oracleAttachments[numbers[r.IntN(len(numbers))]]
	return netip.AddrPortFrom(oracleAddress(r, s.vip), uint16(1024+r.IntN(8))),
		netip.AddrPortFrom(a.VIP, ports[r.IntN(len(ports))]), a.VNI
}

// tenantDraft is a packet of a network.
type tenantDraft struct {
	draft
	vni uint32
}

func (s scene) ofTenant(r *rand.Rand, flags byte, options []byte, ports ...uint16) tenantDraft {
	from, to, vni := s.tenantEnds(r, ports...)
	return tenantDraft{draftTCP(from, to, flags, options, r.IntN(40), r), vni}
}

// otherOfTenant is for no VIP, for a port without endpoint, or not TCP in one piece.
func (s scene) otherOfTenant(r *rand.Rand) tenantDraft {
	f := s.ofTenant(r, drawFlags(r), nil, portPlain, 22)
	switch r.IntN(7) {
	case 0:
		f.to = s.other
	case 1:
		f.vni = 101
	case 2:
		f.from = sometimes(r, f.to, s.strangers()...)
	case 3:
		f.protocol = sometimes(r, byte(17), 1, 58)
	case 4:
		if f.to.Is4() {
			f.fragment = sometimes(r, uint16(r.Uint32()), 0)
			f.options = slices.Repeat([]byte{1}, 4*r.IntN(11))
			break
		}
		f.extend = drawExtensions(r)
	case 5:
		if f.to.Is4() {
			f.to = oracleAttachments[7].VIP
		}
	}
	return f
}

func (s scene) inVXLAN(r *rand.Rand, inner tenantDraft) draft {
	return s.carried(r, inner.vni, inner.draft)
}

// carried is a packet in VXLAN to the muxes, from a host of clients.
func (s scene) carried(r *rand.Rand, vni uint32, inner draft) draft {
	payload := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8|sometimes(r, uint32(0), 0x57))
	payload = append(payload, inner.frame()...)
	from, to := netip.MustParseAddr(sometimes(r, "10.2.0.1", "10.2.0.2")), overlay4
	if r.IntN(2) == 0 {
		from, to = netip.MustParseAddr(sometimes(r, "fd02::1", "fd02::2")), overlay6
	}
	f := draftUDP(netip.AddrPortFrom(from, uint16(r.Uint32())), netip.AddrPortFrom(to, 4789), 0, r)
	f.transport = append(f.transport, payload...)
	binary.BigEndian.PutUint16(f.transport[4:], uint16(len(f.transport)))
	f.sumAt = sometimes(r, 0, 6)
	if r.IntN(8) == 0 {
		f.vlans = r.IntN(3)
	}
	if r.IntN(8) == 0 && to.Is4() {
		f.options = slices.Repeat([]byte{1}, 4*r.IntN(11))
	}
	if r.IntN(8) == 0 {
		f.padding = r.IntN(30)
	}
	return f
}

// fittingOptions are mostly those that leave an FBT its room, of every length.
func fittingOptions(r *rand.Rand) []byte {
	options := drawOptions(r)
	return options[:min(len(options), r.IntN(33))]
}

// answerClasses are answers of servers' hosts, by the muxes.
func answerClasses(s scene) []oracleClass {
	return []oracleClass{{name: "network-answer", verdict: "relay_answer", more: []string{
		"drop_answer_forged", "drop_answer_host", "drop_no_host_key", "drop_not_a_vtep", "drop_vxlan",
	}, draw: s.answer}}
}

// answer is one of a server's host to a client, by the muxes.
func (s scene) answer(r *rand.Rand) draft {
	client, vip, vni := s.tenantEnds(r, portPlain)
	inside := draftTCP(vip, client, drawFlags(r), fittingOptions(r), r.IntN(60), r)
	udp := r.IntN(4) == 0
	if udp {
		inside = draftUDP(vip, client, r.IntN(60), r)
		inside.sumAt = sometimes(r, 6, 0)
	}
	if inside.to.Is4() && r.IntN(16) == 0 {
		inside.fragment = uint16(r.Uint32())
	}
	frame := inside.frame()
	sender := oracleServers[sometimes(r, 0, 1, 2)]
	keys := []fbt.Key{{ID: 5}, {ID: 6}}
	if _, all := oracleKeys(); all[sender.Number] != nil {
		keys = all[sender.Number]
	}
	key := keys[r.IntN(2)]
	a := fbt.Answer{VNI: vni, Host: sometimes(r, uint32(7), 8, 9, 77, 0), Client: client, VIP: vip, ClientMAC: [6]byte(frame), UDP: udp}
	header, mac := a.VXLAN(key), a.MAC(key)
	copy(frame[6:], mac[:])
	v4 := r.IntN(2) == 0
	from, to := sender.Addresses[1], overlay6
	if v4 {
		from, to = sender.Addresses[0], overlay4
	}
	if other := netip.MustParseAddr(sometimes(r, "10.3.0.1", "10.3.0.2", "10.2.0.1", "10.7.7.7")); v4 && r.IntN(8) == 0 {
		from = other
	}
	all := slices.Concat(header, frame)
	if r.IntN(4) == 0 { // VXLAN, Ethernet, addresses
		all[r.IntN(50)] ^= 1 << r.IntN(8)
	}
	f := draftUDP(netip.AddrPortFrom(from, uint16(r.Uint32())), netip.AddrPortFrom(to, 4789), 0, r)
	f.transport = append(f.transport, all...)
	binary.BigEndian.PutUint16(f.transport[4:], uint16(len(f.transport)))
	f.sumAt = sometimes(r, 0, 6)
	if r.IntN(8) == 0 {
		f.vlans = r.IntN(3)
	}
	if r.IntN(8) == 0 {
		f.padding = r.IntN(30)
	}
	return f
}
