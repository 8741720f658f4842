package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

func lifeCases() []testCase {
	return []testCase{
		{name: "a driver that restarts adopts", run: restartAdopts},
		{name: "a driver that restarts changes and removes", run: restartChanges},
		{name: "an entry removed by hand is missed", run: removedByHand},
		{name: "a reboot is seen", run: rebootIsSeen},
		{name: "entries of others stay", run: foreignStays},
		{name: "a VIP of others is not taken", run: foreignVIP},
		{name: "the context has ended", run: contextEnded},
		{name: "the context ends", run: contextEnds},
	}
}

func restartAdopts(s *suite) {
	one, two := s.entry(vip(1), 3, 1, 2), s.entry(vip6(2), 4, 3)
	s.program(one)
	s.program(two)
	s.reopen()
	s.wantEntries(one, two)
	s.wantUsed(2, 5, 4)
	s.program(one)
	s.wantEntries(one, two)
	s.wantUsed(2, 5, 4)
}

func restartChanges(s *suite) {
	one, two := s.entry(vip(1), 3, 1, 2), s.entry(vip6(2), 4, 3)
	s.program(one)
	s.program(two)
	s.reopen()
	one = s.entry(vip(1), 5, 1)
	s.program(one)
	s.wantEntries(one, two)
	s.wantUsed(2, 4, 4)
	s.reopen()
	s.remove(two.VIP)
	s.wantEntries(one)
	s.remove(one.VIP)
	s.wantEntries()
	s.wantUsed(0, 0, 0)
}

func removedByHand(s *suite) {
	one, two := s.entry(vip(1), 1, 2), s.entry(vip(2), 2, 3)
	s.program(one)
	s.program(two)
	s.RemoveByHand(one.VIP)
	s.wantEntries(two)
	s.program(one)
	s.wantEntries(one, two)
	s.wantUsed(2, 4, 3)
}

func rebootIsSeen(s *suite) {
	e := s.entry(vip(1), 1, 2)
	first := s.boot()
	if first == "" {
		s.Fatal("the boot has no name")
	}
	s.program(e)
	if again := s.boot(); again != first {
		s.Fatalf("the boot changed from %q to %q", first, again)
	}
	s.reopen()
	if again := s.boot(); again != first {
		s.Fatalf("the boot changed from %q to %q as the driver restarted", first, again)
	}
	s.Reboot()
	second := s.boot()
	if second == first {
		s.Fatalf("the boot is %q still", second)
	}
	s.wantEntries()
	s.program(e)
	s.wantEntries(e)
	if again := s.boot(); again != second {
		s.Fatalf("the boot changed from %q to %q", second, again)
	}
}

func foreignStays(s *suite) {
	if s.PutForeign == nil {
		s.Skip("the switch is the driver's alone")
	}
	other := vip(77)
	s.PutForeign(other)
	e := s.entry(vip(1), 1, 2)
	s.program(e)
	s.wantEntries(e)
	s.reopen()
	s.wantEntries(e)
	s.remove(e.VIP)
	s.remove(other) // not ours: no effect
	s.wantEntries()
	if !s.HasForeign(other) {
		s.Error("the entry of another process is gone")
	}
}

func foreignVIP(s *suite) {
	if s.PutForeign == nil {
		s.Skip("the switch is the driver's alone")
	}
	other := vip(77)
	s.PutForeign(other)
	s.refused(s.entry(other, 1, 2), "")
	s.wantEntries()
	if !s.HasForeign(other) {
		s.Error("the entry of another process is gone")
	}
}

func contextEnded(s *suite) {
	e := s.entry(vip(1), 1, 2)
	s.program(e)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := s.Driver.Program(ctx, s.entry(e.VIP, 3)); !errors.Is(err, context.Canceled) {
		s.Errorf("program: %v, want that the context has ended", err)
	}
	if err := s.Driver.Remove(ctx, e.VIP); !errors.Is(err, context.Canceled) {
		s.Errorf("remove: %v, want that the context has ended", err)
	}
	if _, err := s.Driver.Read(ctx); !errors.Is(err, context.Canceled) {
		s.Errorf("read: %v, want that the context has ended", err)
	}
	s.wantEntries(e)
}

// contextEnds ends contexts at odd moments: whatever was reached, the VIP has one of the two entries, and the next call works.
func contextEnds(s *suite) {
	one, two := s.entry(vip(1), span(1, 20)...), s.entry(vip(1), span(11, 20)...)
	s.program(one)
	for i := range 12 {
		e := two
		if i%2 == 1 {
			e = one
		}
		ctx, cancel := context.WithTimeout(s.Context(), time.Duration(i*i)*20*time.Microsecond)
		began := time.Now()
		err := s.Driver.Program(ctx, e)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.Fatalf("program: %v", err)
		}
		if took := time.Since(began); took > s.patience {
			s.Fatalf("the call ended %v after its context", took)
		}
		all, err := s.Driver.Read(s.context())
		if err != nil {
			s.Fatal(err)
		}
		if len(all) != 1 || !all[0].Equal(one) && !all[0].Equal(two) {
			s.Fatalf("the switch has %+v, which is neither of the two entries", all)
		}
	}
	s.program(two)
	s.wantEntries(hardware.Entry{VIP: two.VIP, Source: two.Source, Members: two.Members})
	s.wantUsed(1, 20, 20)
}
