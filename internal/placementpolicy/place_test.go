package placementpolicy

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var at = time.Unix(1_700_000_000, 0)

func TestEachStep(t *testing.T) {
	want := Seen{Wanted: true}
	for what, c := range map[string]struct {
		from     Phase
		attempts uint32
		seen     Seen
		to       Phase
		event    Event
	}{
		"not wanted":                       {"", 0, Seen{}, "", ""},
		"wanted":                           {"", 0, want, Preparing, ""},
		"wanted of a silent switch":        {"", 0, Seen{Wanted: true, Silent: SilentTime}, "", ""},
		"wanted where it does not fit":     {"", 0, Seen{Wanted: true, Unfit: "no tunnel"}, "", ""},
		"hosts not ready":                  {Preparing, 0, want, Preparing, ""},
		"hosts ready":                      {Preparing, 0, Seen{Wanted: true, HostsReady: true}, Programming, ""},
		"given up while preparing":         {Preparing, 0, Seen{HostsReady: true}, Leaving, ""},
		"not programmed yet":               {Programming, 0, Seen{Wanted: true, HostsReady: true}, Programming, ""},
		"programmed":                       {Programming, 0, Seen{Wanted: true, Runs: true}, Announcing, ""},
		"refused":                          {Programming, 0, Seen{Wanted: true, Runs: true, Refused: "full"}, Removing, Refused},
		"refused something before":         {Programming, 0, Seen{Wanted: true, Refused: "full"}, Programming, ""},
		"silent while programming":         {Programming, 0, Seen{Wanted: true, Silent: 24 * time.Hour}, Programming, ""},
		"given up while programming":       {Programming, 0, Seen{}, Removing, ""},
		"announced":                        {Announcing, 0, Seen{Wanted: true, Runs: true}, Hardware, Placed},
		"refused while announcing":         {Announcing, 0, Seen{Wanted: true, Runs: true, Refused: "full"}, Withdrawing, Refused},
		"in hardware":                      {Hardware, 0, Seen{Wanted: true, Runs: true, For: 24 * time.Hour}, Hardware, ""},
		"in hardware of a silent switch":   {Hardware, 0, Seen{Wanted: true, Silent: 24 * time.Hour}, Hardware, ""},
		"an update refused":                {Hardware, 0, Seen{Wanted: true, Runs: true, Refused: "full"}, Withdrawing, Refused},
		"wanted no more":                   {Hardware, 0, Seen{Runs: true}, Withdrawing, Withdrawn},
		"fits no more":                     {Hardware, 0, Seen{Wanted: true, Unfit: "no backend"}, Withdrawing, Withdrawn},
		"fits no more, once refused":       {Hardware, 2, Seen{Wanted: true, Unfit: "no backend"}, Withdrawing, Withdrawn},
		"not withdrawn yet":                {Withdrawing, 0, Seen{For: time.Hour}, Withdrawing, ""},
		"just withdrawn":                   {Withdrawing, 0, Seen{Runs: true, RunsFor: settle - 1}, Withdrawing, ""},
		"withdrawn":                        {Withdrawing, 0, Seen{Runs: true, RunsFor: settle}, Removing, ""},
		"withdrawn by itself":              {Withdrawing, 0, Seen{Silent: GoneTime}, Removing, ""},
		"wanted again":                     {Withdrawing, 0, want, Announcing, ""},
		"wanted again, but refused":        {Withdrawing, 1, want, Withdrawing, ""},
		"not removed yet":                  {Removing, 0, Seen{For: time.Hour}, Removing, ""},
		"removed":                          {Removing, 0, Seen{Runs: true}, Leaving, ""},
		"removed as it was refused":        {Removing, 1, Seen{Wanted: true, Runs: true}, Evicted, ""},
		"removed, refused, not wanted":     {Removing, 1, Seen{Runs: true}, Leaving, ""},
		"left for less than ten minutes":   {Leaving, 0, Seen{For: LeaveTime - 1}, Leaving, ""},
		"left for ten minutes":             {Leaving, 0, Seen{For: LeaveTime}, "", ""},
		"wanted again while leaving":       {Leaving, 0, want, Preparing, ""},
		"evicted for less than a minute":   {Evicted, 1, Seen{Wanted: true, For: time.Minute - 1}, Evicted, ""},
		"evicted for a minute":             {Evicted, 1, Seen{Wanted: true, For: time.Minute}, Preparing, ""},
		"evicted twice, for a minute":      {Evicted, 2, Seen{Wanted: true, For: time.Minute}, Evicted, ""},
		"evicted from a silent switch":     {Evicted, 1, Seen{Wanted: true, For: time.Hour, Silent: SilentTime}, Evicted, ""},
		"evicted and not wanted any more":  {Evicted, 3, Seen{For: time.Hour}, Leaving, ""},
		"evicted where it still can't fit": {Evicted, 1, Seen{Wanted: true, For: time.Hour, Unfit: "no tunnel"}, Evicted, ""},
	} {
		next, event := Place{Phase: c.from, Attempts: c.attempts}.Next(c.seen, at)
		if next.Phase != c.to || event != c.event {
			t.Errorf("%s: %q leads to %q (%q), want %q (%q)", what, c.from, next.Phase, event, c.to, c.event)
		}
		if event == Withdrawn && next.Attempts > 0 || next.Phase != c.from && next.Phase != "" && !next.Since.Equal(at) {
			t.Errorf("%s: leads to %+v", what, next)
		}
	}
}

// A VIP that its switch has withdrawn for want of a route is served when there was one for a while. It leaves as any other, and
// is not chosen again at once.
func TestWithoutARoute(t *testing.T) {
	for what, c := range map[string]struct {
		from     Phase
		was      bool // unrouted
		seen     Seen
		to       Phase
		unrouted bool
		event    Event
	}{
		"announced, without":      {Announcing, false, Seen{Wanted: true, Runs: true, Unrouted: true}, Announcing, true, Unrouted},
		"it loses its route":      {Hardware, false, Seen{Wanted: true, Runs: true, Unrouted: true}, Hardware, true, Unrouted},
		"its word of before":      {Hardware, false, Seen{Wanted: true, Unrouted: true}, Hardware, false, ""},
		"still":                   {Hardware, true, Seen{Wanted: true, Runs: true, Unrouted: true}, Hardware, true, ""},
		"it has just come":        {Hardware, true, Seen{Wanted: true, Runs: true, RoutedFor: RoutedTime - 1}, Hardware, true, ""},
		"it is there":             {Hardware, true, Seen{Wanted: true, Runs: true, RoutedFor: RoutedTime}, Hardware, false, Placed},
		"announced, and there":    {Announcing, true, Seen{Wanted: true, Runs: true, RoutedFor: RoutedTime}, Hardware, false, Placed},
		"announced, and just now": {Announcing, true, Seen{Wanted: true, Runs: true}, Announcing, true, ""},
		"not wanted":              {Hardware, true, Seen{Runs: true, Unrouted: true}, Withdrawing, false, Withdrawn},
		"refused":                 {Hardware, true, Seen{Wanted: true, Runs: true, Unrouted: true, Refused: "full"}, Withdrawing, false, Refused},
	} {
		next, event := Place{Phase: c.from, Unrouted: c.was}.Next(c.seen, at)
		if next.Phase != c.to || next.Unrouted != c.unrouted || event != c.event {
			t.Errorf("%s: %+v (%q), want %+v", what, next, event, c)
		}
		if what == "not wanted" && (next.Attempts != 1 || next.Reason != NoRoute) {
			t.Errorf("%s: %+v", what, next)
		}
	}
	tip := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	s := State{Places: map[string]Place{
		"a": {Phase: Hardware, TIP: tip(1), Named: true, Unrouted: true}, "b": {Phase: Hardware, TIP: tip(2), Named: true},
		"c": {Phase: Hardware, TIP: tip(3), Unrouted: true},
	}}
	if tips := s.TIPs(); !slices.Equal(tips, []netip.Addr{tip(2)}) {
		t.Errorf("named are %v", tips)
	}
	always := func(string) bool { return true }
	if s.Name(true, always, always); s.Places["c"].Named || !s.Places["a"].Named {
		t.Errorf("named: %+v", s.Places)
	}
	delete(s.Places, "b")
	if tips := s.TIPs(); !slices.Equal(tips, []netip.Addr{tip(1)}) {
		t.Errorf("none has a route, and named are %v", tips)
	}
}

// While a host does not steer a VIP it waits, or leaves.
func TestWhatAHostDoesNotSteer(t *testing.T) {
	for _, c := range []struct {
		from  Phase
		seen  Seen
		to    Phase
		event Event
	}{
		{Preparing, Seen{Wanted: true, HostsReady: true}, Preparing, ""},
		{Programming, Seen{Wanted: true, Runs: true}, Removing, Unsteered},
		{Announcing, Seen{Wanted: true, Runs: true}, Withdrawing, Unsteered},
		{Hardware, Seen{Wanted: true, Runs: true}, Withdrawing, Unsteered},
		{Hardware, Seen{Runs: true}, Withdrawing, Withdrawn},
	} {
		c.seen.Host, c.seen.HostSays = "h", "full"
		next, event := Place{Phase: c.from}.Next(c.seen, at)
		if next.Phase != c.to || event != c.event || (next.Host != "") != c.seen.Wanted || c.seen.Wanted && next.Reason != "full" {
			t.Errorf("%s leads to %+v (%q), want %s (%q)", c.from, next, event, c.to, c.event)
		}
	}
}

// What other switches send to does not withdraw, and keeps its entry.
func TestWhatIsNamedStays(t *testing.T) {
	for _, c := range []struct {
		from Phase
		seen Seen
		to   Phase
	}{
		{Hardware, Seen{Runs: true}, Hardware},
		{Announcing, Seen{Runs: true}, Announcing},
		{Programming, Seen{Runs: true}, Removing},
		{Hardware, Seen{Wanted: true, Runs: true, Refused: "full"}, Hardware},
		{Withdrawing, Seen{Runs: true, RunsFor: settle}, Withdrawing},
	} {
		c.seen.Named = true
		if next, _ := (Place{Phase: c.from}).Next(c.seen, at); next.Phase != c.to {
			t.Errorf("%s leads to %s, want %s", c.from, next.Phase, c.to)
		}
	}
}

// A switch that refused a change of what others send to leaves when they do not any more, whatever it says by then; people
// are told once.
func TestRefusedAndNamed(t *testing.T) {
	said := Seen{Wanted: true, Runs: true, Refused: "full", Named: true}
	p, event := (Place{Phase: Hardware, Attempts: 1}).Next(said, at)
	if !p.Refuses() || p.Phase != Hardware || p.Attempts != 1 || event != Refused {
		t.Errorf("it is %+v (%q)", p, event)
	}
	said.Refused = ""
	if next, event := p.Next(said, at); next != p || event != "" {
		t.Errorf("while others send there it is %+v (%q)", next, event)
	}
	said.Named = false
	if next, event := p.Next(said, at); next.Phase != Withdrawing || next.Attempts != 2 || next.Reason != "full" || event != "" {
		t.Errorf("then it is %+v (%q)", next, event)
	}
}

func TestBackOff(t *testing.T) {
	for attempts, want := range map[uint32]time.Duration{0: time.Minute, 1: time.Minute, 2: 2 * time.Minute, 6: 32 * time.Minute, 7: time.Hour, 1 << 31: time.Hour} {
		if got := BackOff(attempts); got != want {
			t.Errorf("after %d refusals %s, want %s", attempts, got, want)
		}
	}
}

// world is a switch, its hosts and its routers as far as they have what they were told, and a leader that may be replaced.
type world struct {
	place            Place
	wanted, unfit    bool
	refuses          bool
	unsteered        bool // a host does not steer it
	connected        bool
	since            time.Duration // when the switch lost its stream
	hosts            Phase         // the phase whose table hosts have
	runs             Phase         // the phase that the switch has applied
	reported         Phase         // and that the leader knows
	entered, learned time.Duration // when this leader saw the phase, and that the switch runs it
	now              time.Duration

	prepared           bool          // hosts have what the switch's packets need
	withdrawn, removed time.Duration // when the switch told routers no more, and when it was told to have nothing
}

func (w *world) see() Seen {
	seen := Seen{
		Wanted: w.wanted, HostsReady: w.hosts == w.place.Phase, Runs: w.reported == w.place.Phase,
		For: w.now - w.entered,
	}
	if w.unfit {
		seen.Unfit = "unfit"
	}
	if w.unsteered && w.place.Phase.Serves() {
		seen.Host, seen.HostSays = "h", "full"
	}
	if !w.connected {
		seen.Silent = w.now - w.since
	}
	if seen.Runs {
		seen.RunsFor = w.now - w.learned
		if w.refuses && w.place.Phase.Held() {
			seen.Refused = "full"
		}
	}
	return seen
}

// check holds what must be so of a step, whatever happened before it.
func (w *world) check(t *rapid.T, before Phase) {
	gone := !w.connected && w.now-w.since >= GoneTime
	switch is := w.place.Phase; {
	case is.Held() && !w.prepared:
		t.Fatalf("%s follows %s, and hosts are not ready", is, before)
	case before == Preparing && is == Programming && w.unsteered:
		t.Fatal("programmed while a host does not steer it")
	case is.Announced() && before == Preparing:
		t.Fatalf("%s follows %s", is, before)
	case is == Announcing && before == Programming && w.runs != Programming:
		t.Fatalf("announced while the switch runs %s", w.runs)
	case is == Removing && before == Withdrawing && !gone && (w.runs != Withdrawing || w.now-w.withdrawn < settle):
		t.Fatalf("removed %s after the routes", w.now-w.withdrawn)
	case is == "" && before == Leaving && w.now-w.removed < LeaveTime:
		t.Fatalf("hosts are told nothing more %s after the entry went", w.now-w.removed)
	}
}

func (w *world) step(t *rapid.T) {
	before := w.place
	w.place, _ = before.Next(w.see(), at.Add(w.now))
	if w.place.Phase == before.Phase {
		return
	}
	w.entered, w.learned = w.now, w.now
	w.check(t, before.Phase)
	switch w.place.Phase {
	case Leaving:
		w.removed = w.now
	case "":
		w.prepared = false
	}
}

func (w *world) reachHosts() {
	w.hosts = w.place.Phase
	w.prepared = w.prepared || w.place.Phase != ""
}

// settleDown has hosts and switch have what they are told, and the leader hear of it.
func (w *world) settleDown() {
	w.reachHosts()
	if w.connected && w.runs != w.place.Phase {
		if w.runs = w.place.Phase; w.runs == Withdrawing {
			w.withdrawn = w.now
		}
	}
	if w.connected && w.reported != w.runs {
		w.reported, w.learned = w.runs, w.now
	}
}

// Whatever happens in whatever order: routers are told only of what hosts and switch have, an entry goes a second after its
// routes, and what hosts need ten minutes after that; and what is wanted comes, and what is not goes.
func TestRoutesAreToldOfWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{connected: true}
		t.Repeat(map[string]func(*rapid.T){
			"want":       func(*rapid.T) { w.wanted = true },
			"do not":     func(*rapid.T) { w.wanted = false },
			"unfit":      func(*rapid.T) { w.unfit = !w.unfit },
			"refuse":     func(*rapid.T) { w.refuses = !w.refuses },
			"unsteered":  func(*rapid.T) { w.unsteered = !w.unsteered },
			"part":       func(*rapid.T) { w.connected, w.since = false, w.now },
			"meet":       func(*rapid.T) { w.connected = true },
			"hosts":      func(*rapid.T) { w.reachHosts() },
			"settle":     func(*rapid.T) { w.settleDown() },
			"step":       w.step,
			"new leader": func(*rapid.T) { w.entered, w.learned = w.now, w.now },
			"a second":   func(*rapid.T) { w.now += time.Second },
			"an hour":    func(*rapid.T) { w.now += time.Hour },
		})
		w.connected, w.refuses, w.unfit, w.unsteered = true, false, false, false
		for range 60 {
			w.settleDown()
			w.step(t)
			w.now += 2 * time.Minute
		}
		want := Phase("")
		if w.wanted {
			want = Hardware
		}
		if w.place.Phase != want {
			t.Fatalf("wanted: %v, and in the end it is %q, tried %d times", w.wanted, w.place.Phase, w.place.Attempts)
		}
	})
}

// A host that changes its mind all the time has a VIP leave less and less often, and nothing written while it waits.
func TestAHostThatChangesItsMind(t *testing.T) {
	place, left, writes := Place{Phase: Hardware}, 0, 0
	entered, now := time.Duration(0), time.Duration(0)
	for now < 24*time.Hour {
		now += time.Second
		seen := Seen{Wanted: true, HostsReady: true, Runs: true, RunsFor: time.Minute, For: now - entered}
		if int(now.Seconds())%2 == 0 {
			seen.Host, seen.HostSays = "h", now.String()
		}
		next, event := place.Next(seen, at.Add(now))
		if event == Unsteered {
			left++
		}
		if next != place {
			writes++
		}
		if next.Phase != place.Phase {
			entered = now
		}
		place = next
	}
	if left < 5 || left > 40 || writes > 400 {
		t.Errorf("in a day it left %d times, with %d writes", left, writes)
	}
}
