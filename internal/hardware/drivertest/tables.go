package drivertest

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/hardware"
)

func tableCases() []testCase {
	return []testCase{
		{name: "empty at first", run: emptyAtFirst},
		{name: "read back what was programmed", run: readBack},
		{name: "the same again changes nothing", run: idempotent},
		{name: "replace members", run: replaceMembers},
		{name: "members keep their order", run: memberOrder},
		{name: "weights", run: weights},
		{name: "many members", limits: Limits{ECMP: 1024, Members: 256}, run: manyMembers},
		{name: "VIPs share tunnels", run: sharedTunnels},
		{name: "one VIP changes, others stay", run: othersStay},
		{name: "remove", run: removeEntry},
		{name: "families", run: families},
		{name: "families that the switch has not", run: missingFamilies},
		{name: "invalid entries", run: invalidEntries},
		{name: "random changes", run: randomChanges},
	}
}

func emptyAtFirst(s *suite) {
	s.wantEntries()
	c := s.capabilities
	if c.Driver == "" || len(c.Encapsulations) == 0 || !c.Outer4 && !c.Outer6 {
		s.Errorf("capabilities do not say what the switch can do: %+v", c)
	}
	for name, table := range map[hardware.TableName]hardware.Table{hardware.Hosts: c.Hosts, hardware.ECMP: c.ECMP, hardware.Tunnels: c.Tunnels} {
		if table.Size == 0 || table.Used > table.Size {
			s.Errorf("table %s: %+v", name, table)
		}
	}
	if c.MaxMembers == 0 || c.MaxMembers > c.ECMP.Size {
		s.Errorf("a group has up to %d entries, the table %d", c.MaxMembers, c.ECMP.Size)
	}
}

func readBack(s *suite) {
	one, two := s.entry(vip(1), 1, 2, 3), s.entry(vip6(2), 4)
	s.program(one)
	s.wantEntries(one)
	s.program(two)
	s.wantEntries(one, two)
	s.wantUsed(2, 4, 4)
}

func idempotent(s *suite) {
	e := s.entry(vip(1), 1, 2, 3)
	for range 3 {
		s.program(e)
		s.wantEntries(e)
		s.wantUsed(1, 3, 3)
	}
}

func replaceMembers(s *suite) {
	for _, members := range [][]int{{1, 2, 3}, {1, 2}, {4, 5, 6, 7}, {7}, {1, 2, 3, 4, 5, 6, 7, 8}} {
		e := s.entry(vip(1), members...)
		s.program(e)
		s.wantEntries(e)
		s.wantUsed(1, uint32(len(members)), uint32(len(members)))
	}
}

func memberOrder(s *suite) {
	for _, members := range [][]int{{3, 1, 2}, {2, 1, 3}, {9, 4, 2, 3, 1}} {
		e := s.entry(vip(1), members...)
		s.program(e)
		s.wantEntries(e)
	}
}

func weights(s *suite) {
	e := s.entry(vip(1), 1, 2, 3)
	s.program(e)
	heavy := e.Clone()
	heavy.Members[0].Entries, heavy.Members[2].Entries = 3, 2
	if !s.capabilities.Weights {
		s.refused(heavy, "")
		s.wantEntries(e)
		return
	}
	s.program(heavy)
	s.wantEntries(heavy)
	s.wantUsed(1, 6, 3)
	s.program(e)
	s.wantEntries(e)
	s.wantUsed(1, 3, 3)
}

func manyMembers(s *suite) {
	n := min(s.capabilities.MaxMembers, s.capabilities.Tunnels.Free(), 200)
	e := s.entry(vip(1), span(1, int(n))...)
	s.program(e)
	s.wantEntries(e)
	s.wantUsed(1, n, n)
}

func sharedTunnels(s *suite) {
	one, two := s.entry(vip(1), 1, 2, 3), s.entry(vip(2), 3, 2, 4)
	s.program(one)
	s.program(two)
	s.wantEntries(one, two)
	s.wantUsed(2, 6, 4)
	s.remove(one.VIP)
	s.wantEntries(two)
	s.wantUsed(1, 3, 3)
}

func othersStay(s *suite) {
	one, two, three := s.entry(vip(1), 1, 2), s.entry(vip(2), 2, 3), s.entry(vip6(3), 1, 3)
	for _, e := range []hardware.Entry{one, two, three} {
		s.program(e)
	}
	two = s.entry(two.VIP, 5, 1)
	s.program(two)
	s.wantEntries(one, two, three)
	s.remove(two.VIP)
	s.wantEntries(one, three)
}

func removeEntry(s *suite) {
	s.remove(vip(1)) // which was never there
	e := s.entry(vip(1), 1, 2)
	s.program(e)
	for range 2 {
		s.remove(e.VIP)
		s.wantEntries()
		s.wantUsed(0, 0, 0)
	}
	s.program(e)
	s.wantEntries(e)
}

func families(s *suite) {
	var want []hardware.Entry
	for i, outer6 := range []bool{false, true} {
		if outer6 && !s.capabilities.Outer6 || !outer6 && !s.capabilities.Outer4 {
			continue
		}
		want = append(want, entry(outer6, vip(i+1), 1, 2), entry(outer6, vip6(i+1), 2, 3))
	}
	for _, e := range want {
		s.program(e)
	}
	s.wantEntries(want...)
	// The same VIP by tunnels of the other family.
	if s.capabilities.Outer4 && s.capabilities.Outer6 {
		want[0] = entry(true, want[0].VIP, 1, 2)
		s.program(want[0])
		s.wantEntries(want...)
	}
}

func missingFamilies(s *suite) {
	for _, outer6 := range []bool{false, true} {
		if outer6 && !s.capabilities.Outer6 || !outer6 && !s.capabilities.Outer4 {
			s.refused(entry(outer6, vip(1), 1, 2), "")
		}
	}
	s.wantEntries()
}

func invalidEntries(s *suite) {
	kept := s.entry(vip(1), 1, 2)
	s.program(kept)
	for name, spoil := range map[string]func(e *hardware.Entry){
		"no members":        func(e *hardware.Entry) { e.Members = nil },
		"no address":        func(e *hardware.Entry) { e.VIP = netip.Addr{} },
		"unspecified":       func(e *hardware.Entry) { e.VIP = netip.IPv4Unspecified() },
		"multicast":         func(e *hardware.Entry) { e.VIP = netip.MustParseAddr("224.0.0.5") },
		"loopback":          func(e *hardware.Entry) { e.VIP = netip.MustParseAddr("::1") },
		"mapped":            func(e *hardware.Entry) { e.VIP = netip.MustParseAddr("::ffff:203.0.113.1") },
		"zone":              func(e *hardware.Entry) { e.VIP = netip.MustParseAddr("fe80::1%eth0") },
		"no source":         func(e *hardware.Entry) { e.Source = netip.Addr{} },
		"no entries":        func(e *hardware.Entry) { e.Members[0].Entries = 0 },
		"all entries":       func(e *hardware.Entry) { e.Members[0].Entries, e.Members[1].Entries = 1<<32-1, 1<<32-1 },
		"inside itself":     func(e *hardware.Entry) { e.Inner = e.VIP },
		"sources of no TIP": func(e *hardware.Entry) { e.Sources = []netip.Addr{Source(false)} },
		"sources twice":     func(e *hardware.Entry) { e.Inner, e.Sources = vip(9), []netip.Addr{Source(false), Source(false)} },
		"a source's family": func(e *hardware.Entry) { e.Inner, e.Sources = vip(9), []netip.Addr{Source(true)} },
		"a mapped source": func(e *hardware.Entry) {
			e.Inner, e.Sources = vip(9), []netip.Addr{netip.MustParseAddr("::ffff:10.65.0.1")}
		},
		"far too many sources": func(e *hardware.Entry) {
			e.Inner = vip(9)
			for n := range 300 {
				e.Sources = append(e.Sources, Tunnel(false, n))
			}
		},
		"inside a group":     func(e *hardware.Entry) { e.Inner = netip.MustParseAddr("ff02::1") },
		"a loop":             func(e *hardware.Entry) { e.VIP = e.Members[1].Tunnel },
		"twice":              func(e *hardware.Entry) { e.Members[1].Tunnel = e.Members[0].Tunnel },
		"other family":       func(e *hardware.Entry) { e.Members[1].Tunnel = Tunnel(!s.v6(), 2) },
		"source's family":    func(e *hardware.Entry) { e.Source = Source(!s.v6()) },
		"tunnel is a mapped": func(e *hardware.Entry) { e.Members[0].Tunnel = netip.MustParseAddr("::ffff:10.64.0.1") },
		"far too many members": func(e *hardware.Entry) {
			e.Members = slices.Repeat(e.Members, 1<<16)
		},
	} {
		e := kept.Clone()
		spoil(&e)
		if err := s.Driver.Program(s.context(), e); !isRefusal(err) {
			s.Errorf("%s: got %v, want a *Refusal", name, err)
		}
		s.wantEntries(kept)
	}
}

// randomChanges holds the switch against a map.
func randomChanges(s *suite) {
	random := rand.New(rand.NewPCG(1, 2))
	model := map[netip.Addr]hardware.Entry{}
	vips := []netip.Addr{vip(1), vip(2), vip(3), vip6(1), vip6(2)}
	for range 60 {
		address := vips[random.IntN(len(vips))]
		if random.IntN(4) == 0 {
			s.remove(address)
			delete(model, address)
		} else {
			e := s.entry(address, random.Perm(12)[:1+random.IntN(8)]...)
			for i := range e.Members {
				e.Members[i].Tunnel = e.Members[i].Tunnel.Next() // none ends in zero
				if s.capabilities.Weights {
					e.Members[i].Entries = 1 + random.Uint32N(3)
				}
			}
			s.program(e)
			model[address] = e
		}
		want := make([]hardware.Entry, 0, len(model))
		rows, tunnels := uint32(0), map[netip.Addr]bool{}
		for _, e := range model {
			want = append(want, e)
			rows += e.Rows()
			for _, m := range e.Members {
				tunnels[m.Tunnel] = true
			}
		}
		s.wantEntries(want...)
		s.wantUsed(uint32(len(want)), rows, uint32(len(tunnels)))
	}
}
