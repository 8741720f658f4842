package drivertest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

// Limits are the sizes of tables of the switch that a case wants. Zero: the case does not care, a few hundred rows at least.
type Limits struct {
	Hosts, ECMP, Tunnels, Members uint32
}

// Switch is what a case works on: a switch with empty tables, and what can be done to it behind the driver's back.
type Switch struct {
	Driver hardware.Driver
	// Reopen starts another driver on the switch, as a daemon that was restarted does. The suite has closed the one before.
	Reopen func() hardware.Driver
	// RemoveByHand takes away the entry of a VIP without the driver.
	RemoveByHand func(vip netip.Addr)
	// Reboot empties the switch's tables.
	Reboot func()
	// PutForeign adds the entry of another process; HasForeign tells whether it is still as it was added.
	// Nil: the switch is the driver's alone.
	PutForeign func(vip netip.Addr)
	HasForeign func(vip netip.Addr) bool
	// Port is one of the switch's ports, whose link is up.
	Port Port
	// Path is the switch's data path; nil: it has none.
	Path Path
	// KeepsTTL says that the tunnel begins before the packet is forwarded: the inner TTL stays as it is.
	KeepsTTL bool
}

// Config says how to raise switches.
type Config struct {
	// New raises a switch, which lives until the test ends.
	New func(t *testing.T, limits Limits) *Switch
	// Skip names cases that the driver can't pass, each with the reason.
	Skip map[string]string
	// NoPackets says why the driver's switch forwards no packets here; empty: it does, and has a Path.
	NoPackets string
	// Patience bounds a call of the driver; zero: ten seconds.
	Patience time.Duration
}

// suite is one case at work.
type suite struct {
	*testing.T
	*Switch
	capabilities hardware.Capabilities // as they were at first
	patience     time.Duration
}

type testCase struct {
	name   string
	limits Limits
	path   bool // needs a data path
	run    func(s *suite)
}

// Run runs all cases, each on a switch of its own.
func Run(t *testing.T, config Config) {
	known := map[string]bool{}
	for _, c := range cases() {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			if reason := config.Skip[c.name]; reason != "" {
				t.Skip(reason)
			}
			if c.path && config.NoPackets != "" {
				t.Skip(config.NoPackets)
			}
			sw := config.New(t, c.limits)
			if c.path && sw.Path == nil {
				t.Fatal("the switch has no path, and Config.NoPackets does not say why")
			}
			s := &suite{T: t, Switch: sw, patience: config.Patience}
			if s.patience == 0 {
				s.patience = 10 * time.Second
			}
			t.Cleanup(func() {
				if err := s.Driver.Close(); err != nil {
					t.Errorf("close the driver: %v", err)
				}
			})
			s.capabilities = s.caps()
			c.run(s)
		})
	}
	for name := range config.Skip {
		if !known[name] {
			t.Errorf("the case %s to be skipped is not there", name)
		}
	}
}

func cases() []testCase {
	var all []testCase
	all = append(all, tableCases()...)
	all = append(all, limitCases()...)
	all = append(all, lifeCases()...)
	all = append(all, tipCases()...)
	all = append(all, portCases()...)
	return append(all, packetCases()...)
}

func (s *suite) context() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), s.patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *suite) caps() hardware.Capabilities {
	s.Helper()
	c, err := s.Driver.Capabilities(s.context())
	if err != nil {
		s.Fatalf("capabilities: %v", err)
	}
	return c
}

func (s *suite) program(e hardware.Entry) {
	s.Helper()
	if err := s.Driver.Program(s.context(), e); err != nil {
		s.Fatalf("program %s: %v", e.VIP, err)
	}
}

func (s *suite) remove(vip netip.Addr) {
	s.Helper()
	if err := s.Driver.Remove(s.context(), vip); err != nil {
		s.Fatalf("remove %s: %v", vip, err)
	}
}

func (s *suite) boot() string {
	s.Helper()
	id, err := s.Driver.Boot(s.context())
	if err != nil {
		s.Fatalf("boot: %v", err)
	}
	return id
}

func (s *suite) reopen() {
	s.Helper()
	if err := s.Driver.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
	s.Driver = s.Reopen()
}

// wantEntries asserts that the switch has exactly these entries.
func (s *suite) wantEntries(want ...hardware.Entry) {
	s.Helper()
	got, err := s.Driver.Read(s.context())
	if err != nil {
		s.Fatalf("read: %v", err)
	}
	byVIP := map[netip.Addr]hardware.Entry{}
	for i, e := range got {
		if i > 0 && got[i-1].VIP.Compare(e.VIP) >= 0 {
			s.Errorf("read is not by VIP: %s before %s", got[i-1].VIP, e.VIP)
		}
		byVIP[e.VIP] = e
	}
	for _, w := range want {
		e, ok := byVIP[w.VIP]
		if !ok {
			s.Fatalf("the switch has no entry of %s", w.VIP)
		}
		if !e.Equal(w) {
			s.Fatalf("the switch has\n%+v, want\n%+v", e, w)
		}
		delete(byVIP, w.VIP)
	}
	for vip := range byVIP {
		s.Fatalf("the switch has an entry of %s, which nobody programmed", vip)
	}
}

// wantUsed asserts what of the tables is in use, beyond what was at first.
func (s *suite) wantUsed(hosts, ecmp, tunnels uint32) {
	s.Helper()
	c := s.caps()
	type used struct{ hosts, ecmp, tunnels uint32 }
	got := used{c.Hosts.Used - s.capabilities.Hosts.Used, c.ECMP.Used - s.capabilities.ECMP.Used, c.Tunnels.Used - s.capabilities.Tunnels.Used}
	if want := (used{hosts, ecmp, tunnels}); got != want {
		s.Fatalf("tables in use: %+v, want %+v", got, want)
	}
}

// vip and tunnel number addresses; those of one number differ.
func vip(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113 + byte(n>>8), byte(n)})
}

func vip6(n int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:7::%x", n))
}

// Tunnel and Source are the addresses of outer headers that the cases use, so that a Path can route them: tunnels lie in
// 10.64.0.0/16 and fd64::/64.
func Tunnel(v6 bool, n int) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd64::%x", n))
	}
	return netip.AddrFrom4([4]byte{10, 64, byte(n >> 8), byte(n)})
}

// Source is the outer source of entries.
func Source(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr("fd65::1")
	}
	return netip.MustParseAddr("10.65.0.1")
}

// v6 is the family of outer headers that a case takes if either would do.
func (s *suite) v6() bool { return s.capabilities.Outer6 }

// entry is a VIP with members of one entry each, by number.
func (s *suite) entry(vip netip.Addr, members ...int) hardware.Entry {
	return entry(s.v6(), vip, members...)
}

func entry(v6 bool, vip netip.Addr, members ...int) hardware.Entry {
	e := hardware.Entry{VIP: vip, Source: Source(v6)}
	for _, n := range members {
		e.Members = append(e.Members, hardware.Member{Tunnel: Tunnel(v6, n), Entries: 1})
	}
	return e
}

// span returns the numbers from..from+n-1.
func span(from, n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = from + i
	}
	return numbers
}
