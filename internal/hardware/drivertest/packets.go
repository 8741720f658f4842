package drivertest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

func packetCases() []testCase {
	return []testCase{
		{name: "packets reach members", path: true, run: packetsReachMembers},
		{name: "packets of all families", path: true, run: packetsOfFamilies},
		{name: "members get packets by their entries", path: true, limits: Limits{ECMP: 256, Members: 64}, run: sharesFollowEntries},
		{name: "a flow stays with its member", path: true, run: flowsStay},
		{name: "a replacement loses no packets", path: true, run: replaceLosesNothing},
		{name: "another VIP's replacement loses no packets", path: true, run: otherReplaceLosesNothing},
		{name: "packets go to the new members alone", path: true, run: newMembersAlone},
		{name: "a member that leaves takes its flows alone", path: true, run: resilient},
		{name: "what is removed gets no packets", path: true, run: removedGetsNothing},
		{name: "a driver that restarts loses no packets", path: true, run: restartLosesNothing},
		{name: "packets go on past a refusal", path: true, limits: Limits{Tunnels: 6}, run: refusalLosesNothing},
	}
}

func tunnels(e hardware.Entry) []netip.Addr {
	var all []netip.Addr
	for _, m := range e.Members {
		all = append(all, m.Tunnel)
	}
	return all
}

// checked asserts what holds for all packets of entries: the outer addresses, and the inner packet but for its TTL.
func (s *suite) checked(sent []Packet, first uint64, arrived map[uint64]Arrival, entries ...hardware.Entry) {
	s.Helper()
	ttl := uint8(sentTTL - 1)
	if s.KeepsTTL {
		ttl = sentTTL
	}
	for i, p := range sent {
		p.Number = first + uint64(i)
		a, ok := arrived[p.Number]
		switch {
		case !ok:
			s.Fatalf("%d of %d packets came; number %d, %s to %s, did not", len(arrived), len(sent), p.Number, p.Client, p.VIP)
		case a.Problem != "":
			s.Fatalf("packet %d: %s", p.Number, a.Problem)
		case a.Client != p.Client || a.VIP != p.VIP || a.Number != p.Number:
			s.Fatalf("packet %+v came as %+v", p, a.Packet)
		case a.TTL != ttl:
			s.Fatalf("the inner TTL is %d, want %d", a.TTL, ttl)
		}
		if !slices.ContainsFunc(entries, func(e hardware.Entry) bool {
			routed, inside := e.VIP == p.VIP.Addr(), !e.Inner.IsValid()
			if p.TIP.IsValid() {
				routed, inside = e.VIP == p.TIP, e.Inner == p.VIP.Addr()
			}
			return routed && inside && a.Source == e.Source && slices.Contains(tunnels(e), a.Tunnel)
		}) {
			s.Fatalf("packet %d to %s came by a tunnel from %s to %s", p.Number, p.VIP, a.Source, a.Tunnel)
		}
	}
}

func flows(vip netip.Addr, n int) []Packet {
	all := make([]Packet, n)
	for i := range all {
		all[i] = flow(vip, i)
	}
	return all
}

func packetsReachMembers(s *suite) {
	e := s.entry(vip(1), 1, 2, 3, 4)
	s.program(e)
	sent := flows(e.VIP, 200)
	arrived := exchange(s.T, s.Path, sent, 1)
	s.checked(sent, 1, arrived, e)
	reached := map[netip.Addr]bool{}
	for _, a := range arrived {
		reached[a.Tunnel] = true
	}
	if len(reached) != len(e.Members) {
		s.Errorf("200 flows reached %d of %d members", len(reached), len(e.Members))
	}
}

func packetsOfFamilies(s *suite) {
	var entries []hardware.Entry
	var sent []Packet
	for i, outer6 := range []bool{false, true} {
		if outer6 && !s.capabilities.Outer6 || !outer6 && !s.capabilities.Outer4 {
			continue
		}
		for _, address := range []netip.Addr{vip(i + 1), vip6(i + 1)} {
			e := entry(outer6, address, 1, 2, 3)
			entries = append(entries, e)
			sent = append(sent, flows(address, 30)...)
			s.program(e)
		}
	}
	s.checked(sent, 1, exchange(s.T, s.Path, sent, 1), entries...)
}

// sharesFollowEntries bounds each share at a half more and a half less than it should be: a hash of flows is not even.
func sharesFollowEntries(s *suite) {
	e := s.entry(vip(1), 1, 2, 3, 4)
	if s.capabilities.Weights {
		for i := range e.Members {
			e.Members[i].Entries = []uint32{4, 8, 16, 32}[i]
		}
	}
	s.program(e)
	const n = 1500
	sent := flows(e.VIP, n)
	arrived := exchange(s.T, s.Path, sent, 1)
	s.checked(sent, 1, arrived, e)
	got := map[netip.Addr]int{}
	for _, a := range arrived {
		got[a.Tunnel]++
	}
	for _, m := range e.Members {
		want := n * int(m.Entries) / int(e.Rows())
		if got[m.Tunnel] < want/2 || got[m.Tunnel] > want*3/2 {
			s.Errorf("%s with %d of %d entries got %d of %d flows, want about %d", m.Tunnel, m.Entries, e.Rows(), got[m.Tunnel], n, want)
		}
	}
}

func flowsStay(s *suite) {
	e := s.entry(vip6(1), 1, 2, 3, 4, 5)
	s.program(e)
	sent := flows(e.VIP, 100)
	before := exchange(s.T, s.Path, sent, 1)
	s.checked(sent, 1, before, e)
	s.program(s.entry(vip(2), 5, 6)) // another VIP moves none
	s.program(e)
	after := exchange(s.T, s.Path, sent, 1001)
	s.checked(sent, 1001, after, e)
	for i := range uint64(len(sent)) {
		if before[1+i].Tunnel != after[1001+i].Tunnel {
			s.Fatalf("a flow went to %s, then to %s", before[1+i].Tunnel, after[1001+i].Tunnel)
		}
	}
}

// during sends packets of these flows for as long as change runs, 400 at least, and waits for them all.
func (s *suite) during(flows []Packet, change func(), entries ...hardware.Entry) {
	s.Helper()
	done := make(chan struct{})
	type result struct {
		sent []Packet
		err  error
	}
	results := make(chan result, 1)
	const first = 1 << 20
	go func() {
		var r result
		for r.err == nil {
			select {
			case <-done:
				if len(r.sent) >= 400 {
					results <- r
					return
				}
			default:
			}
			p := flows[len(r.sent)%len(flows)]
			p.Number = first + uint64(len(r.sent))
			r.err = s.Path.Send(p)
			r.sent = append(r.sent, p)
			time.Sleep(100 * time.Microsecond)
		}
		results <- r
	}()
	arrived := map[uint64]Arrival{}
	collected := make(chan struct{})
	stop := make(chan int, 1) // how many were sent in all
	go func() {
		defer close(collected)
		want, timeout := -1, make(<-chan time.Time)
		for want < 0 || len(arrived) < want {
			select {
			case a := <-s.Path.Arrivals():
				if a.Number >= first {
					arrived[a.Number] = a
				}
			case want = <-stop:
				timeout = time.After(arrivalTime)
			case <-timeout:
				return
			}
		}
	}()
	change()
	close(done)
	r := <-results
	if r.err != nil {
		s.Errorf("send: %v", r.err)
	}
	stop <- len(r.sent)
	<-collected
	if !s.Failed() {
		s.checked(r.sent, first, arrived, entries...)
	}
}

func replaceLosesNothing(s *suite) {
	one, two, three := s.entry(vip(1), 1, 2, 3, 4), s.entry(vip(1), 5, 6, 7), s.entry(vip(1), 4, 8)
	s.program(one)
	s.during(flows(one.VIP, 500), func() {
		for i := range 60 {
			s.program([]hardware.Entry{two, three, one}[i%3])
		}
	}, one, two, three)
	s.wantEntries(one)
}

func otherReplaceLosesNothing(s *suite) {
	kept := s.entry(vip(1), 1, 2, 3, 4)
	s.program(kept)
	s.during(flows(kept.VIP, 500), func() {
		for i := range 40 {
			s.program(s.entry(vip(2), span(1+i%4, 3)...))
			if i%5 == 4 {
				s.remove(vip(2))
			}
		}
	}, kept)
}

func newMembersAlone(s *suite) {
	for i := range 10 {
		e := s.entry(vip(1), span(1+i%2*4, 4)...)
		s.program(e)
		sent := flows(e.VIP, 50)
		first := uint64(i+1) * 1000
		s.checked(sent, first, exchange(s.T, s.Path, sent, first), e)
	}
}

func resilient(s *suite) {
	if !s.capabilities.Resilient {
		s.Skip("the switch's groups are not resilient")
	}
	e := s.entry(vip(1), 1, 2, 3, 4)
	s.program(e)
	sent := flows(e.VIP, 300)
	before := exchange(s.T, s.Path, sent, 1)
	s.checked(sent, 1, before, e)
	e.Members = slices.Delete(e.Members, 1, 2)
	s.program(e)
	after := exchange(s.T, s.Path, sent, 1001)
	s.checked(sent, 1001, after, e)
	for i := range uint64(len(sent)) {
		was, is := before[1+i].Tunnel, after[1001+i].Tunnel
		if was != is && was != Tunnel(s.v6(), 2) {
			s.Fatalf("a flow of %s went to %s, though another member left", was, is)
		}
	}
}

func removedGetsNothing(s *suite) {
	one, two := s.entry(vip(1), 1, 2), s.entry(vip(2), 1, 2)
	s.program(one)
	s.program(two)
	s.remove(one.VIP)
	for i := range 50 {
		p := flow(one.VIP, i)
		p.Number = uint64(i) + 1
		if err := s.Path.Send(p); err != nil {
			s.Fatal(err)
		}
	}
	sent := flows(two.VIP, 50)
	arrived := exchange(s.T, s.Path, sent, 1) // which would be these
	for _, a := range arrived {
		if a.VIP.Addr() == one.VIP {
			s.Fatalf("a packet to %s, which was removed, came by a tunnel to %s", one.VIP, a.Tunnel)
		}
	}
	s.checked(sent, 1, arrived, two)
}

func restartLosesNothing(s *suite) {
	e := s.entry(vip(1), 1, 2, 3)
	s.program(e)
	s.during(flows(e.VIP, 500), func() {
		for range 3 {
			s.reopen()
			s.program(e)
		}
	}, e)
	s.wantEntries(e)
}

func refusalLosesNothing(s *suite) {
	e := s.entry(vip(1), 1, 2, 3)
	s.program(e)
	s.during(flows(e.VIP, 500), func() {
		for range 20 {
			s.refused(s.entry(e.VIP, span(1, 7)...), hardware.Tunnels)
		}
	}, e)
}
