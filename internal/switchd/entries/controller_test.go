package entries

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/fake"
	"github.com/weirlb/weir/internal/switchd/told"
	"github.com/weirlb/weir/internal/wire"
)

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
		if status := r.wantReport("203.0.113.1  0 0 no"); status.GetDifferences() != 1 {
			t.Errorf("%d differences, want 1", status.GetDifferences())
		}
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

// A TIP lies in prefixes of its own, and is for a VIP of this switch; one that is for another VIP is written anew.
func TestTIPs(t *testing.T) {
	tip := func(n byte, address, inner string) wire.SwitchEntry {
		e := entry(n, true, n)
		e.VIP, e.Inner = netip.MustParseAddr(address), netip.MustParseAddr(inner)
		return e
	}
	inBubble(t, func(r *rig) {
		r.start()
		r.all(tip(1, "192.0.2.1", "203.0.113.1"), tip(2, "203.0.113.2", "203.0.113.1"), tip(3, "192.0.2.3", "198.51.100.1"))
		r.wantHeld(tip(1, "192.0.2.1", "203.0.113.1"))
		r.wantReport("192.0.2.3  0 0 it does not lie in --vip-prefixes", "203.0.113.2  0 0 it does not lie in --tip-prefixes")
		back := tip(4, "192.0.2.4", "203.0.113.4")
		back.Members[0].Tunnel = netip.MustParseAddr("192.0.2.1")
		r.change(back)
		r.wantHeld(tip(1, "192.0.2.1", "203.0.113.1"))
		r.wantReport("192.0.2.3  0 0 it does not lie in --vip-prefixes", "192.0.2.4  0 0 tunnel 192.0.2.1 lies in --tip-prefixes", "203.0.113.2  0 0 it does not lie in --tip-prefixes")
		other := tip(1, "192.0.2.1", "203.0.113.9")
		r.change(other)
		r.wantHeld(other)
		other.Sources = []netip.Addr{netip.MustParseAddr("10.1.0.7")}
		r.change(other)
		r.wantHeld(other)
		r.end()
		r.start()
		r.wantHeld(other)
		r.all(other)
		other.Sources = []netip.Addr{netip.MustParseAddr("::7")} // of another family
		r.change(other)
		r.wantReport("192.0.2.1  0 0 outer source ::7 is not a unicast address of its family")
	})
}

// A TIP stays announced with what the switch has when a change of it is refused, as other switches send to it, until the
// manager says otherwise. One that the switch lost is withdrawn.
func TestRefusedChangeOfATIPKeepsTheRoute(t *testing.T) {
	inBubble(t, func(r *rig) {
		wantAnnounced := func(want string) {
			t.Helper()
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.announced != want {
				t.Errorf("announced %s, want %s", r.announced, want)
			}
		}
		r.start()
		tip := entry(1, true, 1)
		tip.VIP, tip.Inner = netip.MustParseAddr("192.0.2.1"), vip(1)
		r.all(tip)
		more := tip
		more.Members = entry(1, true, 1, 2).Members
		r.sw.Refuse(tip.VIP, &hardware.Refusal{VIP: tip.VIP, Table: hardware.ECMP, Need: 2, Free: 1})
		r.change(more)
		r.wantHeld(tip)
		r.wantReport("192.0.2.1 ecmp 2 1")
		wantAnnounced("[192.0.2.1]")
		r.sw.RemoveByHand(tip.VIP)
		r.pass(AuditInterval)
		wantAnnounced("[]")
		r.sw.Refuse(tip.VIP, nil)
		r.change(tip)
		wantAnnounced("[192.0.2.1]")
		r.sw.Refuse(tip.VIP, &hardware.Refusal{VIP: tip.VIP, Reason: "full"})
		more.Announce = false
		r.change(more)
		wantAnnounced("[]")
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

// What can be read of a log that makes no sense is not what was told last.
func TestSenselessLogAnnouncesNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		r.end()
		wrong := wire.SwitchUpdateToProto(wire.SwitchUpdate{Generation: 9, Entries: []wire.SwitchEntry{{}}})
		c, err := New(r.config(), append(slices.Clone(r.notes.messages), wrong), r.notes.heard)
		if err == nil {
			t.Error("the log was read")
		}
		c.Start(r.t.Context())
		r.wantHeld(entry(1, true, 1))
		if _, _, status := c.Report(); status.GetAnnounced() != 0 {
			t.Errorf("%d VIPs are announced", status.GetAnnounced())
		}
	})
}

// A manager that was heard in the future was heard now.
func TestClockThatWasSetBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1))
		r.end()
		r.notes.heard = time.Now().Add(24 * time.Hour)
		r.start()
		r.wantAnnounced(1)
		r.pass(lease + time.Second)
		r.wantAnnounced()
	})
}

// However often a manager changes its mind, routers are told at the pace of steps.
func TestFlappingIsPaced(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, false, 1))
		r.takeEvents()
		for i := range 1001 {
			r.tell(wire.SwitchUpdate{Entries: []wire.SwitchEntry{entry(1, i%2 == 0, 1)}})
		}
		r.settle()
		// No time passes here, so only what runs between two messages is told.
		if got := r.takeEvents(); !strings.HasSuffix(got, "announce [203.0.113.1]") || strings.Count(got, "announce") > 5 {
			t.Errorf("did %.200q", got)
		}
	})
}
