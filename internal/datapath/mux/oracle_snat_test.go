package mux

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// answerVerdicts are the classes that are drawn once more of answers to workloads that left as VIPs, with
// what they must produce then.
var answerVerdicts = map[string]string{
	"tcp": "forward_snat", "udp": "forward_snat", "syn": "forward_snat", "not-for-us": "drop_no_range", "no-source": "drop_no_source",
	"cookie": "forward_snat", "gue": "forward_snat", "spread": "forward_snat", "spread-gue": "forward_snat",
	"vlan": "forward_snat", "padding": "forward_snat", "options": "forward_snat", "extensions": "forward_snat",
	"too-big": "reply_too_big", "too-big-gue": "reply_too_big", "too-big-narrow": "reply_too_big",
	"icmp-error": "forward_icmp", "icmp-error-gue": "forward_icmp", "icmp-error-spread": "forward_icmp",
	"fragments": "forward_fragment", "fragments-alone": "forward_fragment", "fragments-spread": "forward_fragment",
	"relayed": "forward_fragment",
}

// allClasses are the family's, and those of source NAT.
func allClasses(s scene) []oracleClass {
	classes := familyClasses(s)
	s.answers = true
	for _, c := range familyClasses(s) {
		verdict, drawn := answerVerdicts[c.name]
		if !drawn {
			continue
		}
		c.name, c.verdict, c.more, c.snat = "snat-"+c.name, verdict, nil, true
		classes = append(classes, c)
	}
	echo := oracleClass{name: "snat-echo", verdict: "forward_snat", more: []string{"drop_no_range", "drop_no_next_hop", "reply_echo"}, snat: true}
	echo.draw = func(r *rand.Rand) draft {
		client, vip := s.ends(r, everyPort...)
		f := s.drawPing(r, client, vip.Addr(), sometimes[byte](r, 0, 8), sometimes[byte](r, 129, 128), sometimes(r, r.IntN(80), 1472, 1440+r.IntN(60)))
		binary.BigEndian.PutUint16(f.transport[4:], vip.Port())
		return s.adorn(r, f)
	}
	gue := echo
	gue.name, gue.settings = "snat-echo-gue", inGUE
	spread := echo
	spread.name, spread.settings = "snat-echo-spread", spreadOut
	return slices.Concat(classes, []oracleClass{echo, gue, spread})
}

// drawPing is an echo request or its answer, with the port of from as its identifier.
func (s scene) drawPing(r *rand.Rand, from netip.AddrPort, to netip.Addr, v4, v6 byte, payload int) draft {
	f := draft{from: from.Addr(), to: to, ttl: 64, tos: byte(r.Uint32()), id: uint16(r.Uint32()), sumAt: 2}
	f.protocol = byFamily[byte](s, 1, 58)
	f.transport = []byte{byFamily(s, v4, v6), 0, 0, 0}
	f.transport = binary.BigEndian.AppendUint16(f.transport, from.Port())
	f.transport = append(f.transport, noise(r, 2+payload)...)
	return f
}
