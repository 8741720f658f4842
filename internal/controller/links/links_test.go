package links

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// site is a State with a fabric, and what its switches report.
type site struct {
	*Watch

	t     *testing.T
	s     *store.State
	now   time.Time
	ports map[string][]*weirv1.SwitchPort
	log   []eventlog.Event
}

func (s *site) Record(e eventlog.Event) { s.log = append(s.log, e) }

// newSite is a core with two ToRs, or with others.
func newSite(t *testing.T, tors ...string) *site {
	t.Helper()
	site := &site{t: t, s: &store.State{}, now: time.Unix(1_700_000_000, 0), ports: map[string][]*weirv1.SwitchPort{}}
	c := &Controller{
		Reports: &reported.Source{
			Newest: func(node string, _ nodestatus.Status) (time.Time, *weirv1.NodeStatus, bool) {
				return site.now, &weirv1.NodeStatus{Switch: &weirv1.SwitchStatus{Ports: site.ports[node]}}, true
			},
			Stale: 20 * time.Second,
		},
		Events: site, Log: slog.New(slog.DiscardHandler),
	}
	site.Watch = c.Watch()
	if len(tors) == 0 {
		tors = []string{"tor-1", "tor-2"}
	}
	dc := &weirv1.Fabric{Name: "dc1", Switches: []*weirv1.FabricSwitch{{Name: "core"}}}
	for _, tor := range tors {
		dc.Switches = append(dc.Switches, &weirv1.FabricSwitch{Name: tor})
		dc.Links = append(dc.Links, &weirv1.FabricLink{A: "core", B: tor, MbitPerS: 1000})
		dc.Racks = append(dc.Racks, &weirv1.FabricRack{Name: "r-" + tor, Switch: tor})
	}
	kept, err := compile.NewFabric(dc)
	if err != nil {
		t.Fatal(err)
	}
	site.s.Fabrics.Set("dc1", store.Fabric{KeptFabric: kept})
	for _, name := range append(tors, "core") {
		site.s.PutNode(model.Node{Name: name, Role: model.RoleSwitch})
		site.s.Streams.Set(name, true)
	}
	return site
}

// hears has a switch report ports with these neighbours; "!core" is a port that is down.
func (s *site) hears(name string, neighbours ...string) {
	s.ports[name] = nil
	for i, n := range neighbours {
		s.ports[name] = append(s.ports[name], &weirv1.SwitchPort{Name: "e" + string(rune('0'+i)), Up: !strings.HasPrefix(n, "!"), Neighbour: strings.TrimPrefix(n, "!")})
	}
}

func (s *site) fine() {
	s.hears("core", "tor-1", "tor-2")
	s.hears("tor-1", "core", "host-1")
	s.hears("tor-2", "core")
}

// passes lets time pass and says what was told.
func (s *site) passes(d time.Duration) string {
	s.log = nil
	for range int(d / interval) {
		s.now = s.now.Add(interval)
		s.Step(s.s, s.now)
	}
	var all []string
	for _, e := range s.log {
		if e.Kind != events.KindFabric || e.Object != "dc1" {
			s.t.Errorf("told of %s %s", e.Kind, e.Object)
		}
		all = append(all, e.Reason+": "+e.Message)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func (s *site) expect(what string, d time.Duration, want string) {
	s.t.Helper()
	if got := s.passes(d); got != want {
		s.t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

func TestDifferencesThatLastAreToldOnce(t *testing.T) {
	s := newSite(t)
	s.fine()
	s.expect("all is as declared", 5*time.Minute, "")
	s.hears("core", "!tor-1", "tor-2")
	s.hears("tor-1", "!core", "host-1")
	s.expect("a link is down for a moment", 20*time.Second, "")
	s.fine()
	s.expect("it is up", time.Minute, "")
	s.hears("core", "!tor-1", "tor-2")
	s.hears("tor-1", "!core", "host-1")
	s.expect("it is down for long", 10*time.Minute, "LinkDown: links are down: core to tor-1 (e0 of core)")
	if want := (Counts{Declared: 2, There: 1, Down: 1}); s.Counts() != want {
		t.Errorf("counts %+v, want %+v", s.Counts(), want)
	}
	s.hears("tor-1", "!core", "host-1", "tor-2")
	s.hears("tor-2", "core", "tor-1")
	s.expect("somebody laid another cable", time.Minute, "LinkUnexpected: links are there that are not declared: tor-1 to tor-2")
	s.fine()
	s.expect("all is well", time.Minute, "LinksRestored: all links that are known of are as declared")
	s.expect("it stays so", time.Minute, "")
	s.hears("core", "tor-2", "tor-1")
	s.hears("tor-1", "host-1", "core")
	s.expect("cables are in other ports", time.Minute, "")
	s.hears("core", "", "tor-1")
	s.hears("tor-2", "host-2")
	s.expect("a cable is somewhere else", time.Minute, "LinkMissing: links that are declared are not there: core to tor-2")
	s.hears("tor-2", "host-2", "tor-1")
	s.hears("tor-1", "host-1", "core", "tor-2")
	s.expect("it is here", time.Minute, "LinkUnexpected: links are there that are not declared: tor-1 to tor-2")
}

// A daemon, a switch's LLDP and the leader may restart: nothing is told.
func TestRestartsAreNotTold(t *testing.T) {
	s := newSite(t)
	s.fine()
	s.passes(time.Minute)
	s.s.Streams.Delete("core")
	s.expect("a daemon is away", 5*time.Minute, "")
	s.s.Streams.Set("core", true)
	s.hears("core", "", "")
	s.expect("it hears nobody", 5*time.Minute, "")
	s.hears("core", "", "tor-2")
	s.expect("it has heard one so far", 25*time.Second, "")
	s.fine()
	s.expect("it hears all", time.Minute, "")
	s.hears("core", "!tor-1", "tor-2")
	s.hears("tor-1", "!core", "host-1")
	s.passes(time.Minute)
	told := s.texts[reason.LinkDown]
	if told == "" {
		t.Fatal("it is not told that a link is down")
	}
	s.Watch = s.Controller.Watch()
	s.recall([]eventlog.Event{{Kind: events.KindFabric, Object: "dc1", Reason: reason.LinkDown, Message: told, About: []string{"core", "tor-1"}}})
	s.expect("another leader finds the same", 5*time.Minute, "")
	s.Watch = s.Controller.Watch()
	s.hears("core")
	s.hears("tor-1")
	s.hears("tor-2")
	s.recall([]eventlog.Event{{Kind: events.KindFabric, Object: "dc1", Reason: reason.LinkDown, Message: told, About: []string{"core", "tor-1"}}})
	s.expect("another one knows nothing", 5*time.Minute, "")
	s.hears("core", "", "tor-2")
	s.expect("it knows of another link", 5*time.Minute, "")
	s.Watch = s.Controller.Watch()
	s.fine()
	s.recall([]eventlog.Event{{Kind: events.KindFabric, Object: "dc0", Reason: reason.LinkDown, Message: told, About: []string{"core", "tor-1"}}})
	s.expect("what was told of another fabric", 5*time.Minute, "")
	s.Watch = s.Controller.Watch()
	s.recall([]eventlog.Event{{Kind: events.KindFabric, Object: "dc1", Reason: reason.LinkDown, Message: told, About: []string{"core", "tor-1"}}})
	s.expect("another one finds that it is over", time.Minute, "LinksRestored: all links that are known of are as declared")
	s.s.Fabrics.Delete("dc1")
	s.expect("the fabric is deleted", time.Minute, "")
	if s.Counts() != (Counts{}) {
		t.Errorf("counts %+v of no fabric", s.Counts())
	}
}

// A leader that knows of one link does not say that another one is well whose name begins likewise.
func TestWhatWasToldIsOfLinksAndNotOfTexts(t *testing.T) {
	s := newSite(t, "tor-1", "tor-10")
	s.hears("core", "tor-1", "")
	s.hears("tor-1", "core")
	s.recall([]eventlog.Event{{
		Kind: events.KindFabric, Object: "dc1", Reason: reason.LinkDown, Message: "links are down: core to tor-10 (e1 of core)", About: []string{"core", "tor-10"},
	}})
	s.expect("it knows of another link", 5*time.Minute, "")
	s.hears("core", "tor-1", "tor-10")
	s.hears("tor-10", "core")
	s.expect("it knows of this one", time.Minute, "LinksRestored: all links that are known of are as declared")
}

// flap has the link of two switches go down and up in a moment, so many times, as both see.
func (s *site) flap(a, b string, times uint64) {
	for of, other := range map[string]string{a: b, b: a} {
		for _, p := range s.ports[of] {
			if p.GetNeighbour() == other {
				p.Changes += 2 * times
			}
		}
	}
}

// A link that goes up and down again and again is told, however short it is down, once, and when it has stayed up for long.
func TestLinksThatFlapAreTold(t *testing.T) {
	s := newSite(t)
	s.fine()
	s.flap("core", "tor-1", 50) // before anybody looked
	s.expect("all is as declared", time.Minute, "")
	for range 3 {
		s.flap("core", "tor-1", 1)
		s.expect("it fails every six minutes", 6*time.Minute, "")
	}
	s.expect("it is well", 10*time.Minute, "")
	const told = "LinkFlapping: links go up and down: core to tor-1 (e0 of core)"
	s.flap("core", "tor-1", 2)
	s.expect("it failed twice", time.Minute, "")
	s.flap("core", "tor-1", 1)
	s.expect("and once more", time.Minute, told)
	if want := (Counts{Declared: 2, There: 2, Flapping: 1}); s.Counts() != want {
		t.Errorf("counts %+v, want %+v", s.Counts(), want)
	}
	s.flap("core", "tor-1", 1)
	s.ports["core"][0].Neighbour = ""
	s.expect("it goes on, and LLDP has not heard it yet", 20*time.Second, "")
	s.ports["core"][0].Neighbour = "tor-1"
	s.expect("it is well", 9*time.Minute, "")
	s.fine() // the daemons restart: they begin to count anew
	s.expect("it stays so", 30*time.Second, "")
	s.expect("it stays so", 2*time.Minute, "LinksRestored: all links that are known of are as declared")
	s.Watch = s.Controller.Watch()
	s.recall([]eventlog.Event{{Kind: events.KindFabric, Object: "dc1", Reason: reason.LinkFlapping, Message: strings.TrimPrefix(told, "LinkFlapping: "), About: []string{"core", "tor-1"}}})
	s.expect("another leader has not seen it long enough", 9*time.Minute, "")
	s.expect("now it has", 2*time.Minute, "LinksRestored: all links that are known of are as declared")
	for range 6 { // one end alone says so
		s.ports["tor-2"][0].Changes += 2
		s.expect("a switch lies", time.Minute, "")
	}
}

// Daemons that restart, and count anew what ports did before, make no link flap.
func TestFewerChangesAddNothing(t *testing.T) {
	s := newSite(t)
	s.fine()
	s.flap("core", "tor-1", 50)
	s.expect("all is as declared", time.Minute, "")
	for i := range uint64(4) {
		for _, of := range []string{"core", "tor-1"} {
			s.ports[of][0].Changes = 12 - 3*i
		}
		s.expect("the daemons restart", 20*time.Second, "")
	}
	s.flap("core", "tor-1", 2)
	s.expect("it failed twice", time.Minute, "")
}

// Whoever has links flap one after the other has an event a minute.
func TestLinksThatFlapFillNoLog(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	s.hears("core", "a", "b", "c")
	for _, tor := range []string{"a", "b", "c"} {
		s.hears(tor, "core")
	}
	s.passes(time.Minute)
	for _, tor := range []string{"a", "b", "c"} {
		s.flap("core", tor, 3)
		want := ""
		if tor == "a" {
			want = "LinkFlapping: links go up and down: a to core (e0 of a)"
		}
		s.expect(tor+" flaps", 20*time.Second, want)
	}
	s.expect("all flap", time.Minute, "LinkFlapping: links go up and down: a to core (e0 of a), b to core (e0 of b), c to core (e0 of c)")
}

// What a compromised switch says costs an event from time to time, of bounded length, whatever it says.
func TestASwitchThatLiesFillsNoLog(t *testing.T) {
	s := newSite(t)
	s.fine()
	s.passes(time.Minute)
	names := []string{"core", "tor-1", "tor-2"}
	told := 0
	for i := range 300 {
		var lies []string
		for j := range 512 {
			lies = append(lies, names[(i/7+j)%3])
		}
		lies[0] = strings.Repeat("x", 1<<10)
		s.hears("tor-2", lies...)
		for j, p := range s.ports["tor-2"] {
			p.Changes = uint64(i*j) << 32
		}
		s.passes(interval)
		told += len(s.log)
		for _, e := range s.log {
			if len(e.Message) > events.MaxMessage {
				t.Errorf("an event has %d bytes", len(e.Message))
			}
		}
	}
	if told > 60 {
		t.Errorf("it is told %d times in 25 minutes", told)
	}
	s.hears("tor-2", "core")
	for range 5 {
		s.passes(time.Minute)
	}
	if c := s.Counts(); c != (Counts{Declared: 2, There: 2}) {
		t.Errorf("after the lies: %+v", c)
	}
}
