package drivertest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

func tipCases() []testCase {
	return []testCase{
		{name: "a TIP is read back", run: tipReadBack},
		{name: "a TIP's packets reach members", path: true, run: tipReachesMembers},
		{name: "a TIP is for its VIP alone", path: true, run: tipForItsVIPAlone},
		{name: "a TIP takes packets from its sources alone", path: true, run: tipFromItsSourcesAlone},
		{name: "a TIP's replacement loses no packets", path: true, run: tipReplaceLosesNothing},
	}
}

// tip is an entry that takes off an outer header.
func (s *suite) tip(address, inner netip.Addr, members ...int) hardware.Entry {
	e := s.entry(address, members...)
	e.Inner = inner
	return e
}

// needsTIPs ends the case on a switch that has none: it must refuse them.
func (s *suite) needsTIPs() {
	s.Helper()
	if s.capabilities.TIPs {
		return
	}
	e := s.entry(vip(1), 1, 2)
	s.program(e)
	s.refused(s.tip(e.VIP, vip(9), 1, 2), "")
	s.wantEntries(e)
	s.SkipNow()
}

func tipReadBack(s *suite) {
	s.needsTIPs()
	one, two := s.tip(vip(1), vip(9), 1, 2), s.entry(vip(9), 2, 3)
	s.program(one)
	s.program(two)
	s.wantEntries(one, two)
	s.wantUsed(2, 4, 3)
	for _, inner := range []netip.Addr{vip6(9), {}, vip(8)} { // of another VIP, none, and again one
		one.Inner = inner
		s.program(one)
		s.wantEntries(one, two)
		s.wantUsed(2, 4, 3)
	}
	for _, sources := range [][]netip.Addr{{Tunnel(false, 7), Source(false)}, {Source(false)}, {}, {Source(false)}} {
		one.Sources = sources
		s.program(one)
		s.wantEntries(one, two)
	}
	s.reopen()
	s.wantEntries(one, two)
	s.remove(one.VIP)
	s.wantEntries(two)
}

// inside sends packets in an outer header to a TIP.
func inside(tip netip.Addr, packets []Packet) []Packet {
	packets = slices.Clone(packets)
	for i := range packets {
		packets[i].From, packets[i].TIP = Source(tip.Is6()), tip
	}
	return packets
}

func tipReachesMembers(s *suite) {
	s.needsTIPs()
	var entries []hardware.Entry
	var sent []Packet
	for i, tip := range []netip.Addr{vip(1), vip6(1), vip(2), vip6(2)} {
		if tip.Is6() && !s.capabilities.Outer6 || tip.Is4() && !s.capabilities.Outer4 {
			continue
		}
		e := s.tip(tip, []netip.Addr{vip(9), vip6(9)}[i/2], 1, 2, 3)
		entries = append(entries, e)
		sent = append(sent, inside(tip, flows(e.Inner, 40))...)
		s.program(e)
	}
	arrived := exchange(s.T, s.Path, sent, 1)
	s.checked(sent, 1, arrived, entries...)
	reached := map[netip.Addr]bool{}
	for _, a := range arrived {
		reached[a.Tunnel] = true
	}
	if len(reached) != 3 {
		s.Errorf("%d flows reached %d of 3 members", len(sent), len(reached))
	}
}

// tipForItsVIPAlone: what is inside for others, what is in no header, and the VIP's own packets are not the TIP's.
func tipForItsVIPAlone(s *suite) {
	s.needsTIPs()
	address := vip(1)
	if !s.capabilities.Outer4 {
		address = vip6(1)
	}
	e, other := s.tip(address, vip(9), 1, 2), s.entry(vip(3), 1, 2)
	s.program(e)
	s.program(other)
	stray := inside(e.VIP, flows(other.VIP, 10))
	stray = append(stray, inside(e.VIP, flows(vip(4), 10))...)
	stray = append(stray, inside(other.VIP, flows(e.Inner, 10))...)
	stray = append(stray, flows(e.Inner, 10)...)
	stray = append(stray, flows(e.VIP, 10)...)
	s.comeAlone(inside(e.VIP, flows(e.Inner, 20)), stray, 1, e)
}

// comeAlone sends packets, some before that are not to come, and asserts that the others do.
func (s *suite) comeAlone(sent, stray []Packet, first uint64, e hardware.Entry) {
	s.Helper()
	const strangers = 1000
	for i, p := range stray {
		p.Number = first + strangers + uint64(i)
		if err := s.Path.Send(p); err != nil {
			s.Fatal(err)
		}
	}
	for i, p := range sent {
		p.Number = first + uint64(i)
		if err := s.Path.Send(p); err != nil {
			s.Fatal(err)
		}
	}
	arrived := map[uint64]Arrival{}
	for timeout := time.After(arrivalTime); len(arrived) < len(sent); {
		select {
		case a := <-s.Path.Arrivals():
			if a.Number >= first+strangers {
				s.Fatalf("packet %+v came by a tunnel from %s to %s", stray[a.Number-first-strangers], a.Source, a.Tunnel)
			}
			arrived[a.Number] = a
		case <-timeout:
			s.Fatalf("%d of %d packets came", len(arrived), len(sent))
		}
	}
	s.checked(sent, first, arrived, e)
}

// tipFromItsSourcesAlone: packets of others are dropped, also those of a switch that is taken off the list, and those of one
// that is put on it are not.
func tipFromItsSourcesAlone(s *suite) {
	s.needsTIPs()
	address, v6 := vip(1), false
	if !s.capabilities.Outer4 {
		address, v6 = vip6(1), true
	}
	e, other := s.tip(address, vip(9), 1, 2), Tunnel(v6, 77)
	own := inside(e.VIP, flows(e.Inner, 20))
	others := slices.Clone(own)
	for i := range others {
		others[i].From = other
	}
	for round, step := range []struct {
		sources     []netip.Addr
		sent, stray []Packet
	}{
		{nil, slices.Concat(own, others), nil},
		{[]netip.Addr{Source(v6)}, own, others},
		{[]netip.Addr{other}, others, own},
		{[]netip.Addr{Source(v6), other}, slices.Concat(own, others), nil},
	} {
		e.Sources = slices.SortedFunc(slices.Values(step.sources), netip.Addr.Compare)
		s.program(e)
		s.comeAlone(step.sent, step.stray, uint64(round)*10000+1, e)
	}
}

func tipReplaceLosesNothing(s *suite) {
	s.needsTIPs()
	address := vip(1)
	if !s.capabilities.Outer4 {
		address = vip6(1)
	}
	one, two := s.tip(address, vip(9), 1, 2, 3, 4), s.tip(address, vip(9), 5, 6)
	s.program(one)
	s.during(inside(address, flows(one.Inner, 500)), func() {
		for i := range 20 {
			s.program([]hardware.Entry{two, one}[i%2])
		}
	}, one, two)
}
