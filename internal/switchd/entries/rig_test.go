package entries

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/fake"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

const (
	lead  = time.Second
	lease = 10 * time.Minute
)

func vip(n byte) netip.Addr    { return netip.AddrFrom4([4]byte{203, 0, 113, n}) }
func tunnel(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, 0, n}) }

// entry is a VIP with the tunnels, an entry of the group each.
func entry(n byte, announce bool, tunnels ...byte) wire.SwitchEntry {
	e := wire.SwitchEntry{VIP: vip(n), Announce: announce}
	for _, t := range tunnels {
		e.Members = append(e.Members, wire.SwitchMember{Tunnel: tunnel(t), Entries: 1})
	}
	return e
}

// notes is a Log in memory that outlives controllers.
type notes struct {
	messages []*weirv1.SyncSwitchResponse
	heard    time.Time
	broken   error
}

func (n *notes) Append(m *weirv1.SyncSwitchResponse, whole func() *weirv1.SyncSwitchResponse) error {
	if n.broken != nil {
		n.messages = nil
		return n.broken
	}
	if m.GetSnapshot() || len(n.messages) == 0 {
		n.messages, m = nil, whole()
	}
	n.messages = append(n.messages, m)
	return nil
}

func (n *notes) Heard(now time.Time) error {
	n.heard = now
	return nil
}

// rig is a controller of a switch in memory.
type rig struct {
	t *testing.T
	*Controller
	sw         *fake.Switch
	driver     hardware.Driver // of the next start
	notes      notes
	generation model.Generation
	end        func()

	mu        sync.Mutex
	announced string // by the last call
	events    []string
	reads     int          // of the switch
	noRoute   []netip.Addr // to these tunnels
	tipRoutes []netip.Addr // to these addresses alone
	gap       bool         // the next look-up alone finds no route
	othersDo  func()       // what a driver calls that hears of it
}

func newRig(t *testing.T) *rig {
	sw := fake.New(fake.Limits{})
	return &rig{t: t, sw: sw, driver: sw.Open()}
}

// start starts a controller, as after a restart.
func (r *rig) start() {
	r.t.Helper()
	if r.end != nil {
		r.end()
	}
	r.announced = ""
	var err error
	r.Controller, err = New(r.config(), slices.Clone(r.notes.messages), r.notes.heard)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Start(r.t.Context())
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error)
	c := r.Controller
	go func() { done <- c.Run(ctx) }()
	r.end = func() {
		cancel()
		<-done
		r.end = nil
	}
	r.settle()
}

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if list, ok := strings.CutPrefix(line, "announce "); ok {
		r.announced = list
	}
	r.events = append(r.events, line)
}

// config is that of the controller.
func (r *rig) config() Config {
	return Config{
		Driver: noting{r.driver, r}, Source4: tunnel(250), VIPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, TIPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		Announceable: func(netip.Addr) error { return nil },
		Announce: func(vips []netip.Addr) error {
			r.note("announce %s", fmt.Sprint(vips))
			return nil
		},
		Lead: lead, Lease: lease, Told: &r.notes, Changed: func() {}, Log: slog.New(slog.DiscardHandler),
	}
}

// noting notes what changes the switch, in order with what is announced.
type noting struct {
	hardware.Driver
	r *rig
}

func (n noting) Program(ctx context.Context, e hardware.Entry) error {
	n.r.note("program %s", e.VIP)
	return n.Driver.Program(ctx, e)
}

func (n noting) Read(ctx context.Context) ([]hardware.Entry, error) {
	n.r.mu.Lock()
	n.r.reads++
	n.r.mu.Unlock()
	return n.Driver.Read(ctx)
}

// Watch hands the call on to the test.
func (n noting) Watch(ctx context.Context, changed func()) error {
	n.r.mu.Lock()
	n.r.othersDo = changed
	n.r.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Unreachable implements hardware.Router.
func (n noting) Unreachable(_ context.Context, tunnels []hardware.Tunnel) (none []netip.Addr, err error) {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	for _, t := range tunnels {
		if n.r.gap || slices.Contains(n.r.noRoute, t.Address) || t.TIP && !slices.Contains(n.r.tipRoutes, t.Address) {
			none = append(none, t.Address)
		}
	}
	n.r.gap = false
	return none, nil
}

// loseRoutes leaves the switch without routes to these tunnels alone, and lets that be seen.
func (r *rig) loseRoutes(tunnels ...netip.Addr) {
	r.mu.Lock()
	r.noRoute = tunnels
	r.mu.Unlock()
	r.pass(2 * routePause)
}

func (n noting) Remove(ctx context.Context, vip netip.Addr) error {
	n.r.note("remove %s", vip)
	return n.Driver.Remove(ctx, vip)
}

// settle lets what is due be done.
func (r *rig) settle() { r.pass(200 * time.Millisecond) }

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) tell(u wire.SwitchUpdate) {
	r.t.Helper()
	r.generation++
	u.Generation = r.generation
	m := wire.SwitchUpdateToProto(u)
	m.Cluster, m.Epoch = 7, 3
	if err := r.Apply(m); err != nil {
		r.t.Fatal(err)
	}
}

// all tells a snapshot, and lets it be done.
func (r *rig) all(entries ...wire.SwitchEntry) {
	r.t.Helper()
	r.tell(wire.SwitchUpdate{Snapshot: true, Entries: entries})
	r.settle()
}

func (r *rig) change(entries ...wire.SwitchEntry) {
	r.t.Helper()
	r.tell(wire.SwitchUpdate{Entries: entries})
	r.settle()
}

func (r *rig) wantAnnounced(vips ...byte) {
	r.t.Helper()
	var list []netip.Addr
	for _, n := range vips {
		list = append(list, vip(n))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if want, got := fmt.Sprint(list), cmp.Or(r.announced, "[]"); got != want {
		r.t.Errorf("announced %s, want %s", got, want)
	}
}

// wantHeld wants these entries in the switch, by VIP and tunnels.
func (r *rig) wantHeld(entries ...wire.SwitchEntry) {
	r.t.Helper()
	held, err := r.sw.Open().Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var want []hardware.Entry
	for _, e := range entries {
		h := hardware.Entry{VIP: e.VIP, Inner: e.Inner, Sources: e.Sources, Source: tunnel(250)}
		for _, m := range e.Members {
			h.Members = append(h.Members, hardware.Member{Tunnel: m.Tunnel, Entries: m.Entries})
		}
		want = append(want, h)
	}
	if fmt.Sprint(held) != fmt.Sprint(want) {
		r.t.Errorf("the switch holds %v, want %v", held, want)
	}
}

// wantReport wants the generation that was told last to run, but for these refusals.
func (r *rig) wantReport(refused ...string) *weirv1.SwitchStatus {
	r.t.Helper()
	running, refusals, status := r.Report()
	if running != r.generation {
		r.t.Errorf("generation %d runs, want %d", running, r.generation)
	}
	var got []string
	for _, f := range refusals {
		got = append(got, fmt.Sprintf("%s %s %d %d %s", f.GetVip(), f.GetTable(), f.GetNeed(), f.GetFree(), f.GetReason()))
	}
	for i := range max(len(got), len(refused)) {
		if i >= len(got) || i >= len(refused) || !strings.HasPrefix(got[i], refused[i]) {
			r.t.Errorf("refused %q, want %q", got, refused)
			break
		}
	}
	return status
}

// takeEvents are what was done since the last call, in order.
func (r *rig) takeEvents() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.Join(r.events, "; ")
	r.events = nil
	return text
}

func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		test(r)
		if r.end != nil {
			r.end()
		}
	})
}
