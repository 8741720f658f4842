package drivertest

import (
	"errors"

	"github.com/weirlb/weir/internal/hardware"
)

func limitCases() []testCase {
	return []testCase{
		{name: "table hosts is full", limits: Limits{Hosts: 4}, run: hostsFull},
		{name: "table ecmp is full", limits: Limits{ECMP: 12, Members: 12}, run: ecmpFull},
		{name: "table tunnels is full", limits: Limits{Tunnels: 8}, run: tunnelsFull},
		{name: "a group is full", limits: Limits{ECMP: 64, Members: 8}, run: groupFull},
		{name: "an entry that is refused changes nothing", limits: Limits{Tunnels: 6, ECMP: 16, Members: 16}, run: refusedWhole},
		{name: "a replacement that is refused keeps the entry before", limits: Limits{Tunnels: 6}, run: refusedReplacement},
		{name: "what was removed is free again", limits: Limits{Hosts: 3, ECMP: 12, Members: 4, Tunnels: 8}, run: freeAgain},
	}
}

func isRefusal(err error) bool {
	var refusal *hardware.Refusal
	return errors.As(err, &refusal)
}

// refused asserts that the switch refuses an entry for want of room in a table, or, without one, tells a reason.
func (s *suite) refused(e hardware.Entry, table hardware.TableName) (need, free uint32) {
	s.Helper()
	err := s.Driver.Program(s.context(), e)
	var refusal *hardware.Refusal
	if !errors.As(err, &refusal) {
		s.Fatalf("program %s with %d members: got %v, want a *Refusal", e.VIP, len(e.Members), err)
	}
	switch {
	case refusal.VIP != e.VIP:
		s.Errorf("the refusal is of %s, want %s", refusal.VIP, e.VIP)
	case refusal.Table != table:
		s.Errorf("the refusal names table %q, want %q: %v", refusal.Table, table, refusal)
	case table == "" && refusal.Reason == "":
		s.Error("the refusal has no reason")
	case table != "" && refusal.Need <= refusal.Free:
		s.Errorf("refused although %d rows fit in %d", refusal.Need, refusal.Free)
	}
	return refusal.Need, refusal.Free
}

func (s *suite) refusedFor(e hardware.Entry, table hardware.TableName, need, free uint32) {
	s.Helper()
	if gotNeed, gotFree := s.refused(e, table); gotNeed != need || gotFree != free {
		s.Errorf("refused with need %d and free %d, want %d and %d", gotNeed, gotFree, need, free)
	}
}

func hostsFull(s *suite) {
	var all []hardware.Entry
	for i := range s.capabilities.Hosts.Free() {
		all = append(all, s.entry(vip(int(i)+1), 1, 2))
		s.program(all[i])
	}
	s.wantEntries(all...)
	s.refusedFor(s.entry(vip(200), 1, 2), hardware.Hosts, 1, 0)
	s.wantEntries(all...)
	// One that is there may still change.
	all[0] = s.entry(all[0].VIP, 2, 1)
	s.program(all[0])
	s.wantEntries(all...)
}

func ecmpFull(s *suite) {
	one, two := s.entry(vip(1), span(1, 8)...), s.entry(vip(2), span(1, 4)...)
	s.program(one)
	s.program(two)
	s.wantEntries(one, two)
	if free := s.caps().ECMP.Free(); free != 0 {
		s.Fatalf("%d rows are free, want 0", free)
	}
	s.program(one) // the same needs no room
	s.refusedFor(s.entry(vip(3), 1, 2), hardware.ECMP, 2, 0)
	s.wantEntries(one, two)
	s.remove(two.VIP)
	s.refusedFor(s.entry(vip(3), span(1, 5)...), hardware.ECMP, 5, 4)
	three := s.entry(vip(3), span(1, 4)...)
	s.program(three)
	s.wantEntries(one, three)
}

func tunnelsFull(s *suite) {
	one := s.entry(vip(1), span(1, 8)...)
	s.program(one)
	s.refusedFor(s.entry(vip(2), 8, 9), hardware.Tunnels, 1, 0)
	two := s.entry(vip(2), 8, 1) // shares rows
	s.program(two)
	s.wantEntries(one, two)
}

func groupFull(s *suite) {
	e := s.entry(vip(1), span(1, 8)...)
	s.program(e)
	s.refusedFor(s.entry(vip(2), span(1, 9)...), hardware.Members, 9, 8)
	if s.capabilities.Weights {
		heavy := s.entry(vip(2), 1, 2)
		heavy.Members[0].Entries = 8
		s.refusedFor(heavy, hardware.Members, 9, 8)
		heavy.Members[0].Entries = 7
		s.program(heavy)
		s.wantEntries(e, heavy)
		return
	}
	s.wantEntries(e)
}

func refusedWhole(s *suite) {
	kept := s.entry(vip(1), 1, 2, 3)
	s.program(kept)
	before := s.caps()
	s.refusedFor(s.entry(vip(2), span(1, 7)...), hardware.Tunnels, 4, 3)
	s.wantEntries(kept)
	if after := s.caps(); after.Hosts != before.Hosts || after.ECMP != before.ECMP || after.Tunnels != before.Tunnels {
		s.Errorf("tables changed from %+v to %+v", before, after)
	}
	fits := s.entry(vip(2), span(1, 6)...)
	s.program(fits)
	s.wantEntries(kept, fits)
}

func refusedReplacement(s *suite) {
	e := s.entry(vip(1), 1, 2, 3)
	s.program(e)
	s.refusedFor(s.entry(e.VIP, span(1, 7)...), hardware.Tunnels, 4, 3)
	s.wantEntries(e)
	s.wantUsed(1, 3, 3)
	e = s.entry(e.VIP, span(1, 6)...)
	s.program(e)
	s.wantEntries(e)
}

func freeAgain(s *suite) {
	for round := range 20 {
		one, two, three := s.entry(vip(round+1), 1, 2, 3, 4), s.entry(vip(round+2), 5, 6, 7, 8), s.entry(vip6(round+3), 8, 7, 6, 1)
		for _, e := range []hardware.Entry{one, two, three} {
			s.program(e)
		}
		s.wantEntries(one, two, three)
		for _, e := range []hardware.Entry{one, two, three} {
			s.remove(e.VIP)
		}
		s.wantUsed(0, 0, 0)
	}
}
