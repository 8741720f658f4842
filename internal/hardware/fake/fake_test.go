package fake_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/hardware/fake"
)

func TestDriver(t *testing.T) {
	for name, change := range map[string]func(*hardware.Capabilities){
		"all":          func(*hardware.Capabilities) {},
		"no TIPs":      func(c *hardware.Capabilities) { c.TIPs = false },
		"no weights":   func(c *hardware.Capabilities) { c.Weights = false },
		"IPv4 tunnels": func(c *hardware.Capabilities) { c.Outer6 = false },
		"IPv6 tunnels": func(c *hardware.Capabilities) { c.Outer4 = false },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Config{NoPackets: "it is in memory", New: func(_ *testing.T, limits drivertest.Limits) *drivertest.Switch {
				s := fake.New(fake.Limits(limits))
				s.SetCapabilities(change)
				port := hardware.Port{Name: "port1", Up: true, MbitPerS: 1000}
				set := func(change func(p *hardware.Port)) {
					change(&port)
					s.SetPorts(port, hardware.Port{Name: "port0"})
				}
				set(func(*hardware.Port) {})
				return &drivertest.Switch{
					Driver: s.Open(), Reopen: func() hardware.Driver { return s.Open() },
					RemoveByHand: s.RemoveByHand, Reboot: s.Reboot, PutForeign: s.PutForeign, HasForeign: s.HasForeign,
					Port: drivertest.Port{
						Name:     port.Name,
						SetUp:    func(up bool) { set(func(p *hardware.Port) { p.Up = up }) },
						Exchange: func() { set(func(p *hardware.Port) { p.Received, p.Sent = p.Received+1, p.Sent+1 }) },
						Hear:     func(system, of string) { set(func(p *hardware.Port) { p.Neighbour, p.NeighbourPort = system, of }) },
					},
				}
			}})
		})
	}
}

var entry = hardware.Entry{
	VIP: netip.MustParseAddr("203.0.113.1"), Source: netip.MustParseAddr("10.0.0.1"),
	Members: []hardware.Member{{Tunnel: netip.MustParseAddr("10.0.0.2"), Entries: 1}},
}

func TestRefuse(t *testing.T) {
	s := fake.New(fake.Limits{})
	want := &hardware.Refusal{VIP: entry.VIP, Reason: "because"}
	s.Refuse(entry.VIP, want)
	if err := s.Open().Program(t.Context(), entry); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	s.Refuse(entry.VIP, nil)
	if err := s.Open().Program(t.Context(), entry); err != nil {
		t.Error(err)
	}
	if got := s.Programs(); got != 1 {
		t.Errorf("%d entries were written, want 1", got)
	}
}

func TestHangEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(fake.Limits{})
		s.Hang(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Open().Program(ctx, entry); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the context has ended", err)
		}
		done := make(chan error)
		go func() { done <- s.Open().Program(t.Context(), entry) }()
		synctest.Wait()
		s.Hang(false)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPutByHand(t *testing.T) {
	s := fake.New(fake.Limits{})
	if err := s.Open().Program(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	other := entry.Clone()
	other.Members[0].Entries = 7
	s.PutByHand(other)
	got, err := s.Open().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || !got[0].Equal(other) {
		t.Errorf("read %+v, want what was put by hand", got)
	}
}
