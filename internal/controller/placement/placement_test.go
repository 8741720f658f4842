package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

// world is what a Watch looks at.
type world struct {
	state     *store.State
	published model.Generation
	runs      model.Generation // that sw1 said
	unrouted  []string         // and has withdrawn for want of a route
	more      bool             // than it names
	now       time.Time
}

var fastAddress = netip.MustParseAddr("203.0.113.1")

func newWorld() *world {
	s := &store.State{}
	s.PutNode(model.Node{Name: "sw1", Role: model.RoleSwitch, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}})
	s.Streams.Set("sw1", true)
	vip := model.VIP{
		Name: "fast", Address: fastAddress, Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}},
		Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}},
	}
	s.PutVIP(vip)
	s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), desired.Table{
		Rows: []desired.Row{{Slot: 1, Tunnel: netip.MustParseAddr("10.2.0.1")}}, Buckets: []model.Slot{1},
	})
	return &world{state: s, now: time.Unix(1000, 0)}
}

// watch follows the world.
func (d *world) watch() *Watch {
	c := &Controller{
		Published: func() model.Generation { return d.published },
		Latest: func(string, nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool) {
			return nodestatus.Status{Generation: d.runs}, &weirv1.NodeStatus{Switch: &weirv1.SwitchStatus{Unrouted: d.unrouted, UnroutedMore: d.more}}, true
		},
	}
	return c.Watch()
}

// place has the VIP's place be in a phase, as of a generation.
func (d *world) place(phase placementpolicy.Phase, written model.Generation) {
	d.state = d.state.Clone()
	d.state.Placements.Put(fastAddress, placementpolicy.State{VIP: "fast", Places: map[string]placementpolicy.Place{"sw1": {Phase: phase}}})
	d.state.PlacementWritten.Set(fastAddress, written)
}

// A VIP on its way is looked at when what it waits for has come, long before all are, and not before.
func TestAStepIsTakenAsSoonAsItMay(t *testing.T) {
	for _, c := range []struct {
		phase placementpolicy.Phase
		event func(*world)
	}{
		{placementpolicy.Preparing, func(d *world) { d.published = 7 }},
		{placementpolicy.Programming, func(d *world) { d.runs = 7 }},
		{placementpolicy.Announcing, func(d *world) { d.runs = 7 }},
		{placementpolicy.Removing, func(d *world) { d.runs = 7 }},
	} {
		d := newWorld()
		d.published, d.runs = 6, 6
		d.place(c.phase, 7)
		if c.phase == placementpolicy.Removing {
			d.state.PutVIP(model.VIP{Name: "fast", Address: fastAddress})
		}
		w := d.watch()
		if due := w.lookAt(d.state, d.now); len(due) != 0 {
			t.Errorf("%s: it takes a step before what it waits for", c.phase)
		}
		d.now = d.now.Add(lookPause)
		if due := w.lookAt(d.state, d.now); len(due) != 0 || len(w.look) != 0 {
			t.Errorf("%s: %v take a step, %v are looked at again, and nothing happened", c.phase, due, w.look)
		}
		c.event(d)
		d.now = d.now.Add(lookPause)
		if due := w.lookAt(d.state, d.now); len(due) != 1 || due[0] != fastAddress {
			t.Errorf("%s: %v take a step, want %s", c.phase, due, fastAddress)
		}
	}
}

// A VIP whose routers have had their time to hear loses its entry then, and not at the next look at all.
func TestTimeAloneMakesAStep(t *testing.T) {
	d := newWorld()
	d.runs = 7
	d.place(placementpolicy.Withdrawing, 7)
	d.state.PutVIP(model.VIP{Name: "fast", Address: fastAddress})
	w := d.watch()
	for begin := d.now; len(w.lookAt(d.state, d.now)) == 0; d.now = d.now.Add(lookInterval) {
		if d.now.Sub(begin) > time.Second {
			t.Fatal("it takes no step")
		}
		w.swept = d.now // no look at all
	}
}

// What a switch withdraws by itself for want of a route is noted at once; that it serves again when it has for a while, so that
// of routes which come and go little is written.
func TestWithdrawnForWantOfARoute(t *testing.T) {
	d := newWorld()
	d.runs = 7
	d.place(placementpolicy.Hardware, 7)
	w := d.watch()
	step := func(after time.Duration) []placementpolicy.Place {
		t.Helper()
		d.now = d.now.Add(after)
		var places []placementpolicy.Place
		for _, vip := range w.lookAt(d.state, d.now) {
			is, _ := w.next(d.state, vip, d.now)
			places = append(places, is.next.Places["sw1"])
			d.state = d.state.Clone()
			d.state.Placements.Put(vip, is.next)
		}
		return places
	}
	if places := step(0); len(places) != 0 {
		t.Fatalf("it is %+v", places)
	}
	d.unrouted = []string{fastAddress.String()}
	if places := step(lookPause); len(places) != 1 || !places[0].Unrouted || places[0].Phase != placementpolicy.Hardware || places[0].Serving() {
		t.Fatalf("it is %+v", places)
	}
	for range 3 { // it comes and goes
		d.unrouted = nil
		if places := step(placementpolicy.RoutedTime / 2); len(places) != 0 {
			t.Fatalf("a route came, and it is %+v", places)
		}
		d.unrouted = []string{fastAddress.String()}
		if places := step(placementpolicy.RoutedTime); len(places) != 0 {
			t.Fatalf("it went again, and it is %+v", places)
		}
	}
	d.unrouted, d.more = nil, true // it may be one that is not named
	step(0)
	if places := step(2 * placementpolicy.RoutedTime); len(places) != 0 {
		t.Fatalf("the switch does not name all, and it is %+v", places)
	}
	d.more = false
	step(lookPause)
	for begin := d.now; ; {
		places := step(sweepInterval)
		if len(places) == 1 && places[0].Serving() {
			break
		}
		if len(places) > 0 || d.now.Sub(begin) > placementpolicy.RoutedTime+2*sweepInterval {
			t.Fatalf("it is %+v after %s", places, d.now.Sub(begin))
		}
	}
}

// An external etcd takes the steps of more VIPs than it takes operations in one transaction.
func TestStepsOfManyVIPsInAnExternalEtcd(t *testing.T) {
	d, s := newWorld(), teststore.Open(t, etcdtest.Start(t))
	change := store.Change{Nodes: []model.Node{d.state.Nodes.At("sw1")}}
	write := func() {
		if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) { return change, nil }); err != nil {
			t.Fatal(err)
		}
		change = store.Change{Tables: map[model.EndpointKey]desired.Table{}}
	}
	write()
	s.Presence.Open("sw1")
	fast := d.state.VIPs.At("fast")
	table := d.state.Tables.At(desired.Key(fast, fast.Endpoints[0]))
	const many = 2*etcd.SafeOperations + 50
	for i := range many {
		vip := fast
		vip.Name, vip.Address = fmt.Sprint("vip", i), netip.AddrFrom4([4]byte{203, 0, byte(113 + i/250), byte(i % 250)})
		change.VIPs = append(change.VIPs, vip)
		change.Tables[desired.Key(vip, vip.Endpoints[0])] = table
		if len(change.VIPs) == etcd.SafeOperations/2 {
			write()
		}
	}
	eventually := time.Now().Add(20 * time.Second)
	for !s.State().Streams.At("sw1") && time.Now().Before(eventually) {
		time.Sleep(5 * time.Millisecond)
	}
	w := d.watch()
	w.Store = s
	if err := w.Step(t.Context(), s.State(), d.now); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Collect(s.State().Placements.Keys())); n != many {
		t.Errorf("%d VIPs took a step, of %d", n, many)
	}
}
