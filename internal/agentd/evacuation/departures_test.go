package evacuation

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
)

// clients count how often they were asked.
type clients struct{ asked int }

func (c *clients) Ask() error {
	c.asked++
	return nil
}

// host has workloads: those that are here, and those that have departed.
type host struct {
	*Departures
	t        *testing.T
	time     time.Time
	here     map[netip.Addr]bool
	departed []netip.Addr
}

func newHost(t *testing.T, here ...netip.Addr) *host {
	l := &host{t: t, time: time.Unix(1_700_000_000, 0), here: map[netip.Addr]bool{}}
	for _, a := range here {
		l.here[a] = true
	}
	l.Departures = &Departures{
		log: slog.New(slog.DiscardHandler), now: func() time.Time { return l.time }, leaving: map[netip.Addr]time.Time{},
		locate: func(all []netip.Addr) (_ map[netip.Addr]int, missing map[netip.Addr]string, _ error) {
			missing = map[netip.Addr]string{}
			for _, a := range all {
				if !l.here[a] {
					missing[a] = "gone"
				}
			}
			return nil, missing, nil
		},
		depart: func(workloads map[netip.Addr]bool) (session.EvacuatedSessions, error) {
			l.departed = slices.AppendSeq(l.departed, maps.Keys(workloads))
			return session.EvacuatedSessions{}, nil
		},
	}
	return l
}

// expect looks, and holds which have departed until now.
func (l *host) expect(when string, want ...netip.Addr) {
	l.t.Helper()
	if err := l.evacuate(); err != nil {
		l.t.Fatal(err)
	}
	if !slices.Equal(l.departed, want) {
		l.t.Fatalf("%s: departed are %v, want %v", when, l.departed, want)
	}
}

// TestDepartures takes two backends from a host: one lives on it for a while yet, one for long.
func TestDepartures(t *testing.T) {
	stays, moves := netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd00:1::6")
	l := newHost(t, stays, moves)
	backend := func(a netip.Addr) model.HostBackend {
		return model.HostBackend{Backend: netip.AddrPortFrom(a, 80)}
	}
	l.Set([]model.HostBackend{backend(stays), backend(moves)})
	delete(l.here, moves)
	l.expect("down, and a backend yet")
	l.here[moves] = true
	l.Set(nil)
	l.expect("no backend, and still here")
	delete(l.here, moves)
	l.expect("gone", moves)
	l.expect("a second look", moves)
	l.Set([]model.HostBackend{backend(stays)})
	delete(l.here, stays)
	l.expect("a backend again, and down", moves)
	l.Set(nil)
	l.here[stays] = true
	l.time = l.time.Add(evacuateWithin + time.Second)
	l.expect("here for long", moves)
	delete(l.here, stays)
	l.expect("gone after long", moves)
}

// A workload whose connections could not be looked after is not forgotten.
func TestADepartureThatFailsIsTriedAgain(t *testing.T) {
	moves := netip.MustParseAddr("10.1.0.5")
	l := newHost(t, moves)
	depart, failure := l.depart, errors.New("no memory")
	l.depart = func(map[netip.Addr]bool) (session.EvacuatedSessions, error) {
		return session.EvacuatedSessions{}, failure
	}
	l.Set([]model.HostBackend{{Backend: netip.AddrPortFrom(moves, 80)}})
	l.Set(nil)
	delete(l.here, moves)
	if err := l.evacuate(); !errors.Is(err, failure) {
		t.Fatalf("got %v, want %v", err, failure)
	}
	l.depart = depart
	l.expect("the second try", moves)
	l.expect("a third look", moves)
}

func TestClientsAreAskedAgain(t *testing.T) {
	now, c := time.Unix(1_700_000_000, 0), &clients{}
	d := &Departures{now: func() time.Time { return now }}
	d.scheduleProbes(c, now)
	for i, after := range probeTimes {
		for _, at := range []time.Duration{after - time.Millisecond, after} {
			now = time.Unix(1_700_000_000, 0).Add(at)
			if err := d.evacuate(); err != nil {
				t.Fatal(err)
			}
			want := i
			if at == after {
				want++
			}
			if c.asked != want {
				t.Errorf("asked %d times after %s, want %d", c.asked, at, want)
			}
		}
	}
	if len(d.probes) != 0 {
		t.Errorf("%d are asked for ever", len(d.probes))
	}
}
