package admission

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// leaving is VIP number i in a switch, which a workload on a host leaves as.
func leaving(i int, host string) model.VIP {
	vip := newVIP(fmt.Sprint("out", i), fmt.Sprintf("203.0.%d.%d", 114+i/250, i%250+1), on("host2", "10.3.2.20"))
	vip.Hardware = &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}}
	vip.SNAT = &model.SNAT{Workloads: []model.SNATWorkload{{Address: addr(fmt.Sprintf("10.4.%d.%d", i/250, i%250+1)), Host: host}}}
	return vip
}

// Hosts have half of their tables for VIPs that are to be in switches: 131 072 rows of buckets, of which source NAT takes 256
// and an endpoint 8.
func TestRoomForSteering(t *testing.T) {
	const most = 131072 / (256 + 8)
	s := town()
	for i := range most {
		s.PutVIP(leaving(i, "host1"))
	}
	refused := func(what string, vip model.VIP, want string) {
		t.Helper()
		_, err := VIPs(s, []model.VIP{vip}, true)
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	refused("one more", leaving(most, "host1"), "vips[0].hardware: host host1 can't steer more VIPs in switches: it needs 131208 rows of buckets, has room for 131072")
	refused("one that is there", leaving(0, "host1"), "")
	muxes := leaving(most, "host1")
	muxes.Hardware = nil
	refused("with muxes", muxes, "")
	s.RemoveVIP("out0")
	refused("in the place of another", leaving(most, "host1"), "")
	s.PutVIP(leaving(most, "host1"))
	s.PutVIP(leaving(most+1, "host1"))
	less := leaving(7, "host1")
	less.SNAT = nil
	refused("less, but too much", less, "")
}

// A VIP that had many backends once has all buckets of then, and for a while their slots.
func TestRoomForSteeringCountsWhatTablesKeep(t *testing.T) {
	s := town()
	const most = 131072 / (65536 / 32)
	grown := func(i int) model.VIP {
		vip := leaving(i, "host2")
		vip.SNAT = nil
		return vip
	}
	for i := range most {
		vip := grown(i)
		s.PutVIP(vip)
	}
	without := s.SteeringOn("host2")
	for i := range most {
		vip := grown(i)
		e := vip.Endpoints[0]
		table := desired.Table{Buckets: make([]model.Slot, 65536)}
		table.Rows = []desired.Row{{Slot: 1, Backend: e.Backends[0].AddrPort()}, {Slot: 2, Backend: netip.MustParseAddrPort("10.3.2.99:80"), Freed: time.Unix(1, 0)}}
		desired.PutTable(&s, model.EndpointKey{VIP: vip.Address, Protocol: e.Protocol, Port: e.Port}, table)
	}
	if kept := s.SteeringOn("host2").Minus(without); kept.Backends != most || kept.Buckets != most*(2048-8) {
		t.Errorf("tables keep %+v", kept)
	}
	_, err := VIPs(s, []model.VIP{grown(most)}, true)
	if err == nil || !strings.Contains(err.Error(), "host host2 can't steer more VIPs in switches: it needs 131080 rows of buckets, has room for 131072") {
		t.Errorf("one more: %v", err)
	}
	if _, err := VIPs(s, []model.VIP{grown(0)}, true); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}
