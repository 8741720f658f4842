package flood

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/floodpolicy"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// town is a State with VIPs on hosts, and what nodes report.
type town struct {
	*Watch

	t       *testing.T
	s       *store.State
	now     time.Time
	floods  map[string][]*weirv1.VIPFlood
	strains map[string][]*weirv1.VIPPressure
	told    []string
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}) }

// vipOf is a VIP in a switch with a backend on each host.
func vipOf(n int, hosts ...string) model.VIP {
	vip := model.VIP{
		Name: fmt.Sprintf("vip%d", n), Tenant: "blue", Address: address(n),
		Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}, Flood: model.FloodWithdraw},
	}
	e := model.Endpoint{Protocol: model.TCP, Port: 80}
	for i, host := range hosts {
		e.Backends = append(e.Backends, model.Backend{Address: netip.AddrFrom4([4]byte{10, 3, byte(n), byte(i)}), Port: 80, Host: host, Weight: 1})
	}
	vip.Endpoints = []model.Endpoint{e}
	return vip
}

func newTown(t *testing.T) *town {
	town := &town{
		t: t, s: &store.State{}, now: time.Unix(1_700_000_000, 0), floods: map[string][]*weirv1.VIPFlood{},
		strains: map[string][]*weirv1.VIPPressure{},
	}
	c := &Controller{
		Reports: &reported.Source{
			Newest: func(node string, _ nodestatus.Status) (time.Time, *weirv1.NodeStatus, bool) {
				return town.now, &weirv1.NodeStatus{
					Host: &weirv1.HostStatus{Floods: town.floods[node]}, Mux: &weirv1.MuxStatus{Pressures: town.strains[node]},
				}, true
			},
			Stale: 20 * time.Second,
		},
		Log: slog.New(slog.DiscardHandler),
	}
	town.Watch = c.Watch()
	for name, role := range map[string]model.Role{"mux1": model.RoleMux, "host1": model.RoleHost, "host2": model.RoleHost, "host3": model.RoleHost} {
		town.s.PutNode(model.Node{Name: name, Role: role})
		town.s.Streams.Set(name, true)
	}
	return town
}

// says has a host say that so many sessions of VIPs stay without an answer in a second.
func (town *town) says(host string, unanswered uint32, vips ...int) {
	town.floods[host] = nil
	for _, n := range vips {
		town.floods[host] = append(town.floods[host], &weirv1.VIPFlood{Vip: address(n).String(), Unanswered: unanswered})
	}
}

// passes lets time pass, with a look each second, and says which VIPs are withdrawn then.
func (town *town) passes(d time.Duration) string {
	for range int(d / time.Second) {
		town.now = town.now.Add(time.Second)
		town.observe(town.s, town.now)
		for _, d := range town.due(town.s, town.now) {
			if d.event.Reason != "" {
				town.told = append(town.told, d.event.Object+" "+d.event.Reason)
			}
			if f := town.of[d.vip]; f != nil {
				f.told = true
			}
			next := d.next
			town.s.Placements.Put(d.vip, next)
		}
	}
	var all []string
	for _, state := range town.s.Placements.All() {
		if state.Flood.Withdrawn {
			all = append(all, state.VIP)
		}
	}
	return strings.Join(all, " ")
}

func (town *town) expect(what string, d time.Duration, want string) {
	town.t.Helper()
	if got := town.passes(d); got != want {
		town.t.Errorf("%s: withdrawn are %q, want %q", what, got, want)
	}
}

func TestAFloodedVIPLeavesAndComesBack(t *testing.T) {
	town := newTown(t)
	town.s.PutVIP(vipOf(1, "host1", "host2", "host3"))
	town.says("host1", floodpolicy.Rate, 1)
	town.expect("one of three hosts says so", time.Minute, "")
	town.says("host2", 100, 1)
	town.expect("two do, for a moment", 5*time.Second, "")
	town.says("host1", 100, 1)
	town.expect("too few", time.Minute, "")
	town.says("host1", floodpolicy.Rate, 1)
	town.expect("two do", 10*time.Second, "vip1")
	town.says("host1", 0)
	town.says("host2", 0)
	town.expect("muxes guard it", floodpolicy.BackOff(1)-20*time.Second, "vip1")
	town.expect("the back-off is over", 30*time.Second, "")
	town.says("host1", floodpolicy.Rate, 1)
	town.says("host3", floodpolicy.Rate, 1)
	town.expect("again", 10*time.Second, "vip1")
	town.expect("for twice as long", floodpolicy.BackOff(1)+time.Minute, "vip1")
	if got, want := strings.Join(town.told, ", "), "vip1 HardwareFlooded, vip1 HardwareFloodOver, vip1 HardwareFlooded"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	town.s.RemoveVIP("vip1")
	town.expect("it is deleted", time.Second, "")
	town.passes(time.Hour + 10*time.Second)
	if n := town.s.Placements.Len(); n != 0 {
		t.Errorf("%d placements of a VIP that is gone", n)
	}
}

// Muxes must have room, only so many VIPs go, and owners may have theirs stay. What a host says of others does not count.
func TestWhichFloodsHaveVIPsLeave(t *testing.T) {
	town := newTown(t)
	for n := range 8 {
		vip := vipOf(n, "host1")
		switch n {
		case 0:
			vip.Hardware.Flood = model.FloodStay
		case 1:
			vip.Hardware.Placement = model.PlacementNever
		case 2:
			vip = vipOf(n, "host2")
		}
		town.s.PutVIP(vip)
	}
	town.says("host1", 1<<20, 0, 1, 2, 3, 4, 5, 6, 7)
	town.strains["mux1"] = []*weirv1.VIPPressure{{Vip: "203.0.113.99", Cause: "fairShare"}}
	town.expect("muxes have too much to do", time.Minute, "")
	if n := len(town.told); n != 5 {
		t.Errorf("told %d times that muxes have no room, want once of each of 5", n)
	}
	town.strains["mux1"] = []*weirv1.VIPPressure{{Vip: "203.0.113.99", Cause: "backlog"}}
	town.expect("they have not", time.Second, "vip3 vip4 vip5 vip6")
	town.expect("no more than so many", time.Minute, "vip3 vip4 vip5 vip6")
	stays := vipOf(3, "host1")
	stays.Hardware.Flood = model.FloodStay
	town.s.PutVIP(stays)
	town.expect("one is to stay", 2*time.Second, "vip4 vip5 vip6 vip7")
	town.s.Streams.Delete("mux1")
	town.says("host1", 0)
	town.expect("they come back whatever muxes do", floodpolicy.BackOff(1), "")
}
