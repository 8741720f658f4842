package health

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

// step is one result with the thresholds in force when it came.
type step struct {
	ok     bool
	limits Thresholds
}

// oracle says the same as a Tracker, slowly: it looks at the whole history for every step.
func oracle(history []step) model.Health {
	state := model.HealthUnknown
	lastAre := func(n int, count uint32, ok bool) bool {
		count = max(count, 1)
		if uint32(n+1) < count {
			return false
		}
		for _, s := range history[n+1-int(count) : n+1] {
			if s.ok != ok {
				return false
			}
		}
		return true
	}
	for n, s := range history {
		switch {
		case state == model.HealthUnknown && s.ok:
			state = model.HealthHealthy
		case state == model.HealthUnhealthy && lastAre(n, s.limits.Rise, true):
			state = model.HealthHealthy
		case state != model.HealthUnhealthy && lastAre(n, s.limits.Fall, false):
			state = model.HealthUnhealthy
		}
	}
	return state
}

func TestTrackerAgreesWithTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{rapid.Bool().Draw(t, "ok"), Thresholds{
				Rise: rapid.Uint32Range(0, 4).Draw(t, "rise"),
				Fall: rapid.Uint32Range(0, 4).Draw(t, "fall"),
			}}
		}), 0, 40).Draw(t, "steps")
		var tracker Tracker
		for n, s := range steps {
			before, failure := tracker.State(), ""
			if !s.ok {
				failure = fmt.Sprintf("failure %d", n)
			}
			changed := tracker.Observe(failure, s.limits)
			if want := oracle(steps[:n+1]); tracker.State() != want {
				t.Fatalf("after step %d: is %s, want %s", n, tracker.State(), want)
			}
			if changed != (tracker.State() != before) {
				t.Fatalf("step %d from %s to %s: changed is %v", n, before, tracker.State(), changed)
			}
			if unhealthy := tracker.State() == model.HealthUnhealthy; (tracker.Reason() != "") != unhealthy {
				t.Fatalf("after step %d: %s with reason %q", n, tracker.State(), tracker.Reason())
			}
			if tracker.State() == model.HealthUnhealthy && failure != "" && tracker.Reason() != failure {
				t.Fatalf("after step %d: reason %q is not that of the last failure %q", n, tracker.Reason(), failure)
			}
		}
	})
}

// A state never comes back to unknown, and two changes are as far apart as the thresholds say.
func TestChangesAreAsFarApartAsTheThresholds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Thresholds{Rise: rapid.Uint32Range(1, 5).Draw(t, "rise"), Fall: rapid.Uint32Range(1, 5).Draw(t, "fall")}
		results := rapid.SliceOfN(rapid.Bool(), 0, 200).Draw(t, "results")
		var tracker Tracker
		last := -1
		for n, ok := range results {
			failure := ""
			if !ok {
				failure = "refused"
			}
			first := tracker.State() == model.HealthUnknown
			if !tracker.Observe(failure, limits) {
				continue
			}
			apart := limits.Fall
			if tracker.State() == model.HealthHealthy {
				apart = limits.Rise
			}
			if !first && uint32(n-last) < apart {
				t.Fatalf("changed to %s at %d, only %d results after the last change", tracker.State(), n, n-last)
			}
			if tracker.State() == model.HealthUnknown {
				t.Fatalf("became unknown at %d", n)
			}
			last = n
		}
	})
}

// The rules one by one, as text: + is a success, - a failure; the answer names each change.
func TestTrackerStories(t *testing.T) {
	limits := Thresholds{Rise: 2, Fall: 3}
	for _, story := range []struct{ results, want string }{
		{"", "unknown"},
		{"+", "healthy"},
		{"--", "unknown"},
		{"---", "unhealthy: failure 2"},
		{"--+", "healthy"},
		{"+--", "healthy"},
		{"+--+--", "healthy"},
		{"+---", "unhealthy: failure 3"},
		{"+-----", "unhealthy: failure 5"},
		{"---+", "unhealthy: failure 2"},
		{"---+-+", "unhealthy: failure 4"},
		{"---++", "healthy"},
		{"---++--", "healthy"},
		{"---++---", "unhealthy: failure 7"},
	} {
		var tracker Tracker
		for n, result := range strings.Split(story.results, "") {
			failure := ""
			if result == "-" {
				failure = fmt.Sprintf("failure %d", n)
			}
			tracker.Observe(failure, limits)
		}
		if got := tracker.String(); got != story.want {
			t.Errorf("after %q: %s, want %s", story.results, got, story.want)
		}
	}
}
