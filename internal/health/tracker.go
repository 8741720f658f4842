package health

import "github.com/weirlb/weir/internal/model"

// Thresholds are how many results in a row change a state. 0 counts as 1.
type Thresholds struct {
	Rise uint32 // successes until an unhealthy backend is healthy
	Fall uint32 // failures until a backend is unhealthy
}

// Tracker follows one backend. The zero value is ready: its state is unknown.
type Tracker struct {
	state  model.Health // "" is unknown
	reason string       // why the last check failed; only while unhealthy
	streak uint32       // results in a row that speak against state
}

// State is what is known of the backend.
func (t *Tracker) State() model.Health {
	if t.state == "" {
		return model.HealthUnknown
	}
	return t.state
}

// Reason says why the last check of an unhealthy backend failed; empty in the other states.
func (t *Tracker) Reason() string { return t.reason }

// String is "healthy", "unknown" or "unhealthy: reason".
func (t *Tracker) String() string {
	if t.reason == "" {
		return string(t.State())
	}
	return string(t.State()) + ": " + t.reason
}

// Observe takes one result, failure being why the check failed or empty when it succeeded, and
// says whether the state changed. Thresholds may differ from call to call: a new value meets the
// streak as it stands.
func (t *Tracker) Observe(failure string, limits Thresholds) (changed bool) {
	before := t.State()
	if failure == "" {
		t.succeed(limits.Rise)
	} else {
		t.fail(failure, limits.Fall)
	}
	return t.State() != before
}

func (t *Tracker) succeed(rise uint32) {
	switch t.State() {
	case model.HealthUnknown:
		t.state, t.streak = model.HealthHealthy, 0
	case model.HealthHealthy:
		t.streak = 0
	default:
		t.streak++
		if t.streak >= rise {
			*t = Tracker{state: model.HealthHealthy}
		}
	}
}

func (t *Tracker) fail(reason string, fall uint32) {
	if t.state == model.HealthUnhealthy {
		t.streak, t.reason = 0, reason
		return
	}
	// A success leaves the state unknown for good, so failures count from the first one on.
	t.streak++
	if t.streak >= fall {
		*t = Tracker{state: model.HealthUnhealthy, reason: reason}
	}
}
