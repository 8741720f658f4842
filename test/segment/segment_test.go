// Package segment finds VIPs without BGP: the router asks for them by ARP and NDP on a segment, and one mux answers for each.
//
//	client1 ── router ══ segment ══ mux1, mux2, mux3 (by the router) ── host1, host2
//	              └── manager1, manager2, manager3
//
// Muxes and the leader of the managers are killed, frozen and cut off under connections. None breaks, and no two muxes
// answer for a VIP.
package segment

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

var (
	vip4 = netip.MustParseAddr("203.0.113.40")
	vip6 = netip.MustParseAddr("2001:db8:113::40")
)

// connections are held to each VIP.
const connections = 1000

type lab struct {
	*netlab.Lab
	t    *testing.T
	macs map[string]string // mux by MAC
	asks []*watcher
}

func vip(lab *netlab.Lab, name string, address netip.Addr) string {
	return fmt.Sprintf("---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  endpoints:\n"+
		"    - protocol: TCP\n      port: 80\n      backends:\n%s", name, address, testlab.Backends(lab, address))
}

func TestNeighbors(t *testing.T) {
	built := testlab.Up(t, netlab.Config{Plan: netlab.Plan{
		Name: "segment", Clients: 1, Muxes: 3, Hosts: 2, Workloads: 2, Managers: 3, Segment: true,
	}})
	l := &lab{Lab: built, t: t, macs: map[string]string{}}
	for _, mux := range l.Of(netlab.Mux) {
		ns, err := l.NS(mux.Name)
		testlab.Must(t, err)
		mac, err := ns.MAC(netlab.Uplink)
		testlab.Must(t, err)
		l.macs[mac.String()] = mux.Name
	}
	testlab.Apply(t, built, vip(built, "web-4", vip4), vip(built, "web-6", vip6))
	testlab.Must(t, l.WaitHealthy(t.Context(), testlab.Bound))
	by4, by6 := l.watch(vip4), l.watch(vip6)
	l.asks = []*watcher{by4, by6}
	l.answers(by4, "")
	l.answers(by6, "")

	var held []*netload.Streams
	for _, to := range []netip.Addr{vip4, vip6} {
		s, err := netload.StartStreams(t.Context(), l, "client1", stream.Config{
			Network: stream.TCP, Target: netip.AddrPortFrom(to, 80), Streams: connections, Interval: 2 * time.Second, Patience: testlab.Bound,
		})
		testlab.Must(t, err)
		testlab.Must(t, s.WaitOpened(t.Context(), testlab.Bound))
		held = append(held, s)
	}
	cut := func(l *lab, mux string) { testlab.Must(l.t, l.Silence(mux)) }
	mend := func(l *lab, mux string) { testlab.Must(l.t, l.Restore(mux)) }
	powerless := func(l *lab, mux string) { testlab.Must(l.t, l.CutPower(mux)) }
	t.Run("killed", func(t *testing.T) { l.at(t).fails(by4, (*lab).kill, (*lab).restart) })
	t.Run("killed, NDP", func(t *testing.T) { l.at(t).fails(by6, (*lab).kill, (*lab).restart) })
	t.Run("frozen", func(t *testing.T) { l.at(t).fails(by4, (*lab).freeze, (*lab).thaw) })
	t.Run("frozen, NDP", func(t *testing.T) { l.at(t).fails(by6, (*lab).freeze, (*lab).thaw) })
	t.Run("cut off", func(t *testing.T) { l.at(t).fails(by6, cut, mend) })
	t.Run("without power", func(t *testing.T) { l.at(t).fails(by4, powerless, (*lab).restart) })
	t.Run("leader killed", func(t *testing.T) { l.at(t).leaderFails(by4, unix.SIGKILL, unix.SIGCONT) })
	t.Run("leader frozen", func(t *testing.T) { l.at(t).leaderFails(by6, unix.SIGSTOP, unix.SIGCONT) })
	by4.stop()
	by6.stop()
	for _, s := range held {
		r, err := s.Stop()
		testlab.Must(t, err)
		t.Logf("%d streams to %v, %d broken; %d blocks, slowest answer %v", r.Opened, r.Backends, r.Broken, r.Blocks, r.Slowest)
		if r.Opened != connections || r.Broken != 0 {
			t.Errorf("%d streams opened, %d broke: %+v", r.Opened, r.Broken, r.Breaks[:min(3, len(r.Breaks))])
		}
	}
}

func (l *lab) at(t *testing.T) *lab { return &lab{Lab: l.Lab, t: t, macs: l.macs, asks: l.asks} }

// begin has all watchers begin anew.
func (l *lab) begin() {
	for _, w := range l.asks {
		w.begin()
	}
}

// holds that each VIP was answered for by one mux after the other, whichever failed.
func (l *lab) holds() {
	l.t.Helper()
	for _, w := range l.asks {
		w.holds(l)
	}
}

// fails has the mux fail that answers for the VIP, and come back.
func (l *lab) fails(w *watcher, fail, restore func(l *lab, mux string)) {
	owner := l.settles(w)
	l.begin()
	began := time.Now()
	fail(l, owner)
	next := l.answers(w, owner)
	l.t.Logf("%s failed, %s answers: silent for %s; %s after the failure", owner, next, w.longestSilence(), time.Since(began).Round(time.Millisecond))
	restore(l, owner)
	testlab.Must(l.t, netlab.Poll(l.t.Context(), testlab.Bound, func() error {
		if back := l.answers(w, next); back != owner {
			return fmt.Errorf("%s is back, and %s answers", owner, back)
		}
		return nil
	}))
	l.holds()
}

// settles waits until the VIP's owner answers, and not the one that stood in for it while it was slow.
func (l *lab) settles(w *watcher) (mux string) {
	l.t.Helper()
	testlab.Must(l.t, netlab.Poll(l.t.Context(), testlab.Bound, func() error {
		if since := w.lasts(); since < 3*neighbor.Lease {
			return fmt.Errorf("a mux answers for %s", since)
		}
		return nil
	}))
	return l.answers(w, "")
}

// leaderFails has the leader of the managers fail. Which mux answers stays, but for a while none may.
func (l *lab) leaderFails(w *watcher, fail, restore unix.Signal) {
	owner := l.answers(w, "")
	leader := l.leader()
	l.begin()
	process, err := l.Process(leader, "weir-manager")
	testlab.Must(l.t, err)
	if fail == unix.SIGKILL {
		testlab.Must(l.t, process.Stop(fail, testlab.Bound))
	} else {
		testlab.Must(l.t, process.Signal(fail))
	}
	testlab.Must(l.t, netlab.Poll(l.t.Context(), testlab.Bound, func() error {
		if next := l.leader(); next == leader || next == "" {
			return fmt.Errorf("%q leads", next)
		}
		return nil
	}))
	w.next()
	now := l.answers(w, "")
	l.t.Logf("%s failed: %s answered, %s answers: silent for %s", leader, owner, now, w.longestSilence())
	if fail == unix.SIGKILL {
		testlab.Must(l.t, l.Revive(leader))
	} else {
		testlab.Must(l.t, process.Signal(restore))
	}
	testlab.Must(l.t, l.WaitReady(l.t.Context()))
	l.holds()
}

// leader is the manager that leads; empty: none is said to.
func (l *lab) leader() string {
	out, err := l.Weir("get", "managers")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(out) {
		if slices.Contains(strings.Fields(line), "leader") {
			return strings.Fields(line)[0]
		}
	}
	return ""
}

func (l *lab) mux(name string) *netlab.Process {
	l.t.Helper()
	p, err := l.Process(name, "weir-mux")
	testlab.Must(l.t, err)
	return p
}

func (l *lab) kill(mux string)    { testlab.Must(l.t, l.mux(mux).Stop(unix.SIGKILL, testlab.Bound)) }
func (l *lab) restart(mux string) { testlab.Must(l.t, l.Revive(mux)) }
func (l *lab) freeze(mux string)  { testlab.Must(l.t, l.mux(mux).Signal(unix.SIGSTOP)) }
func (l *lab) thaw(mux string)    { testlab.Must(l.t, l.mux(mux).Signal(unix.SIGCONT)) }

// answers waits until a mux other than one answers for the VIP, and returns it.
func (l *lab) answers(w *watcher, other string) (mux string) {
	l.t.Helper()
	testlab.Must(l.t, netlab.Poll(l.t.Context(), testlab.Bound, func() error {
		mac := w.last()
		if mux = l.macs[mac]; mux == "" || mux == other {
			return fmt.Errorf("%s (%q) answers", mac, mux)
		}
		return nil
	}))
	return mux
}
