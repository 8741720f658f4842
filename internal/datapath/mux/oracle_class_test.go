package mux

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// oracleClass is one kind of packets.
type oracleClass struct {
	name    string
	verdict string // one that it must produce
	pool    func(Pool) Pool
	draw    func(*rand.Rand) draft
}

func oracleClasses() []oracleClass {
	var classes []oracleClass
	for i, family := range []string{"v4", "v6"} {
		vip, other := oracleVIPs[i], oracleOthers[i]
		for _, c := range familyClasses(vip, other) {
			c.name = family + "/" + c.name
			if c.pool == nil {
				c.pool = func(p Pool) Pool { return p }
			}
			classes = append(classes, c)
		}
	}
	return classes
}

func familyClasses(vip, other netip.Addr) []oracleClass {
	// ends are those of a packet from some client to one of the ports.
	ends := func(r *rand.Rand, ports ...uint16) (from, to netip.AddrPort) {
		return netip.AddrPortFrom(oracleAddress(r, vip), uint16(1024+r.IntN(8))),
			netip.AddrPortFrom(vip, ports[r.IntN(len(ports))])
	}
	tcp := func(r *rand.Rand, flags byte, options []byte, ports ...uint16) draft {
		from, to := ends(r, ports...)
		return draftTCP(from, to, flags, options, r.IntN(40), r)
	}
	all := []uint16{portPlain, portMoved, portNoBackend, portNoHop}
	classes := []oracleClass{
		{name: "syn", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			return tcp(r, 0x02|drawFlags(r)&^0x10, []byte{2, 4, 5, 0xb4}, all...)
		}},
		{name: "tcp", verdict: "forward_flow", draw: func(r *rand.Rand) draft {
			return tcp(r, drawFlags(r), nil, all...)
		}},
		{name: "udp", verdict: "forward_flow", draw: func(r *rand.Rand) draft {
			from, to := ends(r, all...)
			return draftUDP(from, to, r.IntN(40), r)
		}},
		{name: "vlan", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := tcp(r, drawFlags(r), nil, portPlain)
			f.vlans = 1 + r.IntN(3)
			return f
		}},
		{name: "padding", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := tcp(r, drawFlags(r), nil, portPlain)
			f.padding = r.IntN(30)
			return f
		}},
		{name: "too-big", verdict: "drop_too_big", draw: func(r *rand.Rand) draft {
			from, to := ends(r, portPlain)
			return draftUDP(from, to, testMTU-100+r.IntN(120), r)
		}},
		{name: "not-for-us", verdict: "pass_not_for_us", draw: func(r *rand.Rand) draft {
			f := tcp(r, drawFlags(r), nil, portPlain, 22, 179)
			if r.IntN(2) == 0 {
				f.to = other
			}
			return f
		}},
		{name: "icmp", verdict: "pass_icmp", draw: func(r *rand.Rand) draft { return drawEcho(r, vip) }},
		{name: "other-protocol", verdict: "pass_other_protocol", draw: func(r *rand.Rand) draft {
			f := tcp(r, drawFlags(r), nil, portPlain)
			f.protocol = byte(r.Uint32())
			return f
		}},
		{name: "no-source", verdict: "drop_no_source",
			pool: func(p Pool) Pool { p.Source6 = netip.Addr{}; return p },
			draw: func(r *rand.Rand) draft { return tcp(r, drawFlags(r), nil, portPlain) }},
	}
	if vip.Is4() {
		classes = append(classes, oracleClass{name: "options", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := tcp(r, drawFlags(r), nil, portPlain)
			f.options = slices.Repeat([]byte{1}, 4*r.IntN(11))
			return f
		}})
	}
	return classes
}

// drawFlags draws TCP's flags, often SYN or ACK.
func drawFlags(r *rand.Rand) byte {
	switch r.IntN(4) {
	case 0:
		return 0x02
	case 1:
		return byte(r.Uint32())
	}
	return 0x10
}

func drawEcho(r *rand.Rand, vip netip.Addr) draft {
	f := draft{from: oracleAddress(r, vip), to: vip, ttl: 64, protocol: 1, sumAt: 2}
	kind := byte(8)
	if vip.Is6() {
		f.protocol, kind = 58, 128
	}
	f.transport = binary.BigEndian.AppendUint32([]byte{kind, 0, 0, 0}, r.Uint32())
	f.transport = append(f.transport, noise(r, r.IntN(64))...)
	return f
}
