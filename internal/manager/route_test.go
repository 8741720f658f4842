package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/placementpolicy"
)

// A VIP that its switch has withdrawn for want of a route is not served by it, for all who ask, until it has had one for a while.
func TestAVIPWithoutARouteIsNotServed(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	c.apply(inHardware("sw1"))
	c.awaitPhase(placementpolicy.Hardware)
	eventually(t, "the condition says that it is placed", func() bool {
		return strings.HasPrefix(c.hardwareReason(), "Placed") || c.hardwareReason() == "SharedWithMuxes"
	})
	c.sw.loseRoutes(t, "203.0.113.10")
	eventually(t, "the condition says why it is not", func() bool { return c.hardwareReason() == "NoRoute" })
	if got := c.explained(); !strings.Contains(got, "no switch serves the VIP: NoRoute") || strings.Contains(got, "by a switch") {
		t.Errorf("explained as\n%s", got)
	}
	if c.phase() != placementpolicy.Hardware {
		t.Errorf("it is %s", c.phase())
	}
	c.sw.loseRoutes(t)
	eventually(t, "the leader has heard that", func() bool {
		c.pass(time.Second)
		return c.hardwareReason() != "NoRoute"
	})
}

// loseRoutes has the switch withdraw these VIPs for want of a route, and no other one.
func (s *fakeSwitch) loseRoutes(t *testing.T, vips ...string) {
	t.Helper()
	s.mu.Lock()
	s.unrouted = vips
	s.mu.Unlock()
	s.set(t, false, false)
}
