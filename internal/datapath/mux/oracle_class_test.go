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
		for _, c := range familyClasses(scene{oracleVIPs[i], oracleOthers[i]}) {
			c.name = family + "/" + c.name
			if c.pool == nil {
				c.pool = func(p Pool) Pool { return p }
			}
			classes = append(classes, c)
		}
	}
	return classes
}

// scene is where packets of a family go.
type scene struct{ vip, other netip.Addr }

// ends are those of a packet from some client to one of the ports.
func (s scene) ends(r *rand.Rand, ports ...uint16) (from, to netip.AddrPort) {
	return netip.AddrPortFrom(oracleAddress(r, s.vip), uint16(1024+r.IntN(8))),
		netip.AddrPortFrom(s.vip, ports[r.IntN(len(ports))])
}

func (s scene) tcp(r *rand.Rand, flags byte, options []byte, ports ...uint16) draft {
	from, to := s.ends(r, ports...)
	return draftTCP(from, to, flags, options, r.IntN(40), r)
}

func (s scene) udp(r *rand.Rand, ports ...uint16) draft {
	from, to := s.ends(r, ports...)
	return draftUDP(from, to, r.IntN(40), r)
}

// any is a TCP packet to an endpoint that forwards.
func (s scene) any(r *rand.Rand) draft { return s.tcp(r, drawFlags(r), nil, portPlain) }

var everyPort = []uint16{portPlain, portMoved, portNoBackend, portNoHop}

func familyClasses(s scene) []oracleClass {
	classes := []oracleClass{
		{name: "syn", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			return s.tcp(r, 0x02|drawFlags(r)&^0x10, []byte{2, 4, 5, 0xb4}, everyPort...)
		}},
		{name: "tcp", verdict: "forward_flow", draw: func(r *rand.Rand) draft {
			return s.tcp(r, drawFlags(r), nil, everyPort...)
		}},
		{name: "udp", verdict: "forward_flow", draw: func(r *rand.Rand) draft { return s.udp(r, everyPort...) }},
		{name: "not-for-us", verdict: "pass_not_for_us", draw: func(r *rand.Rand) draft {
			f := s.tcp(r, drawFlags(r), nil, portPlain, 22, 179)
			if r.IntN(2) == 0 {
				f.to = s.other
			}
			return f
		}},
		{name: "icmp", verdict: "pass_icmp", draw: func(r *rand.Rand) draft { return drawEcho(r, s.vip) }},
		{name: "other-protocol", verdict: "pass_other_protocol", draw: func(r *rand.Rand) draft {
			f := s.any(r)
			f.protocol = byte(r.Uint32())
			return f
		}},
		{name: "no-source", verdict: "drop_no_source", draw: s.any, pool: func(p Pool) Pool {
			p.Source6 = netip.Addr{}
			return p
		}},
	}
	return append(classes, shapeClasses(s)...)
}

// shapeClasses are packets whose headers are out of the ordinary.
func shapeClasses(s scene) []oracleClass {
	classes := []oracleClass{
		{name: "vlan", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := s.any(r)
			f.vlans = 1 + r.IntN(3)
			return f
		}},
		{name: "padding", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := s.any(r)
			f.padding = r.IntN(30)
			return f
		}},
		{name: "too-big", verdict: "drop_too_big", draw: func(r *rand.Rand) draft {
			from, to := s.ends(r, portPlain)
			return draftUDP(from, to, testMTU-100+r.IntN(120), r)
		}},
	}
	if s.vip.Is4() {
		classes = append(classes, oracleClass{name: "options", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := s.any(r)
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
