package e2e

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const victim = "mux1"

// underLoad is 100 new connections a second of each family, in one attempt each.
func underLoad(duration, timeout time.Duration) load.Config {
	return load.Config{Rate: 100, Duration: duration, Timeout: timeout}
}

// A mux loses its power under load: the router hears of it by BFD, long before BGP's hold time is over, connections that were
// beginning begin by the other mux, by a SYN that is sent again, and those that are open live on by it.
func TestMuxLosesPower(t *testing.T) {
	lab := newLab(t)
	t.Cleanup(func() { revive(t, lab) })
	before, err := lab.Sessions(victim)
	must(t, err)
	config := underLoad(6*time.Second, 20*time.Second)
	config.Record = true
	for vip, r := range loadAll(t, lab, config, func() {
		testlab.After(t, 2*time.Second)
		must(t, lab.CutPower(victim))
		testlab.After(t, 2*time.Second)
	}) {
		answered(t, lab, "client1", vip, r)
		again := 0
		for _, a := range r.Attempts {
			again += a.Again
		}
		if again == 0 {
			t.Errorf("%s: the client sent nothing again: did the power fail at all?", vip)
		}
		t.Logf("%s: %d requests, %d segments sent again, the slowest took %v", vip, r.Requests, again, r.Slowest)
	}
	if after, err := lab.Sessions(victim); err != nil || after.BFDDown == before.BFDDown {
		t.Errorf("the router lost BFD %d times with a mux without power, error %v", after.BFDDown-before.BFDDown, err)
	}
	for _, vip := range vips {
		routed(t, lab, vip, len(lab.Of(netlab.Mux))-1)
	}
}

// routed holds that the router sends a VIP by that many muxes now.
func routed(t *testing.T, lab *netlab.Lab, vip netip.Addr, muxes int) {
	t.Helper()
	got, err := lab.Routed(vip)
	must(t, err)
	if got != muxes {
		t.Errorf("the router sends %s by %d muxes, want %d", vip, got, muxes)
	}
}

// revive gives a mux its power back.
func revive(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	must(t, lab.Restore(victim))
	if _, err := lab.Restart(victim, "weir-mux"); err != nil {
		t.Fatal(err)
	}
	ready(t, lab)
}

// A mux is stopped as an operator stops it: nothing fails at all.
func TestMuxStopsCleanly(t *testing.T) {
	lab := newLab(t)
	t.Cleanup(func() { revive(t, lab) })
	mux, err := lab.Process(victim, "weir-mux")
	must(t, err)
	for vip, r := range loadAll(t, lab, underLoad(8*time.Second, 5*time.Second), func() {
		testlab.After(t, time.Second)
		must(t, mux.Stop(syscall.SIGTERM, 6*time.Second))
	}) {
		answered(t, lab, "client1", vip, r)
		t.Logf("%s: %d requests, the slowest took %v", vip, r.Requests, r.Slowest)
	}
	if id := testlab.ProgramID(t, lab, victim); id != 0 {
		t.Errorf("the XDP program %d is still attached", id)
	}
}

// A mux's daemon is killed and started again: the program, its maps and its counters live on, and
// forwarding never stops.
func TestMuxDaemonIsKilled(t *testing.T) {
	lab := newLab(t)
	program := testlab.ProgramID(t, lab, victim)
	if program == 0 {
		t.Fatalf("no XDP program is attached on %s", victim)
	}
	maps := testlab.MapIDs(t, program)
	before, err := lab.Forwarded(victim)
	must(t, err)
	mux, err := lab.Process(victim, "weir-mux")
	must(t, err)

	for vip, r := range loadAll(t, lab, underLoad(10*time.Second, 5*time.Second), func() {
		testlab.After(t, time.Second)
		must(t, mux.Stop(syscall.SIGKILL, bound))
		testlab.After(t, time.Second)
		for _, vip := range vips {
			routed(t, lab, vip, len(lab.Of(netlab.Mux))) // graceful restart keeps the routes
		}
		while, err := lab.Forwarded(victim)
		must(t, err)
		if while <= before {
			t.Errorf("%s has forwarded %d packets before the kill and %d a second after", victim, before, while)
		}
		_, err = lab.Restart(victim, "weir-mux")
		must(t, err)
		testlab.After(t, 3*time.Second)
	}) {
		answered(t, lab, "client1", vip, r)
		t.Logf("%s: %d requests, the slowest took %v", vip, r.Requests, r.Slowest)
	}
	ready(t, lab)
	if now := testlab.ProgramID(t, lab, victim); now != program {
		t.Errorf("the XDP program is %d, was %d", now, program)
	}
	if now := testlab.MapIDs(t, program); !slices.Equal(now, maps) {
		t.Errorf("the program's maps are %v, were %v", now, maps)
	}
	after, err := lab.Forwarded(victim)
	must(t, err)
	if after <= before {
		t.Errorf("%s has forwarded %d packets, had %d before it was killed", victim, after, before)
	}
}

// A client's connection that is open keeps its backend over the loss of a mux.
func TestOpenConnectionsOutliveAMux(t *testing.T) {
	lab := newLab(t)
	t.Cleanup(func() { revive(t, lab) })
	for vip, r := range loadAll(t, lab, load.Config{
		// Few connections, each long: 64 of them live through the cut.
		Duration: 6 * time.Second, Concurrency: 32, PerConn: 1 << 30, Timeout: 5 * time.Second,
	}, func() {
		testlab.After(t, 2*time.Second)
		must(t, lab.CutPower(victim))
	}) {
		answered(t, lab, "client1", vip, r)
		if r.Requests < 1000 {
			t.Errorf("%s: only %d requests", vip, r.Requests)
		}
	}
}

// The link of a mux goes down and comes back: nothing fails, and the mux takes part again.
func TestMuxLinkFlaps(t *testing.T) {
	lab := newLab(t)
	t.Cleanup(func() {
		_, err := lab.Run("router", "ip", "link", "set", victim, "up")
		must(t, err)
		ready(t, lab)
	})
	for vip, r := range loadAll(t, lab, underLoad(8*time.Second, 5*time.Second), func() {
		testlab.After(t, time.Second)
		_, err := lab.Run("router", "ip", "link", "set", victim, "down")
		must(t, err)
		testlab.After(t, time.Second)
		_, err = lab.Run("router", "ip", "link", "set", victim, "up")
		must(t, err)
	}) {
		answered(t, lab, "client1", vip, r)
		t.Logf("%s: %d requests, the slowest took %v", vip, r.Requests, r.Slowest)
	}
	ready(t, lab) // by both muxes, for both families
	before, err := lab.Forwarded(victim)
	must(t, err)
	for _, vip := range vips {
		r, err := netload.RunLoad(t.Context(), lab, "client1", load.Config{
			URL: url(vip, 80, "/"), Requests: 100, Timeout: 5 * time.Second,
		})
		must(t, err)
		answered(t, lab, "client1", vip, r)
	}
	if now, err := lab.Forwarded(victim); err != nil || now <= before {
		t.Errorf("%s forwards nothing since its link is back: %d packets, %v", victim, now, err)
	}
}
