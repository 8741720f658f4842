package mux

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/mux/pool"
)

// sometimes is one of the choices, mostly the first.
func sometimes[T any](r *rand.Rand, first T, others ...T) T {
	if len(others) == 0 || r.IntN(4) != 0 {
		return first
	}
	return others[r.IntN(len(others))]
}

func (s scene) v4() bool { return s.vip.Is4() }

// byFamily is v4's or v6's.
func byFamily[T any](s scene, v4, v6 T) T {
	if s.v4() {
		return v4
	}
	return v6
}

const dontFragmentBit = 0x4000

// strangers are sources that nobody can be answered at, and one that can.
func (s scene) strangers() []netip.Addr {
	texts := byFamily(s, []string{"0.0.0.1", "127.0.0.1", "224.0.0.1", "255.255.255.255", "223.255.255.255"},
		[]string{"::", "::1", "ff02::1", "::2", "fe80::1"})
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// adorn gives the packet tags and what else may stand before its transport header.
func (s scene) adorn(r *rand.Rand, f draft) draft {
	f.vlans = r.IntN(3)
	f.padding = sometimes(r, 0, r.IntN(30))
	if s.v4() {
		f.options = slices.Repeat([]byte{1}, sometimes(r, 0, 4*r.IntN(11)))
	} else if r.IntN(4) == 0 {
		f.extend = drawExtensions(r)
	}
	return f
}

// pools are those of the other encapsulations.
func inGUE(p pool.Settings) pool.Settings {
	p.Encapsulation = pool.GUE
	return p
}

func spreadOut(p pool.Settings) pool.Settings {
	p.Prefix4, p.Prefix6 = netip.MustParsePrefix("10.255.4.0/22"), netip.MustParsePrefix("fd00:ff:1::/64")
	return p
}

func narrow(p pool.Settings) pool.Settings {
	p.MTU = 500
	return p
}

func tooBigClasses(s scene) []oracleClass {
	draw := func(least, most int) func(*rand.Rand) draft {
		return func(r *rand.Rand) draft {
			from, to := s.ends(r, everyPort...)
			from = netip.AddrPortFrom(sometimes(r, from.Addr(), s.strangers()...), from.Port())
			f := draftUDP(from, to, least+r.IntN(most-least), r)
			if r.IntN(2) == 0 {
				f = draftTCP(from, to, drawFlags(r), drawOptions(r), least+r.IntN(most-least), r)
			}
			f.fragment = uint16(r.IntN(3)) / 2 << 14
			if r.IntN(2) == 0 {
				f.fragment = dontFragmentBit
			}
			return s.adorn(r, f)
		}
	}
	more := byFamily(s, []string{"punt_split", "drop_too_big"}, nil)
	return []oracleClass{
		{name: "too-big", verdict: "reply_too_big", more: more, draw: draw(testMTU-120, testMTU+80)},
		{name: "too-big-gue", verdict: "reply_too_big", more: more, draw: draw(testMTU-120, testMTU+80), settings: inGUE},
		{name: "too-big-narrow", verdict: "reply_too_big", more: more, draw: draw(400, 480), settings: narrow},
	}
}

func icmpClasses(s scene) []oracleClass {
	errors := func(r *rand.Rand) draft {
		if r.IntN(4) == 0 { // a flow to be remembered
			return s.drawTold(r)
		}
		return s.adorn(r, s.drawError(r))
	}
	more := []string{"punt_icmp", "pass_icmp"}
	return []oracleClass{
		{name: "echo", verdict: "reply_echo", more: []string{"drop_echo", "pass_icmp"}, draw: func(r *rand.Rand) draft {
			return s.adorn(r, s.drawEcho(r, r.IntN(80)))
		}},
		{name: "echo-long", verdict: "reply_echo", draw: func(r *rand.Rand) draft {
			return s.drawEcho(r, sometimes(r, r.IntN(1472), 1472, 2400))
		}},
		{name: "icmp-kinds", verdict: "pass_icmp", draw: func(r *rand.Rand) draft {
			f := s.adorn(r, s.drawEcho(r, r.IntN(40)))
			f.transport[0], f.transport[1] = byte(r.Uint32()), byte(r.IntN(3))
			f.protocol = sometimes[byte](r, f.protocol, 1, 58)
			return f
		}},
		{name: "icmp-error", verdict: "forward_icmp", more: append(more, "drop_no_next_hop"), draw: errors},
		{name: "icmp-error-gue", verdict: "forward_icmp", more: more, draw: errors, settings: inGUE},
		{name: "icmp-error-spread", verdict: "forward_icmp", more: more, draw: errors, settings: spreadOut},
		{name: "icmp-error-narrow", verdict: "forward_icmp", more: append(more, "drop_too_big"), draw: errors, settings: func(p pool.Settings) pool.Settings {
			p.MTU = 150
			return p
		}},
	}
}

func (s scene) drawEcho(r *rand.Rand, payload int) draft {
	f := draft{from: oracleAddress(r, s.vip), to: sometimes(r, s.vip, s.allPorts, s.other), ttl: byte(r.Uint32()), sumAt: 2}
	f.from = sometimes(r, f.from, s.strangers()...)
	f.tos, f.id, f.protocol = byte(r.Uint32()), uint16(r.Uint32()), byFamily[byte](s, 1, 58)
	f.transport = []byte{byFamily[byte](s, 8, 128), sometimes[byte](r, 0, 1), 0, 0}
	f.transport = append(f.transport, noise(r, 4+payload)...)
	return f
}

// toldEnds are of few flows, so that what is remembered of one is asked for.
func (s scene) toldEnds(r *rand.Rand) (client, vip netip.AddrPort) {
	client, vip = s.ends(r, everyPort...)
	if r.IntN(4) == 0 {
		vip = netip.AddrPortFrom(s.allPorts, uint16(80+r.IntN(3)))
	}
	if s.v4() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(r.IntN(4))}), client.Port()), vip
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 15: byte(r.IntN(4))}), client.Port()), vip
}

func (s scene) drawTold(r *rand.Rand) draft {
	client, vip := s.toldEnds(r)
	if r.IntN(2) == 0 {
		return draftUDP(client, vip, 8, r)
	}
	return draftTCP(client, vip, sometimes[byte](r, 0x10, 0x02), nil, 8, r)
}

// drawError is about a packet that a VIP sent, which it quotes from all of it to too little.
func (s scene) drawError(r *rand.Rand) draft {
	client, vip := s.toldEnds(r)
	sent := draftUDP(vip, client, r.IntN(80), r)
	if r.IntN(3) != 0 {
		sent = draftTCP(vip, client, drawFlags(r), sometimes(r, drawOptions, alignedTimestamps, lastTimestamps)(r), r.IntN(80), r)
	}
	if s.answers && r.IntN(3) == 0 {
		sent = s.drawPing(r, vip, client.Addr(), 8, 128, r.IntN(80))
	}
	sent.fragment = sometimes[uint16](r, dontFragmentBit, 0, 0x2000, 7)
	if !s.v4() {
		sent.extend = sometimes(r, nil, drawExtensions(r))
	} else {
		sent.options = slices.Repeat([]byte{1}, sometimes(r, 0, 4*r.IntN(11)))
	}
	quote := sent.frame()[14:]
	switch r.IntN(4) {
	case 0: // RFC 792: the header and 8 bytes
		quote = quote[:min(len(quote), byFamily(s, 28, 48))]
	case 1, 2:
		quote = quote[:r.IntN(len(quote)+1)]
	}
	f := draft{
		from: sometimes(r, oracleAddress(r, s.vip), s.strangers()...), to: sometimes(r, vip.Addr(), s.vip, s.other), ttl: 64, sumAt: 2,
		tos: 0xc0, id: uint16(r.Uint32()), protocol: byFamily[byte](s, 1, 58),
	}
	kinds := byFamily(s, []byte{3, 11, 12, 4, 5}, []byte{1, 2, 3, 4, 0, 5})
	f.transport = append([]byte{kinds[r.IntN(len(kinds))], byte(r.IntN(5)), 0, 0}, noise(r, 4)...)
	f.transport = append(f.transport, quote...)
	return f
}

func fragmentClasses(s scene) []oracleClass {
	any := func(r *rand.Rand) draft { return s.adornFragment(r, s.drawFragment(r, r.IntN(60))) }
	early := []string{"punt_fragment", "pass_fragment", "drop_no_backend", "drop_no_next_hop"}
	return []oracleClass{
		{name: "fragments", verdict: "forward_fragment", more: append(early, "relay_fragment"), draw: any},
		{name: "fragments-alone", verdict: "forward_fragment", more: early, draw: any, alone: true},
		{name: "fragments-spread", verdict: "forward_fragment", more: append(early, "relay_fragment"), draw: any, settings: func(p pool.Settings) pool.Settings {
			return spreadOut(inGUE(p))
		}},
		{name: "fragments-big", verdict: "reply_too_big", draw: func(r *rand.Rand) draft {
			return s.adornFragment(r, s.drawFragment(r, testMTU-180+r.IntN(120)))
		}, more: byFamily(s, []string{"punt_split", "drop_too_big"}, nil)},
		{name: "relayed", verdict: "forward_fragment", more: []string{"punt_fragment", "drop_not_a_mux", "drop_relay_invalid"}, draw: s.drawRelayed},
		{name: "relayed-narrow", verdict: "forward_fragment", more: []string{"drop_too_big"}, draw: s.drawRelayed, settings: func(p pool.Settings) pool.Settings {
			p.MTU = 120
			return p
		}},
	}
}

// drawFragment is of few datagrams.
func (s scene) drawFragment(r *rand.Rand, payload int) draft {
	client, vip := s.toldEnds(r)
	if r.IntN(16) == 0 {
		vip = netip.AddrPortFrom(s.other, vip.Port())
	}
	f := draftUDP(client, vip, payload, r)
	if r.IntN(2) == 0 {
		f = draftTCP(client, vip, drawFlags(r), drawOptions(r), payload, r)
	}
	if s.answers && r.IntN(3) == 0 {
		f = s.drawPing(r, client, vip.Addr(), 0, 129, payload)
		binary.BigEndian.PutUint16(f.transport[4:], vip.Port())
	}
	f.protocol = sometimes(r, f.protocol, f.protocol, f.protocol, 47)
	f.id = uint16(r.IntN(4)) << 8
	offset, more := sometimes[uint16](r, 0, uint16(1+r.IntN(180)), 0x1fff), uint16(1)
	if r.IntN(2) == 0 {
		offset = uint16(1 + r.IntN(180))
	}
	if offset > 0 {
		f.transport, f.sumAt, more = noise(r, 8+payload), 0, uint16(r.IntN(2))
	}
	f.fragment = more<<13 | offset | sometimes[uint16](r, 0, dontFragmentBit)
	if !s.v4() {
		word := offset<<3 | more
		id := []byte{0, 0, byte(f.id >> 8), 7}
		f.extend = []extension{{protocol: 44, rest: append([]byte{0, byte(word >> 8), byte(word)}, id...)}}
	}
	return f
}

// adornFragment has headers before that of the fragment, and sometimes behind it.
func (s scene) adornFragment(r *rand.Rand, f draft) draft {
	own := f.extend
	f = s.adorn(r, f)
	if s.v4() {
		return f
	}
	f.extend = append(sometimes(r, nil, drawExtensions(r)), own...)
	if r.IntN(16) == 0 {
		f.extend = append(f.extend, drawExtensions(r)...)
	}
	return f
}

// drawRelayed is what another mux relays to us, or somebody else; its outer header is s's family's.
func (s scene) drawRelayed(r *rand.Rand) draft {
	way := byFamily(s, 0, 1)
	from := sometimes(r, oracleMembers[3].Addresses[way], oracleMembers[4].Addresses[way], s.other, s.strangers()[0])
	to := sometimes(r, oracleMembers[0].Addresses[way], from, s.strangers()[0])
	inside := s
	if r.IntN(2) == 0 {
		inside = scene{vip: oracleVIPs[1-way], allPorts: oracleAllPorts[1-way], other: oracleOthers[1-way], snat: oracleSNAT[1-way], answers: s.answers}
	}
	packet := inside.adornFragment(r, inside.drawFragment(r, r.IntN(60)))
	if r.IntN(8) == 0 {
		packet = inside.any(r)
	}
	packet.vlans, packet.padding = 0, 0
	gue := []byte{2, byFamily[byte](inside, 4, 41), 0, 0, 1, 0, 2, 0, 0, 0, 0, 0}
	if r.IntN(8) == 0 {
		gue[r.IntN(len(gue))] = byte(r.IntN(8))
	}
	payload := slices.Concat(gue, packet.frame()[14:])
	f := draftUDP(netip.AddrPortFrom(from, uint16(49152+r.IntN(16384))), netip.AddrPortFrom(to, 6080), 0, r)
	f.transport = append(f.transport, payload...)
	binary.BigEndian.PutUint16(f.transport[4:], uint16(len(f.transport)))
	return s.adorn(r, f)
}
