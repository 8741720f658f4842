package entries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/fake"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/switchd/told"
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
	announced  string // by the last call
	events     []string
	end        func()
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
	r.Controller, err = New(Config{
		Driver: noting{r.driver, r}, Source4: tunnel(250), VIPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
		Announceable: func(netip.Addr) error { return nil },
		Announce: func(vips []netip.Addr) error {
			r.announced = fmt.Sprint(vips)
			r.events = append(r.events, "announce "+r.announced)
			return nil
		},
		Lead: lead, Lease: lease, Told: &r.notes, Changed: func() {}, Log: slog.New(slog.DiscardHandler),
	}, slices.Clone(r.notes.messages), r.notes.heard)
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

// noting notes what changes the switch, in order with what is announced.
type noting struct {
	hardware.Driver
	r *rig
}

func (n noting) Program(ctx context.Context, e hardware.Entry) error {
	n.r.events = append(n.r.events, fmt.Sprintf("program %s", e.VIP))
	return n.Driver.Program(ctx, e)
}

func (n noting) Remove(ctx context.Context, vip netip.Addr) error {
	n.r.events = append(n.r.events, fmt.Sprintf("remove %s", vip))
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
	if want, got := fmt.Sprint(list), cmpOr(r.announced, "[]"); got != want {
		r.t.Errorf("announced %s, want %s", got, want)
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
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
		h := hardware.Entry{VIP: e.VIP, Source: tunnel(250)}
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

func TestAnnouncesOnlyWhatTheManagerSays(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, false, 1, 2), entry(2, true, 3))
		r.wantHeld(entry(1, false, 1, 2), entry(2, true, 3))
		r.wantAnnounced(2)
		r.wantReport()
		r.change(entry(1, true, 1, 2))
		r.wantAnnounced(1, 2)
		if status := r.wantReport(); status.GetProgrammed() != 2 || status.GetAnnounced() != 2 || status.GetHosts().GetUsed() != 2 {
			t.Errorf("status %v", status)
		}
	})
}

func TestProgramsBeforeAnnouncingAndWithdrawsBeforeRemoving(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		if got, want := r.takeEvents(), "program 203.0.113.1; announce [203.0.113.1]"; got != want {
			t.Errorf("did %q, want %q", got, want)
		}
		r.tell(wire.SwitchUpdate{Removed: []netip.Addr{vip(1)}})
		if got, want := r.takeEvents(), "announce []"; got != want {
			t.Errorf("did %q at once, want %q", got, want)
		}
		r.pass(lead - 100*time.Millisecond)
		r.wantHeld(entry(1, true, 1))
		if running, _, _ := r.Report(); running == r.generation {
			t.Error("the generation runs while its entry is still to be removed")
		}
		r.settle()
		r.wantHeld()
		r.wantReport()
	})
}

// Members change in one step of the driver, so the route stays.
func TestChangeOfMembersKeepsTheRoute(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1, 2))
		r.takeEvents()
		r.change(entry(1, true, 1, 2, 3))
		r.wantHeld(entry(1, true, 1, 2, 3))
		if got, want := r.takeEvents(), "program 203.0.113.1"; got != want {
			t.Errorf("did %q, want %q", got, want)
		}
	})
}

func TestRefusedEntryIsWithdrawnAndTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1), entry(2, true, 2))
		r.sw.Refuse(vip(1), &hardware.Refusal{VIP: vip(1), Table: hardware.ECMP, Need: 9, Free: 4})
		r.change(entry(1, true, 1, 3))
		r.wantAnnounced(2)
		r.wantReport("203.0.113.1 ecmp 9 4")
		r.wantHeld(entry(1, true, 1), entry(2, true, 2)) // the entry before stays
		r.sw.Refuse(vip(1), nil)
		r.pass(retryMost)
		r.wantAnnounced(1, 2)
		r.wantReport()
	})
}

// What is removed makes room for what was refused, at once.
func TestRoomIsUsed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.sw = fake.New(fake.Limits{Hosts: 1})
		r.driver = r.sw.Open()
		r.start()
		r.all(entry(1, true, 1))
		r.tell(wire.SwitchUpdate{Entries: []wire.SwitchEntry{entry(2, true, 2)}})
		r.pass(20 * time.Second) // the next attempt is far
		r.wantReport("203.0.113.2 hosts 1 0")
		r.tell(wire.SwitchUpdate{Removed: []netip.Addr{vip(1)}})
		r.pass(lead)
		r.settle()
		r.wantAnnounced(2)
		r.wantReport()
	})
}

func TestEntryLostIsNoticedAndMended(t *testing.T) {
	for name, lose := range map[string]func(*rig){
		"removed": func(r *rig) { r.sw.RemoveByHand(vip(1)) },
		"changed": func(r *rig) {
			r.sw.PutByHand(hardware.Entry{VIP: vip(1), Source: tunnel(250), Members: []hardware.Member{{Tunnel: tunnel(9), Entries: 1}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start()
				r.all(entry(1, true, 1), entry(2, true, 2))
				r.takeEvents()
				lose(r)
				r.pass(AuditInterval)
				if got, want := r.takeEvents(), "announce [203.0.113.2]; program 203.0.113.1; announce [203.0.113.1 203.0.113.2]"; got != want {
					t.Errorf("did %q, want %q", got, want)
				}
				if status := r.wantReport(); status.GetDifferences() != 1 {
					t.Errorf("%d differences, want 1", status.GetDifferences())
				}
			})
		})
	}
}

// While the switch does not take it again, it stays withdrawn.
func TestEntryLostAndRefusedStaysWithdrawn(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		r.sw.RemoveByHand(vip(1))
		r.sw.Refuse(vip(1), &hardware.Refusal{VIP: vip(1), Reason: "no"})
		r.pass(5 * AuditInterval)
		r.wantAnnounced()
		r.wantReport("203.0.113.1  0 0 no")
	})
}

func TestRebootWithdrawsAndProgramsAnew(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1), entry(2, true, 2))
		r.takeEvents()
		r.sw.Reboot()
		r.pass(AuditInterval)
		want := "announce []; program 203.0.113.1; program 203.0.113.2; announce [203.0.113.1 203.0.113.2]"
		if got := r.takeEvents(); got != want {
			t.Errorf("did %q, want %q", got, want)
		}
		if status := r.wantReport(); status.GetDifferences() != 0 {
			t.Errorf("%d differences, want 0: the switch lost them", status.GetDifferences())
		}
	})
}

func TestHangWithdrawsWhatIsConcerned(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1), entry(2, true, 2))
		r.sw.Hang(true)
		r.change(entry(1, true, 1, 3))
		r.wantAnnounced(1, 2) // it is as it was
		r.pass(callTimeout)
		r.wantAnnounced(2)
		status := r.wantReport("203.0.113.1  0 0 HardwareStuck")
		if len(status.GetWarnings()) != 1 || !strings.HasPrefix(status.GetWarnings()[0], "HardwareStuck: ") {
			t.Errorf("warnings %q", status.GetWarnings())
		}
		r.pass(maxAge + AuditInterval) // nobody knows what the others are by now
		r.wantAnnounced()
		r.sw.Hang(false)
		r.pass(retryMost)
		r.wantAnnounced(1, 2)
		r.wantHeld(entry(1, true, 1, 3), entry(2, true, 2))
		r.wantReport()
	})
}

// A manager's withdrawal does not wait for a driver that hangs.
func TestWithdrawsWhileTheDriverHangs(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1), entry(2, true, 2))
		r.sw.Hang(true)
		r.change(entry(1, true, 1, 3))
		r.tell(wire.SwitchUpdate{Entries: []wire.SwitchEntry{entry(2, false, 2)}})
		r.wantAnnounced(1)
	})
}

// deaf is a driver whose Program does not return, whatever its context says, until it is let go.
type deaf struct {
	hardware.Driver
	let chan struct{}
	in  *int // calls under way
}

func (d deaf) Program(context.Context, hardware.Entry) error {
	*d.in++
	<-d.let
	*d.in--
	return errors.New("at last")
}

func TestDriverThatDoesNotReturnIsCalledOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		let, in := make(chan struct{}), 0
		r.driver = deaf{r.sw.Open(), let, &in}
		r.start()
		r.all(entry(1, true, 1))
		r.pass(5 * time.Minute)
		if in != 1 {
			t.Errorf("%d calls are under way, want 1", in)
		}
		r.wantAnnounced()
		r.wantReport("203.0.113.1  0 0 HardwareStuck")
		close(let)
		r.pass(time.Second)
	})
}

func TestLeaseEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		for range 20 {
			r.pass(lease / 2)
			r.Heard()
		}
		r.wantAnnounced(1)
		r.pass(lease - time.Second)
		r.wantAnnounced(1)
		r.pass(2 * time.Second)
		r.wantAnnounced()
		r.wantHeld(entry(1, true, 1))
		r.Heard()
		r.settle()
		r.wantAnnounced(1)
	})
}

func TestRestartAnnouncesWhatWasTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1), entry(2, false, 2), entry(3, true, 3))
		r.change(entry(3, true, 3, 4))
		r.end()
		r.sw.RemoveByHand(vip(3)) // meanwhile
		r.takeEvents()
		r.start()
		if got, want := r.takeEvents(), "announce [203.0.113.1]; program 203.0.113.3; announce [203.0.113.1 203.0.113.3]"; got != want {
			t.Errorf("did %q, want %q", got, want)
		}
		r.wantHeld(entry(1, true, 1), entry(2, false, 2), entry(3, true, 3, 4))
	})
}

// Nothing is taken away before a manager says what there is.
func TestRestartKeepsWhatNobodyTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		r.end()
		r.notes.messages = nil // lost
		r.start()
		r.pass(AuditInterval)
		r.wantAnnounced()
		r.wantHeld(entry(1, true, 1))
		r.all(entry(2, true, 2))
		r.wantHeld(entry(2, true, 2))
		r.wantAnnounced(2)
	})
}

func TestRestartAfterTheLeaseAnnouncesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		r.end()
		r.sw.Reboot()
		r.pass(lease + time.Minute)
		r.start()
		r.pass(AuditInterval)
		r.wantAnnounced()
		r.wantHeld() // what was told then is too old to act on
		r.all(entry(1, true, 1))
		r.wantAnnounced(1)
	})
}

// What can't be kept is not there after a restart: it may have been withdrawn since.
func TestWhatIsNotKeptIsNotAnnouncedAfterARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		r.notes.broken = errors.New("no space left on device")
		r.change(entry(1, false, 1))
		r.wantAnnounced()
		if status := r.wantReport(); !slices.Contains(status.GetWarnings(), "no space left on device") {
			t.Errorf("warnings %q", status.GetWarnings())
		}
		r.end()
		r.start()
		r.wantAnnounced()
	})
}

func TestRefusesWhatIsNotForThisSwitch(t *testing.T) {
	outside := entry(1, true, 1)
	outside.VIP = netip.MustParseAddr("198.51.100.1")
	v6 := entry(3, true)
	v6.Members = []wire.SwitchMember{{Tunnel: netip.MustParseAddr("fd00::1"), Entries: 1}}
	loop := entry(4, true)
	loop.Members = []wire.SwitchMember{{Tunnel: vip(5), Entries: 1}}
	inBubble(t, func(r *rig) {
		r.start()
		r.all(outside, entry(2, true, 1, 1), v6, loop, entry(9, true, 1))
		r.wantHeld(entry(9, true, 1))
		r.wantAnnounced(9)
		r.wantReport("198.51.100.1  0 0 it does not lie in --vip-prefixes", "203.0.113.2  0 0 tunnel 10.2.0.1 is there twice",
			"203.0.113.3  0 0 this switch has no outer source", "203.0.113.4  0 0 tunnel 203.0.113.5 lies in --vip-prefixes")
	})
}

func TestMessageBeyondTheBoundsChangesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		huge := entry(2, true)
		for i := range told.MaxMembers + 1 {
			huge.Members = append(huge.Members, wire.SwitchMember{Tunnel: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Entries: 1})
		}
		err := r.Apply(wire.SwitchUpdateToProto(wire.SwitchUpdate{Generation: 9, Entries: []wire.SwitchEntry{huge}}))
		if err == nil {
			t.Error("a message beyond the bounds was taken")
		}
		r.settle()
		r.wantAnnounced(1)
		r.wantReport()
	})
}
