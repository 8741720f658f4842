package muxd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// FloodLimits bound what the mux learns of how many SYNs an endpoint gets, in SYN/s.
type FloodLimits struct {
	Least float64 // what is below never counts as a flood
	Most  float64 // what is above may be one, whatever is usual
}

// DefaultFloodLimits are those of a mux that is told nothing.
var DefaultFloodLimits = FloodLimits{Least: 1000, Most: 100_000}

const (
	// floodLook is the time between two looks. A flood of 320 SYN/s or more is told within four: one begins to
	// follow handshakes, and the others see enough of them.
	floodLook = 200 * time.Millisecond
	// floodLearn is the time between two looks at endpoints of which none can be flooded.
	floodLearn = 5 * time.Second
	// floodWindow is how many looks the share of completed handshakes is counted over, and floodWindowMost
	// over how many at most while too few were followed.
	floodWindow, floodWindowMost = 5, 10
	// floodTried is how many handshakes must have been followed before their share means something.
	floodTried = 16
	// floodFactor times what is usual may be a flood; half of that is none.
	floodFactor = 8
	// floodShare of completed handshakes is too low for real clients, calmShare is high enough.
	floodShare, calmShare = 0.5, 0.8
	// floodHold is how long an end must last to be one.
	floodHold = 3 * time.Second
	// floodMemory is how long what is usual is remembered, and the result of a trial.
	floodMemory = time.Minute
	// floodTrial is how many looks a trial lasts: clients whose round trip is half a second complete enough of it.
	floodTrial = 6
	// floodAgain times the SYN/s of the last trial are to be tried again before its result is forgotten.
	floodAgain = 2
	// floodSecrets is how long after the last word of a manager all hosts take the mux's cookies.
	floodSecrets = time.Hour
)

// trial is how many handshakes were followed, and completed, up to a look.
type trial struct{ tried, completed uint64 }

// flood is what the mux knows of one endpoint's SYNs.
type flood struct {
	state   mux.SYNState
	seen    bool
	at      time.Time
	last    mux.SYNCounter
	rate    float64 // SYN/s
	usual   float64 // likewise
	trials  []trial // of the last looks, while it is watched; the oldest first
	calm    time.Time
	flooded time.Time // since when SYNs are answered
	told    string    // when that began; empty: another process told

	// Of the last trial, by cookies: when it ended, the SYN/s at most, and whether handshakes were completed. Zero: there
	// was none, or it found a flood.
	tried     time.Time
	triedRate float64
	confirmed bool
}

// sample evaluates the counters. It returns an event to report, and whether that is a warning.
func (f *flood) sample(c mux.SYNCounter, now time.Time, limits FloodLimits) (tell string, trouble bool) {
	passed := now.Sub(f.at)
	if !f.seen || passed <= 0 || c.SYNs < f.last.SYNs {
		f.seen, f.at, f.last = true, now, c
		return "", false
	}
	f.rate = float64(c.SYNs-f.last.SYNs) / passed.Seconds()
	f.at, f.last = now, c
	limit := min(max(f.usual*floodFactor, limits.Least), limits.Most)
	if !f.state.Watches && !f.state.Answers {
		if f.rate <= limit {
			f.learn(passed)
			return "", false
		}
		f.state.Watches, f.trials, f.calm = true, nil, time.Time{}
	}
	f.state.Watches = true
	share, known := f.countHandshakes(c)
	real := known && share >= calmShare
	if known && share < floodShare && f.rate > limit/2 && !f.state.Answers {
		return f.begin(now, share), true
	}
	f.judge(now, limit, passed, known, real)
	if f.rate > limit/2 && (!f.state.Answers || !real) {
		f.calm = time.Time{}
		return "", false
	}
	return f.end(now)
}

// countHandshakes adds the sampled handshakes. The share of completed ones is unknown while there are too few samples.
func (f *flood) countHandshakes(c mux.SYNCounter) (share float64, known bool) {
	f.trials = append(f.trials, trial{c.Tried, c.Completed})
	f.trials = f.trials[max(0, len(f.trials)-floodWindowMost-1):]
	if f.state.Tries && len(f.trials) <= floodTrial {
		return 0, false
	}
	return f.completed()
}

// begin has SYNs answered.
func (f *flood) begin(now time.Time, share float64) (tell string) {
	f.state.Answers, f.state.Tries, f.calm, f.flooded = true, false, time.Time{}, now
	f.tried, f.triedRate, f.confirmed = time.Time{}, 0, false
	f.told = fmt.Sprintf("SYN cookies on: %.0f SYN/s, %.1f %% of the handshakes completed; usual %.0f/s", f.rate, 100*share, f.usual)
	return f.told
}

// judge takes what the handshakes have shown for what it is worth.
func (f *flood) judge(now time.Time, limit float64, passed time.Duration, known, real bool) {
	switch {
	case f.state.Answers && real:
		f.recordResult(now, true)
	case f.state.Answers:
	case f.state.Tries:
		f.updateTrial(now, known, real)
	case known && f.isDue(now, limit):
		f.state.Tries, f.trials, f.triedRate = true, f.trials[len(f.trials)-1:], f.rate
	case real && f.confirmed:
		f.learn(passed)
	}
}

// isDue says whether what seems to be clients is to prove it: whoever forges a SYN can forge the ACK behind it.
func (f *flood) isDue(now time.Time, limit float64) bool {
	return f.rate > limit && (f.tried.IsZero() || now.Sub(f.tried) >= floodMemory || f.rate > floodAgain*f.triedRate)
}

// updateTrial continues a trial, or ends it, also for want of samples.
func (f *flood) updateTrial(now time.Time, known, real bool) {
	f.triedRate = max(f.triedRate, f.rate)
	if known || len(f.trials) > floodWindowMost {
		f.state.Tries = false
		f.recordResult(now, real)
	}
}

// recordResult records whether answered SYNs came from real clients.
func (f *flood) recordResult(now time.Time, real bool) {
	f.tried, f.triedRate, f.confirmed = now, max(f.triedRate, f.rate), real
}

// end ends what has been calm for long enough: first the answers, then the watch.
func (f *flood) end(now time.Time) (tell string, trouble bool) {
	if f.calm.IsZero() {
		f.calm = now
	}
	if now.Sub(f.calm) < floodHold {
		return "", false
	}
	f.calm = time.Time{}
	if !f.state.Answers {
		f.state.Watches, f.state.Tries = false, false
		return "", false
	}
	f.state.Answers = false
	if f.flooded.IsZero() { // it was another process that began
		return fmt.Sprintf("SYN cookies off: %.0f SYN/s", f.rate), false
	}
	return fmt.Sprintf("SYN cookies off after %s: %.0f SYN/s", now.Sub(f.flooded).Round(time.Second), f.rate), false
}

// completed is the share of handshakes that were completed, those of the last look aside: they had no time
// to. It is unknown while too few were followed.
func (f *flood) completed() (share float64, known bool) {
	if len(f.trials) < 3 {
		return 0, false
	}
	before, last := f.trials[len(f.trials)-2], f.trials[len(f.trials)-1]
	for from := max(0, len(f.trials)-1-floodWindow); from >= 0; from-- {
		first := f.trials[from]
		if tried := before.tried - first.tried; tried >= floodTried {
			return min(1, float64(last.completed-first.completed)/float64(tried)), true
		}
	}
	return 0, false
}

// learn has what came in a time count as usual.
func (f *flood) learn(passed time.Duration) {
	f.usual += (f.rate - f.usual) * (1 - math.Exp(-passed.Seconds()/floodMemory.Seconds()))
}

// floods watches the SYNs of all endpoints that leave it to the mux.
type floods struct {
	config Config
	limits FloodLimits
	tell   func(*weirv1.MuxEvent)

	mu      sync.Mutex
	secrets []model.SYNSecret
	renewed time.Time // when a manager told them
	known   map[model.EndpointKey]*flood
	looked  time.Time
	total   uint64    // SYNs of all endpoints at the last look
	totaled time.Time // when that was

	began, answered atomic.Int64 // floods so far; endpoints whose SYNs are answered
}

func newFloods(config Config, tell func(*weirv1.MuxEvent)) *floods {
	f := &floods{config: config, limits: config.Floods, tell: tell, known: map[model.EndpointKey]*flood{}}
	if f.limits == (FloodLimits{}) {
		f.limits = DefaultFloodLimits
	}
	return f
}

// setSecrets takes over the secrets that are valid from now on.
func (f *floods) setSecrets(secrets []model.SYNSecret) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secrets, f.renewed = secrets, time.Now()
	return f.config.Datapath.SetSYNSecrets(secrets)
}

// run looks until ctx ends.
func (f *floods) run(ctx context.Context) error {
	ticker := time.NewTicker(floodLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			// Not the tick's own time: of a late one that is before what was counted meanwhile.
			if err := f.sampleEndpoints(time.Now()); err != nil {
				f.config.Log.Warn("can't look for floods of syns", "err", err)
			}
		}
	}
}

// sampleEndpoints evaluates all endpoints, unless there were too few SYNs for a flood.
func (f *floods) sampleEndpoints(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	idle, err := f.idle(now)
	if err != nil || idle {
		return err
	}
	f.looked = now
	if len(f.secrets) > 0 { // for the time of day, which may have been set
		if err := f.config.Datapath.SetSYNSecrets(f.secrets); err != nil {
			return err
		}
	}
	counters, err := f.config.Datapath.SYNCounters()
	if err != nil {
		return err
	}
	maps.DeleteFunc(f.known, func(key model.EndpointKey, _ *flood) bool { _, there := counters[key]; return !there })
	states := f.config.Datapath.SYNStates()
	answered := 0
	for _, key := range slices.SortedFunc(maps.Keys(counters), model.EndpointKey.Compare) {
		if err := f.sampleEndpoint(key, states[key], counters[key], now); err != nil {
			return err
		}
		if f.known[key].state.Answers {
			answered++
		}
	}
	f.answered.Store(int64(answered))
	return nil
}

// sampleEndpoint evaluates one endpoint. A state set by the process before, or by a change of the endpoint, is kept.
func (f *floods) sampleEndpoint(key model.EndpointKey, is mux.SYNState, c mux.SYNCounter, now time.Time) error {
	one := f.known[key]
	if one == nil {
		one = &flood{}
		f.known[key] = one
	}
	one.state = is
	tell, trouble := one.sample(c, now, f.limits)
	if now.Sub(f.renewed) > floodSecrets {
		one.state.Tries = false // hosts may not take the cookies any more: clients would lose their connections
	}
	if one.state != is {
		if err := f.config.Datapath.SetSYNState(key, one.state); err != nil {
			return err
		}
	}
	if tell == "" {
		return nil
	}
	turned := reason.SYNCookiesOff
	if trouble {
		turned = reason.SYNCookiesOn
		f.began.Add(1)
	}
	f.config.Log.Warn(tell, "vip", key.VIP, "endpoint", key)
	f.tell(&weirv1.MuxEvent{Endpoint: wire.EndpointKeyToProto(key), Reason: turned, Message: tell, Warning: trouble})
	return nil
}

// idle says whether no endpoint can be flooded, none was at the last look, and that was not long ago.
func (f *floods) idle(now time.Time) (bool, error) {
	verdicts, err := f.config.Datapath.Verdicts()
	if err != nil {
		return false, err
	}
	total, before, at := verdicts["forward_syn"].Packets+verdicts["reply_syn"].Packets+verdicts["drop_syn"].Packets, f.total, f.totaled
	f.total, f.totaled = total, now
	if now.Sub(f.looked) >= floodLearn || float64(total-before) > f.limits.Least*now.Sub(at).Seconds() {
		return false, nil
	}
	for _, one := range f.known {
		if one.state != (mux.SYNState{}) {
			return false, nil
		}
	}
	return true, nil
}

// pressures are the VIPs of the endpoints whose SYNs are answered, a line for each endpoint.
func (f *floods) pressures() (all []*weirv1.VIPPressure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(f.known), model.EndpointKey.Compare) {
		if one := f.known[key]; one.state.Answers {
			all = append(all, &weirv1.VIPPressure{
				Vip: key.VIP.String(), Cause: string(model.CauseSYNFlood), Evidence: key.String() + ": " + cmp.Or(one.told, "SYN cookies on"),
			})
		}
	}
	return all
}

// sample tells how many endpoints are flooded.
func (f *floods) sample(to *telemetry.Sample) {
	telemetry.Put(to, "weir_mux_syn_floods_total", uint64(f.began.Load()))
	telemetry.Put(to, "weir_mux_syn_flooded_endpoints", uint64(f.answered.Load()))
}
