package placement

import (
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/switchconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

var service = netip.MustParseAddr("203.0.113.30")

// device is a switch as far as it has what it was told, and has said so.
type device struct {
	connected  bool
	runs, said model.Generation
	address    netip.Addr   // of the entry that it has; invalid: none
	senders    []netip.Addr // of a TIP: outer sources that it takes packets from
	members    []switchconfig.Member
	announced  bool
	since      time.Time // it has announced it; or has not, if it has an entry
	noTIPs     bool      // the owner wanted none, since it was told something
	full       bool      // it refuses other entries than it has
	refused    bool      // what it was told last
	detail     *weirv1.NodeStatus
}

// plant are a leader, switches, and a VIP with TIPs.
type plant struct {
	t       *rapid.T
	now     time.Time
	state   *store.State
	watch   *Watch
	devices map[string]*device
	refuses map[string]bool // hosts that steer no VIP
}

// nobody is told of events.
type nobody struct{}

func (nobody) Record(eventlog.Event) {}

// spread is how long routers take to hear of a route.
const spread = 500 * time.Millisecond

func newPlant(t *rapid.T) *plant {
	p := &plant{t: t, now: time.Unix(1_700_000_000, 0), state: &store.State{Generation: 1}, devices: map[string]*device{}, refuses: map[string]bool{}}
	c := &Controller{
		Events:    nobody{},
		Published: func() model.Generation { return p.state.Generation }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Latest: func(name string, _ nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool) {
			d := p.devices[name]
			if d == nil {
				return nodestatus.Status{}, nil, false
			}
			return nodestatus.Status{Generation: d.said}, d.detail, true
		},
		Reports: &reported.Source{Stale: time.Minute, Newest: func(host string, _ nodestatus.Status) (time.Time, *weirv1.NodeStatus, bool) {
			status := &weirv1.HostStatus{}
			if p.refuses[host] {
				status.SteeringRefused = []*weirv1.SteeringRefusal{{Vip: service.String(), Reason: "full"}}
			}
			return p.now, &weirv1.NodeStatus{Host: status}, true
		}},
	}
	p.watch = c.Watch()
	for i, name := range []string{"core1", "core2", "tor1", "tor2", "tor3"} {
		p.devices[name] = &device{connected: true}
		p.state.PutNode(model.Node{Name: name, Role: model.RoleSwitch, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})}})
		p.state.Streams.Set(name, true)
	}
	for _, name := range []string{"host1", "host2", "stranger"} {
		p.state.PutNode(model.Node{Name: name, Role: model.RoleHost})
		p.state.Streams.Set(name, true)
	}
	p.write(func(s *store.State) {
		vip := vipWith(nil)
		s.PutVIP(vip)
		table := desired.Table{}
		for i := range 6 {
			table.Rows = append(table.Rows, desired.Row{Slot: model.Slot(i + 1), Tunnel: netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})})
			table.Buckets = append(table.Buckets, model.Slot(i+1))
		}
		s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), table)
	})
	return p
}

func vipWith(h *model.Hardware) model.VIP {
	backends := []model.Backend{{Host: "host1", Address: netip.MustParseAddr("10.2.0.0")}, {Host: "host2", Address: netip.MustParseAddr("10.2.0.1")}}
	return model.VIP{Name: "fast", Address: service, Hardware: h, Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: backends}}}
}

func (p *plant) write(change func(*store.State)) {
	next := p.state.Clone()
	next.Generation++
	change(next)
	p.state = next
	p.watch.look[service] = true // as of what the store says was written
}

// want has the owner ask for something.
func (p *plant) want(t *rapid.T) {
	h := &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"core1", "core2"}[:rapid.IntRange(1, 2).Draw(t, "switches")]}
	for i, name := range []string{"tor1", "tor2", "tor3"}[:rapid.IntRange(0, 3).Draw(t, "tips")] {
		h.TIPs = append(h.TIPs, model.TIP{Switch: name, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(10*rapid.IntRange(0, 1).Draw(t, "address") + i)})})
	}
	if rapid.Bool().Draw(t, "never") {
		h = nil
	}
	for _, d := range p.devices {
		d.noTIPs = d.noTIPs || h == nil || len(h.TIPs) == 0
	}
	p.write(func(s *store.State) {
		s.PutVIP(vipWith(h))
		s.Written.Set("fast", s.Generation)
	})
}

func (p *plant) drain(t *rapid.T) {
	name := rapid.SampledFrom([]string{"tor1", "tor2", "core1"}).Draw(t, "drained")
	p.write(func(s *store.State) {
		node := s.Nodes.At(name)
		if node.Drained = p.now; !s.Nodes.At(name).Drained.IsZero() {
			node.Drained = time.Time{}
		}
		s.PutNode(node)
	})
}

// step has the leader take the steps that are due.
func (p *plant) step(*rapid.T) {
	vip, _ := p.state.VIPAt(service)
	if len(p.watch.lookAt(p.state, p.now)) == 0 {
		return
	}
	if done, changed := p.watch.next(p.state, service, p.now); changed {
		for name, was := range p.state.Placements.At(service).Places {
			is := done.next.Places[name]
			if was.Phase == placementpolicy.Preparing && is.Phase == placementpolicy.Programming && (p.refuses["host1"] || p.refuses["host2"]) {
				p.t.Fatalf("%s is to have what a host does not steer", name)
			}
			if was.Silent && is.TIP == was.TIP && !is.Silent && !p.devices[name].connected {
				p.t.Fatalf("the silent TIP of %s is named again, and it has no stream", name)
			}
			stays := is.Phase == placementpolicy.Hardware && !is.Refuses() && is.TIP == was.TIP && is.TIP == hardware.TIPAt(vip, name)
			if was.Named && !is.Named && stays && p.state.Nodes.At(name).Drained.IsZero() {
				p.t.Fatalf("the TIP of %s is named no more, and stays: %+v", name, is)
			}
		}
		p.write(func(s *store.State) {
			s.Placements.Put(service, done.next)
			s.PlacementWritten.Set(service, s.Generation)
		})
	}
}

// tell has a switch take over what it is told, as package switchfeed tells it.
func (p *plant) tell(name string) {
	d, state := p.devices[name], p.state.Placements.At(service)
	if !d.connected {
		return
	}
	d.runs = p.state.Generation
	vip, _ := p.state.VIPAt(service)
	place := state.Places[name]
	if !place.Phase.Held() {
		d.address, d.announced, d.members, d.refused = netip.Addr{}, false, nil, false
		return
	}
	address, sent := place.Address(service), d.sendsToTIPs()
	senders := switchconfig.SendersTo(p.state.State, state, address)
	members := switchconfig.GroupOf(p.state.State, vip).EntryOf(state, place).Members(0)
	changes := address != d.address || !slices.Equal(members, d.members) || address != service && !slices.Equal(senders, d.senders)
	d.refused = d.full && changes
	if is := place.Phase.Announced() && (!d.refused || d.address != service); is != d.announced || !d.address.IsValid() {
		d.announced, d.since = is && d.address.IsValid() || is && !d.refused, p.now
	}
	if d.refused { // what it has stays; of a TIP it goes on to tell routers
		return
	}
	d.address, d.senders, d.members = address, senders, members
	if sent && !d.sendsToTIPs() && !d.noTIPs {
		p.t.Fatalf("%s is told the backends, and its owner wants TIPs: %v", name, d.members)
	}
	d.noTIPs = vip.Hardware == nil || len(vip.Hardware.TIPs) == 0
}

// sendsToTIPs says whether its members are TIPs, and no backends.
func (d *device) sendsToTIPs() bool {
	return d.address == service && len(d.members) > 0 && d.members[0].Tunnel.As4()[0] == 192
}

func (p *plant) report(name string) {
	d := p.devices[name]
	if !d.connected || d.said == d.runs {
		return
	}
	status := &weirv1.SwitchStatus{Driver: "fake", Tips: true}
	if d.refused {
		address := p.state.Placements.At(service).Places[name].Address(service)
		status.Refused = []*weirv1.SwitchRefusal{{Vip: address.String(), Reason: "full"}}
	}
	d.said, d.detail = d.runs, &weirv1.NodeStatus{Switch: status}
}

// fill has a switch refuse other entries than it has, or take them again.
func (p *plant) fill(name string) { p.devices[name].full = !p.devices[name].full }

func (p *plant) settle(*rapid.T) {
	for name := range p.devices {
		p.tell(name)
		p.report(name)
	}
}

// goOn has all do what they are to for some seconds: single steps seldom lead to a TIP that is named.
func (p *plant) goOn(t *rapid.T) {
	for range 30 {
		p.settle(t)
		p.step(t)
		p.check(t)
		p.now = p.now.Add(200 * time.Millisecond)
	}
}

// refuse has a host steer the VIP or not.
func (p *plant) refuse(t *rapid.T) {
	host := rapid.SampledFrom([]string{"host1", "host2", "stranger"}).Draw(t, "host")
	p.refuses[host] = !p.refuses[host]
}

func (p *plant) any(do func(string)) func(*rapid.T) {
	return func(t *rapid.T) {
		do(rapid.SampledFrom([]string{"core1", "core2", "tor1", "tor2", "tor3"}).Draw(t, "switch"))
	}
}

func (p *plant) connect(name string, is bool) {
	p.devices[name].connected = is
	p.state = p.state.Clone()
	p.state.Streams.Set(name, is)
}

// silent says whether the switch behind a TIP counts as silent.
func (p *plant) silent(tip netip.Addr) bool {
	for _, place := range p.state.Placements.At(service).Places {
		if place.TIP == tip {
			return place.Silent
		}
	}
	return false
}

// check holds that what a switch sends to TIPs arrives, and is handed on.
func (p *plant) check(*rapid.T) {
	at := map[netip.Addr]*device{}
	for _, d := range p.devices {
		at[d.address] = d
	}
	for name, d := range p.devices {
		gone := !d.announced && p.now.Sub(d.since) >= time.Second // routers know that it does not take the VIP
		if gone || !d.sendsToTIPs() {
			continue
		}
		for _, m := range d.members {
			if to := at[m.Tunnel]; to == nil || !to.announced || p.now.Sub(to.since) < spread {
				p.t.Fatalf("%s sends to TIP %s, which is %+v", name, m.Tunnel, to)
			}
			if source := p.state.Nodes.At(name).Addresses[0]; !p.silent(m.Tunnel) && !slices.Contains(at[m.Tunnel].senders, source) {
				p.t.Fatalf("%s sends to TIP %s, which takes packets from %v alone", name, m.Tunnel, at[m.Tunnel].senders)
			}
		}
	}
}

// Whatever owners, operators, leader and switches do in whatever order: no switch sends to a TIP that is not there, and what
// is wanted comes, and what is not goes.
func TestWhatIsSentToATIPArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlant(t)
		p.want(t)
		t.Repeat(map[string]func(*rapid.T){
			"want": p.want, "drain": p.drain, "refuse": p.refuse, "step": p.step, "step again": p.step, "settle": p.settle, "settle again": p.settle, "": p.check,
			"go on": p.goOn, "go on again": p.goOn,
			"another leader": func(*rapid.T) { p.watch = p.watch.Watch() },

			"fill":     p.any(p.fill),
			"tell":     p.any(p.tell),
			"report":   p.any(p.report),
			"part":     p.any(func(name string) { p.connect(name, false) }),
			"meet":     p.any(func(name string) { p.connect(name, true) }),
			"a bit":    func(*rapid.T) { p.now = p.now.Add(200 * time.Millisecond) },
			"a second": func(*rapid.T) { p.now = p.now.Add(time.Second) },
		})
		for name := range p.devices {
			p.connect(name, true)
			p.devices[name].full = false
		}
		p.write(func(s *store.State) {
			for node := range p.state.Nodes.Values() {
				node.Drained = time.Time{}
				s.PutNode(node)
			}
		})
		delete(p.refuses, "host1")
		delete(p.refuses, "host2") // strangers go on
		for range 60 {
			p.settle(t)
			p.step(t)
			p.check(t)
			p.now = p.now.Add(3 * time.Minute)
		}
		p.arrived()
	})
}

// A first switch needs a source of the family of TIPs, and none of that of backends.
func TestAFirstSwitchHasTheFamilyOfTIPs(t *testing.T) {
	p := newPlant(nil)
	p.write(func(s *store.State) {
		tor := s.Nodes.At("tor1")
		tor.Addresses = append(slices.Clone(tor.Addresses), netip.MustParseAddr("2001:db8::1"))
		s.PutNode(tor)
		vip := vipWith(&model.Hardware{
			Placement: model.PlacementRequire, Switches: []string{"core1"},
			TIPs: []model.TIP{{Switch: "tor1", Address: netip.MustParseAddr("192.0.2.1")}},
		})
		s.PutVIP(vip)
		s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), desired.Table{
			Rows: []desired.Row{{Slot: 1, Tunnel: netip.MustParseAddr("2001:db8:2::1")}}, Buckets: []model.Slot{1},
		})
		s.Written.Set("fast", s.Generation)
	})
	for range 40 {
		p.settle(nil)
		p.step(nil)
		p.now = p.now.Add(time.Second)
	}
	state := p.state.Placements.At(service)
	if place := state.Places["core1"]; place.Phase != placementpolicy.Hardware || len(state.TIPs()) != 1 {
		t.Errorf("the first switch, with a source of IPv4, does not send to the TIP, of IPv4: %+v", state.Places)
	}
}

// lookAgain has the leader look after a while, when it does not look at all VIPs.
func (p *plant) lookAgain(after time.Duration) placementpolicy.Place {
	p.now = p.now.Add(after)
	p.watch.swept = p.now
	p.step(nil)
	return p.state.Placements.At(service).Places["tor1"]
}

// A TIP is named as soon as routers know it, and withdraws as soon as the switches that sent to it say that they do not: long
// before all VIPs are looked at.
func TestATIPTakesItsStepsAsSoonAsItMay(t *testing.T) {
	p := newPlant(nil)
	want := func(names ...string) {
		h := &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"core1"}}
		for i, name := range names {
			h.TIPs = append(h.TIPs, model.TIP{Switch: name, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
		}
		p.write(func(s *store.State) {
			s.PutVIP(vipWith(h))
			s.Written.Set("fast", s.Generation)
		})
	}
	want("tor2")
	for range 40 {
		p.settle(nil)
		p.step(nil)
		p.now = p.now.Add(time.Second)
	}
	want("tor2", "tor1")
	place := p.lookAgain(0)
	for begin := p.now; place.Phase != placementpolicy.Hardware; place = p.lookAgain(lookPause) {
		if p.now.Sub(begin) > time.Second {
			t.Fatalf("it is %s for a second", place.Phase)
		}
		p.settle(nil)
	}
	for begin := p.now; !place.Named; place = p.lookAgain(lookPause) {
		if p.now.Sub(begin) > nameTime+2*lookInterval {
			t.Fatal("it is not named, and routers know it")
		}
		p.settle(nil)
	}
	p.settle(nil)
	p.lookAgain(lookInterval)
	want("tor2")
	if place = p.lookAgain(lookPause); place.Named {
		t.Fatal("it is named, and nobody wants it")
	}
	for name := range p.devices {
		if p.tell(name); name != "core1" {
			p.report(name)
		}
	}
	for range 3 {
		if place = p.lookAgain(lookPause); place.Phase != placementpolicy.Hardware {
			t.Fatalf("it is %s, and a switch may send to it", place.Phase)
		}
	}
	p.report("core1")
	if place = p.lookAgain(lookPause); place.Phase != placementpolicy.Withdrawing {
		t.Errorf("it is %s, and no switch sends to it", place.Phase)
	}
}

// arrived holds that the VIP is where its owner wants it.
func (p *plant) arrived() {
	vip, _ := p.state.VIPAt(service)
	state, tips := p.state.Placements.At(service), []model.TIP(nil)
	if vip.Hardware != nil {
		tips = vip.Hardware.TIPs
	}
	if got, want := state.Switches(), slices.Sorted(slices.Values(hardware.Named(vip))); !slices.Equal(got, want) {
		p.t.Fatalf("it is in %v, wanted in %v", got, want)
	}
	for name, place := range state.Places {
		if place.Phase != placementpolicy.Hardware || place.TIP != hardware.TIPAt(vip, name) || place.Named != place.TIP.IsValid() {
			p.t.Fatalf("at %s it is %+v", name, place)
		}
		if parts := uint32(len(tips)); place.TIP.IsValid() && parts > 1 && place.Part.Of != parts {
			p.t.Fatalf("of %d TIPs, %s has part %s", parts, name, place.Part)
		}
		if d := p.devices[name]; !place.TIP.IsValid() && len(tips) > 0 && len(d.members) != len(tips) {
			p.t.Fatalf("%s sends to %v", name, d.members)
		}
	}
}
