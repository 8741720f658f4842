package manager

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// drain asks for the drain of sw1, or how far it is.
func (c *city) drain(dryRun bool) *weirv1.DrainSwitchResponse {
	c.t.Helper()
	p, err := c.api.DrainSwitch(c.t.Context(), &weirv1.DrainSwitchRequest{Name: "sw1", DryRun: dryRun})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *city) undrain(dryRun bool) *weirv1.UndrainSwitchResponse {
	c.t.Helper()
	p, err := c.api.UndrainSwitch(c.t.Context(), &weirv1.UndrainSwitchRequest{Name: "sw1", DryRun: dryRun})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// explained says where a flow to shop goes.
func (c *city) explained() string {
	r, err := c.api.Explain(c.t.Context(), &weirv1.ExplainRequest{
		Protocol: "TCP", SourceAddress: "198.51.100.7", SourcePort: 40000, DestinationAddress: "203.0.113.10", DestinationPort: 80,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Join(r.GetSteps(), "\n")
}

// hardwareReason is the reason of the condition hardware of shop.
func (c *city) hardwareReason() string {
	r, err := c.api.GetVIP(c.t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, condition := range r.GetVip().GetStatus().GetConditions() {
		if condition.GetType() == "hardware" {
			return condition.GetReason()
		}
	}
	return ""
}

// A switch that is drained loses its VIPs in the order of the contract and gets none, whoever leads, until it is undone.
func TestADrainedSwitchIsEmpty(t *testing.T) {
	c := &city{t: t, dir: t.TempDir()}
	c.begin(false)
	c.apply(inHardware("sw1"))
	c.awaitPhase(placementpolicy.Hardware)
	if got := c.explained(); !strings.Contains(got, "by a switch it comes to one of 2 tunnels") || !strings.Contains(got, "% of flows come to 10.3.") {
		t.Errorf("explained as\n%s", got)
	}
	if got := c.drain(true); got.GetTotal() != 1 || got.GetHeld() != 1 || !got.GetConnected() {
		t.Errorf("a dry run says %v", got)
	}
	if !c.m.store.State().Nodes.At("sw1").Drained.IsZero() || c.phase() != placementpolicy.Hardware {
		t.Fatal("a dry run drains")
	}
	c.drain(false)
	since := c.m.store.State().Nodes.At("sw1").Drained
	c.passUntil(placementpolicy.Leaving, time.Second)
	if got := c.sw.holds(); got != "" {
		t.Errorf("a drained switch holds %s", got)
	}
	if last := c.sw.history[len(c.sw.history)-2]; strings.Contains(last, "announced") {
		t.Errorf("the entry went while it was announced: %q", c.sw.history)
	}
	if got := c.drain(true); got.GetHeld() != 0 || got.GetTotal() != 1 {
		t.Errorf("of a drained switch: %v", got)
	}
	if got := c.hardwareReason(); got != "Drained" {
		t.Errorf("the condition is %s", got)
	}
	if got := c.explained(); !strings.Contains(got, "no switch serves the VIP: Drained: sw1: leaving (the switch is drained)") || strings.Contains(got, "by a switch") {
		t.Errorf("explained as\n%s", got)
	}

	c.stop()
	c.begin(false) // all register again
	c.drain(false) // again
	if now := c.m.store.State().Nodes.At("sw1").Drained; !now.Equal(since) {
		t.Errorf("drained since %s, and after a restart since %s", since, now)
	}
	if got := c.undrain(true); got.GetTotal() != 1 || c.m.store.State().Nodes.At("sw1").Drained.IsZero() {
		t.Errorf("a dry run of the undoing says %v", got)
	}
	if got := c.undrain(false); got.GetTotal() != 1 || strings.Join(got.GetVips(), " ") != "shop" {
		t.Errorf("undrained: %v", got)
	}
	c.awaitPhase(placementpolicy.Hardware)

	for name, want := range map[string]connect.Code{"host1": connect.CodeInvalidArgument, "sw3": connect.CodeNotFound} {
		_, err := c.api.DrainSwitch(t.Context(), &weirv1.DrainSwitchRequest{Name: name})
		if connect.CodeOf(err) != want {
			t.Errorf("drain %s: %v, want %v", name, err, want)
		}
	}
}

// A dry run names the switches that go on serving a VIP: not those that are drained as well.
func TestADrainSaysWhoServesThen(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	startSwitch(t, c.url, "sw2", false, "10.1.0.2")
	eventually(t, "sw2 is registered", func() bool { return c.m.store.State().Nodes.Len() == 4 })
	c.apply(inHardware("sw1", "sw2"))
	c.awaitPhase(placementpolicy.Hardware)
	eventually(t, "sw2 serves it too", func() bool { return c.phaseIn("sw2") == placementpolicy.Hardware })
	if v := c.drain(true).GetVips(); len(v) != 1 || v[0].GetVip() != "shop" || v[0].GetPhase() != "hardware" || strings.Join(v[0].GetSwitches(), " ") != "sw2" {
		t.Errorf("of sw1: %v", v)
	}
	c.drain(false)
	eventually(t, "the condition says that one of two serves it", func() bool { return c.hardwareReason() == "PartlyPlaced" })
	p, err := c.api.DrainSwitch(t.Context(), &weirv1.DrainSwitchRequest{Name: "sw2", DryRun: true})
	if v := p.GetVips(); err != nil || len(v) != 1 || len(v[0].GetSwitches()) != 0 {
		t.Errorf("of sw2: %v, %v", v, err)
	}
}
