package mux

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/mux/pool"
)

// oracleClass is one kind of packets.
type oracleClass struct {
	name     string
	verdict  string // one that it must produce
	more     []string
	settings func(pool.Settings) pool.Settings
	alone    bool // the mux is, in its pool
	snat     bool // workloads have ranges
	draw     func(*rand.Rand) draft
}

func oracleClasses() []oracleClass {
	var classes []oracleClass
	for i, family := range []string{"v4", "v6"} {
		for _, c := range allClasses(scene{vip: oracleVIPs[i], allPorts: oracleAllPorts[i], other: oracleOthers[i], snat: oracleSNAT[i]}) {
			c.name = family + "/" + c.name
			if c.settings == nil {
				c.settings = func(p pool.Settings) pool.Settings { return p }
			}
			classes = append(classes, c)
		}
	}
	return classes
}

// scene is where packets of a family go.
type scene struct {
	vip, allPorts, other, snat netip.Addr
	answers                    bool // to workloads that left as VIPs
}

// ends are those of a packet from some client to one of the ports.
func (s scene) ends(r *rand.Rand, ports ...uint16) (from, to netip.AddrPort) {
	if s.answers {
		port := sometimes(r, uint16(r.Uint32()), uint16(1024+r.IntN(64)), ports[r.IntN(len(ports))])
		return netip.AddrPortFrom(oracleAddress(r, s.vip), uint16(53+r.IntN(2))),
			netip.AddrPortFrom(sometimes(r, s.snat, s.vip), port)
	}
	return netip.AddrPortFrom(oracleAddress(r, s.vip), uint16(1024+r.IntN(2))),
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

var everyPort = []uint16{
	portPlain, portCookies, portSettling, portMoved, portChained, portNoBackend, portNoHop, portBoth, portAffinity, portSources,
}

// established is a segment with the options given, mostly of no new connection.
func (s scene) established(options func(*rand.Rand) []byte, ports ...uint16) func(*rand.Rand) draft {
	return func(r *rand.Rand) draft {
		flags := byte(0x10)
		if r.IntN(4) == 0 {
			flags = byte(r.Uint32())
		}
		return s.tcp(r, flags, options(r), ports...)
	}
}

func familyClasses(s scene) []oracleClass {
	classes := []oracleClass{
		{name: "syn", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			return s.tcp(r, 0x02|drawFlags(r)&^0x10, []byte{2, 4, 5, 0xb4}, everyPort...)
		}},
		{name: "tcp", verdict: "forward_flow", draw: func(r *rand.Rand) draft {
			return s.tcp(r, drawFlags(r), nil, everyPort...)
		}},
		{name: "sources", verdict: "drop_acl", more: []string{"forward_syn", "forward_cookie", "forward_flow"}, draw: func(r *rand.Rand) draft {
			if r.IntN(3) == 0 {
				return s.udp(r, portSources)
			}
			return s.tcp(r, drawFlags(r), alignedTimestamps(r), portSources)
		}},
		{name: "martians", verdict: "drop_martian", more: []string{"forward_syn", "pass_no_endpoint"}, draw: func(r *rand.Rand) draft {
			f := sometimes(r, s.tcp(r, drawFlags(r), drawOptions(r), everyPort...), s.udp(r, everyPort...), s.drawFragment(r, 8))
			f.from = sometimes(r, f.from, append(s.strangers(), f.to)...)
			f.to = sometimes(r, f.to, s.other)
			return f
		}},
		{name: "udp", verdict: "forward_flow", draw: func(r *rand.Rand) draft { return s.udp(r, everyPort...) }},
		{name: "not-for-us", verdict: "pass_no_endpoint", draw: func(r *rand.Rand) draft {
			f := s.tcp(r, drawFlags(r), nil, portPlain, 22, 179)
			if r.IntN(2) == 0 {
				f.to = s.other
			}
			return f
		}},
		{name: "other-protocol", verdict: "pass_other_protocol", draw: func(r *rand.Rand) draft {
			f := s.any(r)
			f.protocol = byte(r.Uint32())
			return f
		}},
		{name: "no-source", verdict: "drop_no_source", draw: s.any, settings: func(p pool.Settings) pool.Settings {
			p.Source6 = netip.Addr{}
			return p
		}},
	}
	return slices.Concat(classes, choiceClasses(s), poolClasses(s), shapeClasses(s), tooBigClasses(s), icmpClasses(s), fragmentClasses(s), networkClasses(s), answerClasses(s), natClasses(s))
}

// choiceClasses are the ways to a backend.
func choiceClasses(s scene) []oracleClass {
	cookies := []uint16{portCookies, portSettling, portBoth, portAffinity, portPlain}
	return []oracleClass{
		{name: "cookie", verdict: "forward_cookie", draw: s.established(alignedTimestamps, cookies...)},
		{name: "cookie-anywhere", verdict: "forward_cookie", draw: s.established(drawOptions, cookies...)},
		{name: "cookie-last", verdict: "forward_cookie", draw: s.established(lastTimestamps, cookies...)},
		{name: "no-timestamps", verdict: "forward_bucket", draw: s.established(func(*rand.Rand) []byte { return nil }, cookies...)},
		{name: "chained", verdict: "forward_chained", draw: s.established(drawOptions, portChained, portBoth)},
		{name: "chained-udp", verdict: "forward_chained", draw: func(r *rand.Rand) draft { return s.udp(r, portChained, portBoth, portAffinity) }},
		{name: "affinity", verdict: "forward_chained", draw: s.established(drawOptions, portAffinity)},
		{name: "all-ports", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := s.tcp(r, drawFlags(r), drawOptions(r), portPlain, uint16(r.Uint32()))
			f.to = s.allPorts
			return f
		}},
		{name: "all-ports-udp", verdict: "forward_flow", draw: func(r *rand.Rand) draft {
			f := s.udp(r, portPlain, uint16(1+r.IntN(8)))
			f.to = s.allPorts
			return f
		}},
	}
}

// poolClasses are packets of all kinds in a pool that encapsulates otherwise.
func poolClasses(s scene) []oracleClass {
	any := func(r *rand.Rand) draft {
		if r.IntN(3) == 0 {
			return s.udp(r, everyPort...)
		}
		return s.tcp(r, drawFlags(r), drawOptions(r), everyPort...)
	}
	return []oracleClass{
		{name: "gue", verdict: "forward_syn", draw: any, settings: func(p pool.Settings) pool.Settings {
			p.Encapsulation = pool.GUE
			return p
		}},
		{name: "spread", verdict: "forward_syn", draw: any, settings: func(p pool.Settings) pool.Settings {
			p.Prefix4, p.Prefix6 = netip.MustParsePrefix("10.255.4.0/22"), netip.MustParsePrefix("fd00:ff:1::/64")
			return p
		}},
		{name: "spread-gue", verdict: "forward_chained", draw: any, settings: func(p pool.Settings) pool.Settings {
			p.Encapsulation = pool.GUE
			p.Prefix4, p.Prefix6 = netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:ff:1::/120")
			return p
		}},
	}
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
	}
	if s.vip.Is4() {
		classes = append(classes, oracleClass{name: "options", verdict: "forward_syn", draw: func(r *rand.Rand) draft {
			f := s.any(r)
			f.options = slices.Repeat([]byte{1}, 4*r.IntN(11))
			return f
		}})
	} else {
		classes = append(classes, oracleClass{name: "extensions", verdict: "forward_cookie", draw: func(r *rand.Rand) draft {
			f := s.tcp(r, drawFlags(r), drawOptions(r), portCookies)
			f.extend = drawExtensions(r)
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

// drawTimestamps is the option whose both values name a backend, or a slot that has none.
func drawTimestamps(r *rand.Rand) []byte {
	b := binary.BigEndian.AppendUint32([]byte{8, 10}, r.Uint32()<<13|uint32(r.IntN(3*oracleBackends)))
	return binary.BigEndian.AppendUint32(b, r.Uint32()<<13|uint32(r.IntN(3*oracleBackends)))
}

// alignedTimestamps are the options as Linux writes them.
func alignedTimestamps(r *rand.Rand) []byte {
	b := append([]byte{1, 1}, drawTimestamps(r)...)
	if r.IntN(4) == 0 {
		b = append(b, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2)
	}
	return b
}

// lastTimestamps stand behind as much padding as there is room for.
func lastTimestamps(r *rand.Rand) []byte {
	return append(slices.Repeat([]byte{1}, 30), drawTimestamps(r)...)
}

// drawOptions has options in any order; some lists are cut off or say wrong lengths.
func drawOptions(r *rand.Rand) []byte {
	kinds := [][]byte{
		{1},
		{1},
		{1, 1},
		{0},
		{2, 4, 5, 0xb4},
		{3, 3, 7},
		{4, 2},
		{8, 9, 1, 2, 3, 4, 5, 6, 7},
		{19, byte(r.IntN(4))},
		{5, 10, 0, 0, 0, 1, 0, 0, 0, 2},
		{5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4},
		{30, 3, 9},
		slices.Repeat([]byte{1}, r.IntN(20)),
		append([]byte{30, 20}, slices.Repeat([]byte{1}, 18)...),
	}
	var b []byte
	for range r.IntN(6) {
		b = append(b, kinds[r.IntN(len(kinds))]...)
	}
	at := r.IntN(len(b) + 1)
	b = slices.Insert(b, at, drawTimestamps(r)...)
	if r.IntN(8) == 0 {
		b = append(b, drawTimestamps(r)...)
	}
	return b[:min(len(b), 40)]
}

// drawExtensions draws IPv6 extension headers, now and then too many of them.
func drawExtensions(r *rand.Rand) []extension {
	var all []extension
	for range r.IntN(6) {
		units := r.IntN(3)
		e := extension{protocol: []byte{0, 43, 60, 60, 0, 44}[r.IntN(6)], rest: make([]byte, 7+8*units)}
		e.rest[0] = byte(units)
		if e.protocol == 44 {
			e.rest = append(make([]byte, 3), noise(r, 4)...)
		}
		all = append(all, e)
	}
	return all
}
