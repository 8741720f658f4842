package mux

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Ports of the oracle's world, by what their endpoints are.
const (
	portPlain     = 80 // TCP and UDP without anything
	portCookies   = 81
	portSettling  = 82
	portMoved     = 83 // some of its buckets have moved, long ago
	portChained   = 84 // some of its buckets name a previous backend
	portNoBackend = 85
	portNoHop     = 86 // the hosts of its backends are not resolved
	portBoth      = 87 // cookies, and buckets that name a previous backend
	portAffinity  = 88 // the same, with affinity
	portSources   = 89 // cookies, and not every source may come
	portLast      = portSources
)

// The VIPs of the oracle's world: with all those ports, with an endpoint on all ports, with source NAT alone,
// and none.
var (
	oracleVIPs     = []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:1::10")}
	oracleAllPorts = []netip.Addr{netip.MustParseAddr("203.0.113.20"), netip.MustParseAddr("2001:db8:1::20")}
	oracleSNAT     = []netip.Addr{netip.MustParseAddr("203.0.113.30"), netip.MustParseAddr("2001:db8:1::30")}
	oracleOthers   = []netip.Addr{netip.MustParseAddr("203.0.113.99"), netip.MustParseAddr("2001:db8:1::99")}
)

// oracleMembers are the settings: this mux, two with one family, one that is not resolved in one, and
// one that is not at all.
var oracleMembers = []model.PoolMember{
	{Name: "self", Addresses: []netip.Addr{source4, source6}},
	{Name: "only-v4", Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.2")}},
	{Name: "only-v6", Addresses: []netip.Addr{netip.MustParseAddr("fd00:ff::3")}},
	{Name: "by-v6", Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.4"), netip.MustParseAddr("fd00:ff::4")}},
	{Name: "lost", Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.5"), netip.MustParseAddr("fd00:ff::5")}},
}

var oracleMemberHops = map[netip.Addr]model.NextHop{
	netip.MustParseAddr("10.255.0.2"): {Source: testHop.Source, Destination: [6]byte{2, 0xcc, 0, 0, 0, 2}},
	netip.MustParseAddr("fd00:ff::3"): {Source: testHop.Source, Destination: [6]byte{2, 0xcc, 0, 0, 0, 3}},
	netip.MustParseAddr("fd00:ff::4"): {Source: testHop.Source, Destination: [6]byte{2, 0xcc, 0, 0, 0, 4}},
}

var unresolved = map[netip.Addr]bool{
	netip.MustParseAddr("10.9.0.1"): true, netip.MustParseAddr("fd00:9::1"): true,
}

// oracleWorld is the endpoints before and after a change: the program gets both, one after the other.
func oracleWorld(r *rand.Rand) (before, after []model.MuxEndpoint) {
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		for _, vip := range oracleVIPs {
			for port := uint16(portPlain); port <= portLast; port++ {
				before = append(before, oracleEndpoint(r, model.EndpointKey{VIP: vip, Protocol: protocol, Port: port}))
			}
		}
		for _, vip := range oracleAllPorts {
			for _, port := range []uint16{model.AllPorts, portPlain} {
				before = append(before, oracleEndpoint(r, model.EndpointKey{VIP: vip, Protocol: protocol, Port: port}))
			}
		}
	}
	for _, e := range before {
		switch e.Key.Port {
		case portMoved:
			e = shuffled(r, e)
		case portChained, portBoth, portAffinity:
			old := e.Buckets
			e = shuffled(r, e)
			e.Previous = previousOf(r, old)
		}
		after = append(after, e)
	}
	return before, after
}

func oracleEndpoint(r *rand.Rand, key model.EndpointKey) model.MuxEndpoint {
	e := model.MuxEndpoint{Key: key, Cookies: model.CookiesOff, Ping: slices.Contains(oracleVIPs, key.VIP)}
	switch key.Port {
	case portNoBackend:
		return e
	case portNoHop:
		return stranded(e)
	case portSources:
		e.Cookies = model.CookiesOn
		e.Allow, e.Deny = oracleSources(r, key.VIP), oracleSources(r, key.VIP)
	case portCookies, portBoth:
		e.Cookies = model.CookiesOn
	case portSettling, portAffinity:
		e.Cookies = model.CookiesSettling
	}
	e.Affinity = key.Port == portAffinity || key.Port == model.AllPorts
	return filled(r, e, oracleBackends)
}

// oracleSources has about half of the sources that oracleAddress draws, in prefixes of all lengths.
func oracleSources(r *rand.Rand, vip netip.Addr) (list []netip.Prefix) {
	if !vip.Is4() { // has no source of IPv4 in it, and none of them
		list = append(list, netip.MustParsePrefix("::/8"))
	}
	for range 12 {
		a := oracleAddress(r, vip)
		p, _ := a.Prefix(a.BitLen() - r.IntN(5))
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// oracleRanges are whose ports are whose: of the VIPs with source NAT alone, and of those with endpoints.
func oracleRanges(r *rand.Rand) (all []model.MuxSNAT) {
	const workloads = 6
	for _, vip := range slices.Concat(oracleSNAT, oracleVIPs) {
		ranges := make([][]model.Range, workloads+2) // the last ones are nobody's
		for n := range bpf.SNATRanges {
			who := r.IntN(len(ranges))
			ranges[who] = append(ranges[who], model.Range(n))
		}
		for i := range workloads {
			address, tunnel := vip.Next(), netip.AddrFrom4([4]byte{10, 7, 0, byte(i)})
			for range i {
				address = address.Next()
			}
			if i%2 == 0 {
				tunnel = netip.AddrFrom16([16]byte{0: 0xfd, 1: 7, 15: byte(i)})
			}
			if i == 0 {
				tunnel = netip.MustParseAddr("10.9.0.1") // unresolved
			}
			all = append(all, model.MuxSNAT{
				Key: model.SNATKey{VIP: vip, Address: address}, Tunnel: tunnel, Ranges: ranges[i],
				Ping: slices.Contains(oracleVIPs, vip),
			})
		}
	}
	return all
}

const oracleBackends = 12 // at every second slot

// filled gives e backends some of them down, of tunnels of both families.
func filled(r *rand.Rand, e model.MuxEndpoint, backends int) model.MuxEndpoint {
	for i := range backends {
		tunnel := netip.AddrFrom4([4]byte{10, 0, byte(e.Key.Port), byte(i)})
		if r.IntN(2) == 0 {
			tunnel = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(e.Key.Port), 15: byte(i)})
		}
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot: model.Slot(2*i + 1), Tunnel: tunnel, Down: r.IntN(6) == 0, Host: uint32(i % 5),
		})
	}
	for range 1 << (4 + r.IntN(5)) {
		e.Buckets = append(e.Buckets, e.Backends[r.IntN(backends)].Slot)
	}
	return e
}

// stranded has backends whose hosts are not resolved.
func stranded(e model.MuxEndpoint) model.MuxEndpoint {
	for tunnel := range unresolved {
		slot := model.Slot(len(e.Backends) + 1)
		e.Backends = append(e.Backends, model.MuxBackend{Slot: slot, Tunnel: tunnel})
		e.Buckets = append(e.Buckets, slot)
	}
	return e
}

// shuffled is e after every fourth of its buckets moved.
func shuffled(r *rand.Rand, e model.MuxEndpoint) model.MuxEndpoint {
	buckets := append([]model.Slot(nil), e.Buckets...)
	for i := range buckets {
		if r.IntN(4) == 0 {
			buckets[i] = e.Backends[r.IntN(len(e.Backends))].Slot
		}
	}
	e.Buckets = buckets
	return e
}

// previousOf names for some buckets what they named before, or what there is no more.
func previousOf(r *rand.Rand, old []model.Slot) []model.Slot {
	previous := make([]model.Slot, len(old))
	for i := range previous {
		switch r.IntN(4) {
		case 0, 1:
			previous[i] = old[i]
		case 2:
			previous[i] = model.Slot(r.IntN(3 * oracleBackends))
		}
	}
	return previous
}
