package switchd

import (
	"context"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

func notified(handOver chan os.Signal) (context.Context, func()) {
	signal.Notify(handOver, syscall.SIGUSR2)
	return signal.NotifyContext(context.Background(), syscall.SIGTERM)
}

// The life of a VIP: told, announced, changed, refused, lost over a restart, withdrawn. One site, as a router takes a second.
func TestRoutesFollowTheSwitch(t *testing.T) {
	s := newSite(t)
	const patient = "WEIR_TEST_PATIENT=1" // a slow machine starts a daemon in its own time
	d := s.start(patient)
	s.tell(1, false, tunnel)
	s.eventually("generation 1 is reported", func() bool { return s.manager.SwitchReport().GetGeneration() == 1 })
	if report := s.manager.SwitchReport(); report.GetStatus().GetProgrammed() != 2 || report.GetStatus().GetDriver() != "fake" || len(report.GetRefused()) != 0 {
		t.Errorf("report %v", report)
	}
	request := s.manager.Switches.Streams()[0]
	if request.GetName() != "sw1" || len(request.GetAddresses()) != 1 || request.GetAddresses()[0] != "fd00:9::1" {
		t.Errorf("the switch registers as %v", request)
	}
	s.wantRouted(vip4, false)
	s.tell(2, true, tunnel)
	s.wantRouted(vip4, true)
	s.wantRouted(vip6, true)
	if route := s.route(vip4); !strings.Contains(route, "via 10.9.0.1") {
		t.Errorf("the spine's route is %q, want one to the switch", route)
	}
	s.eventually("what is announced is reported", func() bool {
		report := s.manager.SwitchReport()
		return report.GetGeneration() == 2 && report.GetStatus().GetAnnounced() == 2 && report.GetStatus().GetPeers()[0].GetState() == "established"
	})
	// The switch's own kernel must not follow its own announcement.
	if out, err := s.sw.Run("ip", "route", "show", "203.0.113.10/32"); err != nil || out != "" {
		t.Errorf("the switch's kernel has the route %q, %v", out, err)
	}

	t.Log("the daemon dies and comes back: no route is lost")
	d.signal(syscall.SIGKILL)
	here := func() bool { return s.route(vip4) != "" && s.route(vip6) != "" }
	s.throughout("the routes stay while the daemon is away", 500*time.Millisecond, here)
	d = s.start(patient)
	s.throughout("the routes stay", 3*time.Second, here)
	t.Log("it hands over")
	d.signal(syscall.SIGUSR2)
	s.throughout("the routes stay while the daemon is away", 500*time.Millisecond, here)

	t.Log("an entry is lost meanwhile, and the switch does not take it again: its route goes, the other's stays")
	d = s.start(patient, "WEIR_TEST_LOST=1")
	s.wantRouted(vip4, false)
	s.throughout("the other route stays", time.Second, func() bool { return s.route(vip6) != "" })
	s.eventually("the refusal is reported", func() bool {
		refused := s.manager.SwitchReport().GetRefused()
		return len(refused) == 1 && refused[0].GetVip() == vip4.String() && refused[0].GetReason() == "no"
	})

	t.Log("a clean stop withdraws")
	d.signal(syscall.SIGTERM)
	s.wantRouted(vip6, false)
}

// A daemon that dies for good is a lease that ends.
func TestRoutesOfADeadDaemonEnd(t *testing.T) {
	s := newSite(t)
	d := s.start()
	s.tell(1, true, tunnel)
	s.wantRouted(vip4, true)
	d.say("hang")
	s.tell(2, true, netip.MustParseAddr("fd00:2::2"))
	s.wantRouted(vip4, false)
	d.say("answer")
	s.wantRouted(vip4, true)
	d.signal(syscall.SIGKILL)
	s.wantRouted(vip4, false)
	s.wantRouted(vip6, false)
}
