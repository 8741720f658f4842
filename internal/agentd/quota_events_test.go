package agentd

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/session"
)

// A VIP's quota is an event when it is reached, and when it is enough again; what a report told is not told twice.
func TestQuotasAreEvents(t *testing.T) {
	r := &reports{}
	sweep := func(refused bool) (reasons []string) {
		for _, vip := range []string{"203.0.113.10", "2001:db8:1::10"} {
			r.sessionQuotaEvents([]session.VIPSessions{{VIP: netip.MustParseAddr(vip), Confirmed: 7, Limit: 7, Refused: refused}})
			r.sessionQuotaEvents(nil)
		}
		for _, e := range r.events {
			reasons = append(reasons, e.GetVip()+" "+e.GetReason())
		}
		r.removeSentEvents(r.events)
		return reasons
	}
	if got := sweep(false); len(got) != 0 {
		t.Errorf("events without need: %v", got)
	}
	got := sweep(true)
	if len(got) != 4 || got[0] != "203.0.113.10 SessionQuotaOn" || got[3] != "2001:db8:1::10 SessionQuotaOff" {
		t.Errorf("events are %v", got)
	}
	if len(r.events) != 0 {
		t.Errorf("%d events are told twice", len(r.events))
	}
}

// So it is when workloads' own connections are refused.
func TestRefusedConnectionsAreEvents(t *testing.T) {
	r := &reports{}
	vip := netip.MustParseAddr("203.0.113.10")
	for _, refused := range []bool{false, true, true, false, false} {
		var vips []session.SNATRefusal
		if refused {
			vips = []session.SNATRefusal{{VIP: vip, Used: 6, Limit: 7}}
		}
		r.snatQuotaEvents(vips)
	}
	if len(r.events) != 2 || r.events[0].GetReason() != "SNATQuotaOn" || r.events[1].GetReason() != "SNATQuotaOff" {
		t.Errorf("events are %v", r.events)
	}
}
