package mux

import (
	"math/rand/v2"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// Ports of the oracle's world, by what their endpoints are. All VIPs have all of them.
const (
	portPlain     = 80 // TCP and UDP
	portMoved     = 83 // some of its buckets have moved
	portNoBackend = 85
	portNoHop     = 86 // the hosts of its backends are not resolved
)

// The VIPs of the oracle's world, and an address that is none.
var (
	oracleVIPs   = []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:1::10")}
	oracleOthers = []netip.Addr{netip.MustParseAddr("203.0.113.99"), netip.MustParseAddr("2001:db8:1::99")}
)

var unresolved = map[netip.Addr]bool{
	netip.MustParseAddr("10.9.0.1"): true, netip.MustParseAddr("fd00:9::1"): true,
}

// oracleWorld is the endpoints before and after a change: the program gets both, one after the other.
func oracleWorld(r *rand.Rand) (before, after []model.MuxEndpoint) {
	for _, vip := range oracleVIPs {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			at := func(port uint16) model.MuxEndpoint {
				return model.MuxEndpoint{Key: model.EndpointKey{VIP: vip, Protocol: protocol, Port: port}}
			}
			before = append(before, filled(r, at(portPlain), 12), filled(r, at(portMoved), 5), at(portNoBackend), stranded(at(portNoHop)))
			for _, e := range before[len(before)-4:] {
				if e.Key.Port == portMoved {
					e = shuffled(r, e)
				}
				after = append(after, e)
			}
		}
	}
	return before, after
}

// filled gives e backends at random slots, some of them down, of tunnels of both families.
func filled(r *rand.Rand, e model.MuxEndpoint, backends int) model.MuxEndpoint {
	slots := r.Perm(8 * backends)[:backends]
	for i, slot := range slots {
		tunnel := netip.AddrFrom4([4]byte{10, 0, byte(e.Key.Port), byte(i)})
		if r.IntN(2) == 0 {
			tunnel = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(e.Key.Port), 15: byte(i)})
		}
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot: model.Slot(slot + 1), Tunnel: tunnel, Down: r.IntN(6) == 0,
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
