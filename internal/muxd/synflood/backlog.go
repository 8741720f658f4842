package synflood

import (
	"fmt"
	"maps"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	queues "github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/wire"
)

// backlogLifetime is for how long a manager's word holds: it is repeated three times as often.
const backlogLifetime = time.Minute

// backlog is an endpoint with a backend that takes no more connections for now.
type backlog struct {
	evidence string
	told     time.Time // by a manager, last
	answered time.Time // since when its SYNs are answered for it alone or too; zero: they are not
	floods   bool      // the detector has them answered as well
	over     bool      // no manager says it any more
}

// SetBacklogs takes over the endpoints whose SYNs are to be answered as a backend's backlog is full: all of them.
func (w *Watcher) SetBacklogs(all []queues.Endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setBacklogs(all, time.Now())
}

func (w *Watcher) setBacklogs(all []queues.Endpoint, now time.Time) {
	for _, b := range w.backlogs {
		b.over = true
	}
	for _, next := range all {
		b := w.backlogs[next.Key]
		if b == nil {
			b = &backlog{}
			w.backlogs[next.Key] = b
		}
		b.evidence, b.told, b.over = next.Evidence, now, false
	}
	w.changed = true
}

// forgetBacklogs ends what no manager has said for a while, and what is over and has no effect any more.
func (w *Watcher) forgetBacklogs(now time.Time) {
	if len(w.backlogs) == 0 {
		return
	}
	for _, b := range w.backlogs {
		b.over = b.over || now.Sub(b.told) >= backlogLifetime
	}
	states := w.datapath.SYNStates()
	maps.DeleteFunc(w.backlogs, func(key model.EndpointKey, b *backlog) bool {
		_, automatic := states[key]
		return b.over && (b.answered.IsZero() || !automatic)
	})
}

// ofDetector is, of the state of an endpoint, what its detector decided: what is answered for a backlog is no flood.
func (w *Watcher) ofDetector(key model.EndpointKey, is endpoint.SYNState) endpoint.SYNState {
	if b := w.backlogs[key]; b != nil && !b.answered.IsZero() {
		is.Answers = b.floods
	}
	return is
}

// withBacklog is the state that an endpoint is to have, by its detector's and by what managers say.
func (w *Watcher) withBacklog(key model.EndpointKey, state endpoint.SYNState, now time.Time) endpoint.SYNState {
	b := w.backlogs[key]
	switch {
	case b == nil:
		return state
	case !b.over && b.answered.IsZero():
		b.answered = now
		if !state.Answers {
			w.tell(key, "SYN cookies on: "+b.evidence, true)
		}
	case b.over && !b.answered.IsZero():
		if !state.Answers {
			w.tell(key, fmt.Sprintf("SYN cookies off after %s: no backlog is full", now.Sub(b.answered).Round(time.Second)), false)
		}
		b.answered = time.Time{}
	}
	b.floods = state.Answers
	state.Answers = state.Answers || !b.answered.IsZero()
	return state
}

// countBacklogs is for how many endpoints SYNs are answered.
func (w *Watcher) countBacklogs() (n int64) {
	for _, b := range w.backlogs {
		if !b.answered.IsZero() {
			n++
		}
	}
	return n
}

// backlogPressures are the VIPs of these endpoints, a line for each.
func (w *Watcher) backlogPressures() (all []*weirv1.VIPPressure) {
	for _, key := range slices.SortedFunc(maps.Keys(w.backlogs), model.EndpointKey.Compare) {
		if b := w.backlogs[key]; !b.answered.IsZero() {
			all = append(all, &weirv1.VIPPressure{
				Vip: key.VIP.String(), Cause: string(queues.Pressure), Endpoint: wire.EndpointKeyToProto(key), Evidence: key.String() + ": " + b.evidence,
			})
		}
	}
	return all
}
