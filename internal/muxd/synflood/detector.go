package synflood

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
)

// Limits bound the usual rate of an endpoint that the mux learns, in SYN/s.
type Limits struct {
	Least float64 // less is never a flood
	Most  float64 // more may be one, whatever is usual
}

// DefaultLimits are those of a mux without flags.
var DefaultLimits = Limits{Least: 1000, Most: 100_000}

const (
	// sampleInterval is the time between two samples. A flood of 320 SYN/s or more is detected within four: the first
	// begins to follow handshakes, and the others count enough of them.
	sampleInterval = 200 * time.Millisecond
	// idleInterval is the time between two samples while no endpoint can be flooded.
	idleInterval = 5 * time.Second
	// shareWindow is how many samples the share of completed handshakes is counted over, maxWindow over how many at
	// most while too few handshakes were followed.
	shareWindow, maxWindow = 5, 10
	// minHandshakes is how many handshakes must have been followed before their share counts.
	minHandshakes = 16
	// suspectFactor times the usual rate may be a flood; half of that is none.
	suspectFactor = 8
	// floodShare of completed handshakes is too low for real clients, calmShare is high enough.
	floodShare, calmShare = 0.5, 0.8
	// calmTime is how long a flood must be over before its end counts.
	calmTime = 3 * time.Second
	// memory is how long the usual rate is remembered, and the result of a trial.
	memory = time.Minute
	// trialSamples is how many samples a trial lasts: clients with a round trip of half a second complete enough of it.
	trialSamples = 6
	// retryFactor times the SYN/s of the last trial start another before its result is forgotten.
	retryFactor = 2
	// secretLifetime is how long after the last update of a manager all hosts accept the mux's cookies.
	secretLifetime = time.Hour
)

// handshakes are how many were followed, and completed, up to a sample.
type handshakes struct{ tried, completed uint64 }

// detector detects a flood of one endpoint.
type detector struct {
	state    endpoint.SYNState
	seen     bool
	at       time.Time
	last     endpoint.SYNCounter
	rate     float64      // SYN/s
	usual    float64      // likewise
	followed []handshakes // of the last samples, while the endpoint is watched; the oldest first
	calm     time.Time
	flooded  time.Time // since when SYNs are answered
	evidence string    // of that; empty: another process detected it

	// Of the last trial, by cookies: when it ended, the SYN/s at most, and whether handshakes were completed. Zero: there
	// was none, or it found a flood.
	tried     time.Time
	triedRate float64
	confirmed bool
}

// sample evaluates the counters. It returns the text of an event to report, and whether that is a warning.
func (d *detector) sample(c endpoint.SYNCounter, now time.Time, limits Limits) (event string, warning bool) {
	passed := now.Sub(d.at)
	if !d.seen || passed <= 0 || c.SYNs < d.last.SYNs {
		d.seen, d.at, d.last = true, now, c
		return "", false
	}
	d.rate = float64(c.SYNs-d.last.SYNs) / passed.Seconds()
	d.at, d.last = now, c
	limit := min(max(d.usual*suspectFactor, limits.Least), limits.Most)
	if !d.state.Watches && !d.state.Answers {
		if d.rate <= limit {
			d.learn(passed)
			return "", false
		}
		d.state.Watches, d.followed, d.calm = true, nil, time.Time{}
	}
	d.state.Watches = true
	share, known := d.countHandshakes(c)
	real := known && share >= calmShare
	if known && share < floodShare && d.rate > limit/2 && !d.state.Answers {
		return d.begin(now, share), true
	}
	d.judge(now, limit, passed, known, real)
	if d.rate > limit/2 && (!d.state.Answers || !real) {
		d.calm = time.Time{}
		return "", false
	}
	return d.end(now)
}

// countHandshakes adds the sampled handshakes. The share of completed ones is unknown while there are too few samples.
func (d *detector) countHandshakes(c endpoint.SYNCounter) (share float64, known bool) {
	d.followed = append(d.followed, handshakes{c.Tried, c.Completed})
	d.followed = d.followed[max(0, len(d.followed)-maxWindow-1):]
	if d.state.Tries && len(d.followed) <= trialSamples {
		return 0, false
	}
	return d.completed()
}

// begin has SYN cookies answer.
func (d *detector) begin(now time.Time, share float64) (event string) {
	d.state.Answers, d.state.Tries, d.calm, d.flooded = true, false, time.Time{}, now
	d.tried, d.triedRate, d.confirmed = time.Time{}, 0, false
	d.evidence = fmt.Sprintf("SYN cookies on: %.0f SYN/s, %.1f %% of the handshakes completed; usual %.0f/s",
		d.rate, 100*share, d.usual)
	return d.evidence
}

// judge records what the followed handshakes prove while SYNs are answered, in a trial, or of clients known to be
// real.
func (d *detector) judge(now time.Time, limit float64, passed time.Duration, known, real bool) {
	switch {
	case d.state.Answers && real:
		d.recordResult(now, true)
	case d.state.Answers:
	case d.state.Tries:
		d.updateTrial(now, known, real)
	case (known || d.isUnseen()) && d.isDue(now, limit):
		d.state.Tries, d.followed, d.triedRate = true, d.followed[len(d.followed)-1:], d.rate
	case d.confirmed && (real || d.isUnseen()):
		d.learn(passed)
	}
}

// isUnseen says whether so few handshakes are followed because their ACKs go past the mux, as those of virtual networks
// do: only in a trial can be seen whether they are completed.
func (d *detector) isUnseen() bool {
	if len(d.followed) <= shareWindow {
		return false
	}
	first, last := d.followed[0], d.followed[len(d.followed)-1]
	return last.tried-first.tried < minHandshakes
}

// isDue says whether apparent clients must prove to be real in a trial: who forges a SYN can forge the ACK behind it.
func (d *detector) isDue(now time.Time, limit float64) bool {
	return d.rate > limit && (d.tried.IsZero() || now.Sub(d.tried) >= memory || d.rate > retryFactor*d.triedRate)
}

// updateTrial continues a trial, or ends it, also for too few handshakes.
func (d *detector) updateTrial(now time.Time, known, real bool) {
	d.triedRate = max(d.triedRate, d.rate)
	if known || len(d.followed) > maxWindow {
		d.state.Tries = false
		d.recordResult(now, real)
	}
}

// recordResult records whether answered SYNs came from real clients.
func (d *detector) recordResult(now time.Time, real bool) {
	d.tried, d.triedRate, d.confirmed = now, max(d.triedRate, d.rate), real
}

// end ends the answers, then the watch, after each was calm for calmTime.
func (d *detector) end(now time.Time) (event string, warning bool) {
	if d.calm.IsZero() {
		d.calm = now
	}
	if now.Sub(d.calm) < calmTime {
		return "", false
	}
	d.calm = time.Time{}
	if !d.state.Answers {
		d.state.Watches, d.state.Tries = false, false
		return "", false
	}
	d.state.Answers = false
	if d.flooded.IsZero() { // it was another process that began
		return fmt.Sprintf("SYN cookies off: %.0f SYN/s", d.rate), false
	}
	return fmt.Sprintf("SYN cookies off after %s: %.0f SYN/s", now.Sub(d.flooded).Round(time.Second), d.rate), false
}

// completed is the share of handshakes that were completed, without those of the last sample, which had no time to. It
// is unknown while too few were followed.
func (d *detector) completed() (share float64, known bool) {
	if len(d.followed) < 3 {
		return 0, false
	}
	before, last := d.followed[len(d.followed)-2], d.followed[len(d.followed)-1]
	for from := max(0, len(d.followed)-1-shareWindow); from >= 0; from-- {
		first := d.followed[from]
		if tried := before.tried - first.tried; tried >= minHandshakes {
			return min(1, float64(last.completed-first.completed)/float64(tried)), true
		}
	}
	return 0, false
}

// learn averages the rate of a time into the usual one.
func (d *detector) learn(passed time.Duration) {
	d.usual += (d.rate - d.usual) * (1 - math.Exp(-passed.Seconds()/memory.Seconds()))
}
