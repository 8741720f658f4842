package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// street has VIPs in hardware of switch sw1: of tenant red on host1, of blue on host2, and what hosts say.
type street struct {
	state *store.State
	now   time.Time
	watch *Watch
	says  map[string]*weirv1.HostStatus
	bad   map[string]nodestatus.Status // of hosts
	heard map[string]int               // how often hosts were read
}

const each = 8 // VIPs of each tenant

func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}) }

func newStreet(phase placementpolicy.Phase) *street {
	s := &street{state: &store.State{Generation: 7}, now: time.Unix(1_700_000_000, 0), says: map[string]*weirv1.HostStatus{}, bad: map[string]nodestatus.Status{}, heard: map[string]int{}}
	c := &Controller{
		Events: nobody{}, Published: func() model.Generation { return s.state.Generation },
		Latest: func(name string, _ nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool) {
			status, there := s.bad[name]
			return status, nil, there
		},
		Reports: &reported.Source{Stale: time.Minute, Newest: func(host string, _ nodestatus.Status) (time.Time, *weirv1.NodeStatus, bool) {
			s.heard[host]++
			return s.now, &weirv1.NodeStatus{Host: s.says[host]}, true
		}},
	}
	s.watch = c.Watch()
	s.state.PutNode(model.Node{Name: "sw1", Role: model.RoleSwitch, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}})
	for _, name := range []string{"sw1", "host1", "host2"} {
		s.state.Streams.Set(name, true)
		if name != "sw1" {
			s.state.PutNode(model.Node{Name: name, Role: model.RoleHost})
		}
	}
	for i := range 2 * each {
		vip := vipWith(&model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}})
		vip.Name, vip.Address = fmt.Sprint("vip", i), address(i)
		vip.Tenant = []string{"red", "blue"}[i/each]
		vip.Endpoints[0].Backends = []model.Backend{{Host: fmt.Sprint("host", 1+i/each), Address: netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})}}
		s.state.PutVIP(vip)
		s.state.PlacementWritten.Set(vip.Address, 7)
		s.state.Placements.Put(vip.Address, placementpolicy.State{VIP: vip.Name, Places: map[string]placementpolicy.Place{"sw1": {Phase: phase}}})
	}
	return s
}

// step looks, and returns the VIPs that a host keeps out of the switch, or has leave it, by what is known now.
func (s *street) step() (out []int) {
	s.now = s.now.Add(lookInterval)
	s.watch.observe(s.state, s.now)
	s.watch.choose(s.state, s.now)
	for i := range 2 * each {
		vip, _ := s.state.VIPAt(address(i))
		if host, _ := s.watch.unsteered(s.state, vip, s.state.Placements.At(address(i)).Places["sw1"], s.now); host != "" {
			out = append(out, i)
		}
	}
	return out
}

// refuse has a host refuse VIPs.
func (s *street) refuse(host string, more bool, vips ...int) {
	status := &weirv1.HostStatus{SteeringRefusedMore: more}
	for _, i := range vips {
		status.SteeringRefused = append(status.SteeringRefused, &weirv1.SteeringRefusal{Vip: address(i).String(), Reason: "full"})
	}
	s.says[host] = status
}

func span(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// A host that refuses all VIPs there are keeps out those that it serves, and has four of them leave; of others' VIPs it says
// nothing that counts.
func TestAHostRefusesItsOwnVIPsAlone(t *testing.T) {
	s := newStreet(placementpolicy.Preparing)
	s.refuse("host1", false, span(0, 2*each)...)
	if got := s.step(); !slices.Equal(got, span(0, each)) {
		t.Errorf("kept out: %v", got)
	}
	s.refuse("host1", false, 3)
	if got := s.step(); !slices.Equal(got, []int{3}) {
		t.Errorf("of one that is refused, kept out: %v", got)
	}
	s.refuse("host1", true, 3)
	if got := s.step(); !slices.Equal(got, span(0, each)) {
		t.Errorf("of a host that does not name all, kept out: %v", got)
	}
	s.state.Streams.Delete("host1")
	if got := s.step(); len(got) > 0 {
		t.Errorf("of a host that is gone, kept out: %v", got)
	}
	for _, phase := range []placementpolicy.Phase{placementpolicy.Programming, placementpolicy.Announcing} {
		s = newStreet(phase)
		if s.refuse("host1", true, span(0, 2*each)...); !slices.Equal(s.step(), span(0, each)) {
			t.Errorf("in phase %s others go, or stay", phase)
		}
	}
	s = newStreet(placementpolicy.Hardware)
	s.refuse("host1", true, span(0, 2*each)...)
	if got := s.step(); !slices.Equal(got, span(0, mostPutOut)) {
		t.Errorf("in hardware leave: %v", got)
	}
	// Which these are is in the store, so that it says the same of others in vain, also to another leader.
	for i := range mostPutOut {
		s.state.Placements.Put(address(i), placementpolicy.State{VIP: fmt.Sprint("vip", i), Places: map[string]placementpolicy.Place{
			"sw1": {Phase: placementpolicy.Evicted, Host: "host1", Attempts: 1},
		}})
	}
	s.watch = s.watch.Watch()
	s.refuse("host1", false, span(mostPutOut, each)...)
	s.now = s.now.Add(sweepInterval)
	if got := s.step(); len(got) > 0 {
		t.Errorf("with four out leave: %v", got)
	}
	s.refuse("host2", false, each)
	if got := s.step(); !slices.Equal(got, []int{each}) {
		t.Errorf("of another host leave: %v", got)
	}
}

// A VIP that comes back counts as one that is out until a switch serves it, and no longer.
func TestWhatComesBackIsStillOut(t *testing.T) {
	s := newStreet(placementpolicy.Hardware)
	put := func(place placementpolicy.Place) {
		for i := range mostPutOut {
			s.state.Placements.Put(address(i), placementpolicy.State{VIP: fmt.Sprint("vip", i), Places: map[string]placementpolicy.Place{"sw1": place}})
		}
		s.now = s.now.Add(sweepInterval)
	}
	put(placementpolicy.Place{Phase: placementpolicy.Evicted, Host: "host1", Attempts: 1})
	s.refuse("host1", false, span(mostPutOut, each)...)
	for _, phase := range []placementpolicy.Phase{placementpolicy.Evicted, placementpolicy.Preparing, placementpolicy.Programming, placementpolicy.Announcing} {
		place := placementpolicy.Place{Phase: phase, Attempts: 1}
		if phase == placementpolicy.Evicted {
			place.Host = "host1"
		}
		put(place)
		if got := s.step(); len(got) > 0 {
			t.Errorf("with four %s leave: %v", phase, got)
		}
	}
	put(placementpolicy.Place{Phase: placementpolicy.Hardware, Attempts: 1})
	if got := s.step(); !slices.Equal(got, span(mostPutOut, each)) {
		t.Errorf("with all in hardware leave: %v", got)
	}
}

// A host that refused the generation as a whole steers nothing of it.
func TestAHostThatRefusesAGenerationIsNotReady(t *testing.T) {
	s := newStreet(placementpolicy.Preparing)
	s.bad["host1"] = nodestatus.Status{Generation: 6, Rejected: 7, Reason: "set rules: no room"}
	if got := s.step(); !slices.Equal(got, span(0, each)) {
		t.Errorf("kept out: %v", got)
	}
	s.bad["host1"] = nodestatus.Status{Generation: 7, Rejected: 8}
	if got := s.step(); len(got) > 0 {
		t.Errorf("of a later generation, kept out: %v", got)
	}
}

// VIPs of which a host says something else are looked at.
func TestRefusedVIPsAreLookedAt(t *testing.T) {
	s := newStreet(placementpolicy.Hardware)
	s.step()
	clear(s.watch.look)
	s.refuse("host1", false, 2, each)
	s.step()
	if got := s.watch.look; len(got) != 1 || !got[address(2)] {
		t.Errorf("looked at: %v", got)
	}
	clear(s.watch.look)
	if s.step(); len(s.watch.look) > 0 {
		t.Errorf("looked at, and nothing is new: %v", s.watch.look)
	}
	s.refuse("host1", false)
	if s.step(); !s.watch.look[address(2)] {
		t.Error("what is not refused any more is not looked at")
	}
}

// However many VIPs wait for a host, what it says is read once a step.
func TestAHostIsHeardOnceAStep(t *testing.T) {
	s := newStreet(placementpolicy.Preparing)
	for i := range 3 {
		clear(s.heard)
		if s.step(); s.heard["host1"] != 1 || s.heard["host2"] != 1 {
			t.Errorf("in step %d hosts are read %v times", i, s.heard)
		}
		s.refuse("host1", false, i)
	}
}
