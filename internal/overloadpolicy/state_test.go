package overloadpolicy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func vip() model.VIP {
	return model.VIP{Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10"), Overload: &model.Overload{
		Triggers: []model.OverloadCause{model.CauseOverload},
		Steps: []model.OverloadStep{
			{Action: model.ActionLimit, After: 10 * time.Second, Limits: &model.Limits{Packets: 1000}},
			{Action: model.ActionScrub, After: 20 * time.Second, Scrubber: "east"},
			{Action: model.ActionBlackhole, After: 30 * time.Second},
		},
		HoldDown: time.Minute, MaxHoldDown: 3 * time.Minute,
	}}
}

// story follows a VIP with a clock of its own.
type story struct {
	vip      model.VIP
	state    State
	pressure Pressure
	now      time.Time
	lines    []string // what happened, and when
}

func newStory() *story { return &story{vip: vip(), now: at(0)} }

func at(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

// pass looks every half a second, under pressure or not.
func (s *story) pass(took time.Duration, pressed bool) {
	for end := s.now.Add(took); s.now.Before(end); s.now = s.now.Add(500 * time.Millisecond) {
		switch {
		case !pressed:
			s.pressure = Pressure{}
		case s.pressure.Since.IsZero():
			s.pressure = Pressure{Since: s.now, Quorum: s.now, Evidence: fmt.Sprintf("since %s", s.now.Sub(at(0)))}
		}
		s.look()
	}
}

func (s *story) look() {
	next, event := s.state.Next(s.vip, s.pressure, s.now)
	if event == Nothing && next != s.state {
		s.lines = append(s.lines, fmt.Sprintf("changed to %+v without a word", next))
	}
	s.state = next
	if event == Nothing {
		return
	}
	line := fmt.Sprintf("%s %s", s.now.Sub(at(0)), [...]string{"", "taken", "restored", "withdrawn", "forgotten"}[event])
	if event == Taken {
		line += fmt.Sprintf(" %s for %s", s.state.Action, s.state.Until.Sub(s.now))
	}
	s.lines = append(s.lines, line)
}

func (s *story) tells(t *testing.T, want ...string) {
	t.Helper()
	if got := strings.Join(s.lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("it went\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestStepsAreTakenInTurnAndEndByThemselves(t *testing.T) {
	s := newStory()
	s.pass(9*time.Second, true)
	s.pass(time.Second, false) // too short
	s.pass(61*time.Second, true)
	s.pass(10*time.Minute, false)
	s.tells(t, "20s taken limit for 1m0s", "40s taken scrub for 1m0s", "1m10s taken blackhole for 1m0s",
		"2m10s restored", "3m10s forgotten")
	if s.state != (State{}) {
		t.Errorf("left is %+v", s.state)
	}
}

func TestAStepLastsAsLongAsThePressure(t *testing.T) {
	s := newStory()
	s.vip.Overload.Steps = s.vip.Overload.Steps[:1]
	s.pass(10*time.Minute, true)
	s.pass(10*time.Second, false)
	s.tells(t, "10s taken limit for 1m0s", "10m0s restored")
	if s.state.Evidence != "since 0s" || s.state.Reached != model.ActionLimit {
		t.Errorf("known is %+v", s.state)
	}
}

// A black hole hides what it is for. Each time it is back too soon, it is for twice as long, up to the most.
func TestRelapsesAreHeldLongerUpToABound(t *testing.T) {
	s := newStory()
	s.vip.Overload.Steps = s.vip.Overload.Steps[1:]
	for range 4 {
		for s.state.Reached == "" || s.state.Action == "" {
			s.pass(500*time.Millisecond, true)
		}
		if s.state.Action == model.ActionScrub {
			s.pass(31*time.Second, true)
		}
		for s.state.Action != "" {
			s.pass(500*time.Millisecond, false)
		}
	}
	s.pass(4*time.Minute, false)
	s.tells(t, "20s taken scrub for 1m0s", "50s taken blackhole for 1m0s", "1m50s restored",
		"2m10.5s taken blackhole for 2m0s", "4m10.5s restored",
		"4m31s taken blackhole for 3m0s", "7m31s restored",
		"7m51.5s taken blackhole for 3m0s", "10m51.5s restored", "13m51.5s forgotten")
}

func TestWhatThePolicyLosesEndsAtOnce(t *testing.T) {
	for name, change := range map[string]func(*model.VIP){
		"the policy":  func(v *model.VIP) { v.Overload = nil },
		"the step":    func(v *model.VIP) { v.Overload.Steps = v.Overload.Steps[:1] },
		"its tenant":  func(v *model.VIP) { v.Tenant = "other" },
		"its address": func(v *model.VIP) { v.Address = netip.MustParseAddr("203.0.113.11") },
	} {
		s := newStory()
		s.pass(31*time.Second, true)
		s.lines = nil
		change(&s.vip)
		if steps := s.state.InForce(s.vip); steps != nil {
			t.Errorf("without %s: still in force: %v", name, steps)
		}
		s.look()
		s.tells(t, "31s withdrawn")
	}
	s := newStory() // a step that stays goes on
	s.pass(31*time.Second, true)
	s.vip.Overload.Steps = s.vip.Overload.Steps[1:2]
	s.pressure = Pressure{}
	s.look()
	s.tells(t, "10s taken limit for 1m0s", "30s taken scrub for 1m0s")
	if steps := s.state.InForce(s.vip); len(steps) != 1 || steps[0].Action != model.ActionScrub {
		t.Errorf("in force are %v", steps)
	}
}

func TestStepsAddUp(t *testing.T) {
	s := newStory()
	s.pass(31*time.Second, true)
	if steps := s.state.InForce(s.vip); len(steps) != 2 || steps[0].Limits == nil || steps[1].Scrubber != "east" {
		t.Errorf("in force are %v", steps)
	}
}

// Whatever comes, a step is never taken without pressure for its time, and never ends before its own unless the
// policy says so; nothing is left of a VIP that has been calm for long.
func TestWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory()
		for range rapid.IntRange(1, 20).Draw(t, "turns") {
			pressed := rapid.Bool().Draw(t, "pressed")
			for range rapid.IntRange(1, 300).Draw(t, "looks") {
				before := s.state
				s.pass(500*time.Millisecond, pressed)
				looked := s.now.Add(-500 * time.Millisecond)
				if s.state.Action != before.Action && s.state.Action != "" {
					if !pressed || looked.Sub(s.pressure.Since) < s.vip.Overload.Steps[0].After {
						t.Fatalf("at %s: %s without pressure", looked, s.state.Action)
					}
					if s.vip.Overload.Step(s.state.Action) <= s.vip.Overload.Step(before.Action) {
						t.Fatalf("from %s to %s", before.Action, s.state.Action)
					}
				}
				if s.state.Action == "" && before.Action != "" && (pressed || looked.Before(before.Until)) {
					t.Fatalf("at %s: %s ended before %s", looked, before.Action, before.Until)
				}
				if s.state.HoldDown > s.vip.Overload.MaxHoldDown {
					t.Fatalf("held for %s", s.state.HoldDown)
				}
			}
		}
		s.pass(10*time.Minute, false)
		if s.state != (State{}) {
			t.Fatalf("left is %+v", s.state)
		}
	})
}

// What a single mux says limits a VIP, and does not change its routes: that takes a quorum for the whole time of the step.
func TestRoutesChangeByAQuorumAlone(t *testing.T) {
	s := newStory()
	alone := func(took time.Duration) {
		for end := s.now.Add(took); s.now.Before(end); s.now = s.now.Add(500 * time.Millisecond) {
			if s.pressure.Since.IsZero() {
				s.pressure.Since = s.now
			}
			s.look()
		}
	}
	alone(10 * time.Minute)
	s.tells(t, "10s taken limit for 1m0s")
	s.pressure.Quorum = s.now
	alone(21 * time.Second)
	s.tells(t, "10s taken limit for 1m0s", "10m20s taken scrub for 1m0s")
	s.pressure.Quorum = time.Time{}
	alone(10 * time.Minute)
	s.tells(t, "10s taken limit for 1m0s", "10m20s taken scrub for 1m0s")
	// A relapse takes the farthest step at once, but not by one mux.
	s.pass(10*time.Minute, false)
	s.pressure, s.lines = Pressure{}, nil
	s.state.Ended = s.now
	s.state.Reached = model.ActionBlackhole
	alone(time.Minute)
	for _, line := range s.lines {
		if strings.Contains(line, "scrub") || strings.Contains(line, "blackhole") {
			t.Errorf("by one mux: %s", line)
		}
	}
}
