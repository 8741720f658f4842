package manager

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// maxPending bounds what a feed keeps for a slow reader, who gets a snapshot instead of more.
const maxPending = 1 << 16

// hostFeed is what a host's stream has to send yet. Changes of one backend fall together: it does not grow
// with time. Its fields are guarded by the hub.
type hostFeed struct {
	hub     *hub
	host    string
	wake    chan struct{} // holds at most one
	whole   bool          // a snapshot is due
	dirty   bool          // something is due
	pending map[model.HostBackendKey]*model.HostBackend
	sent    model.Generation
	acked   model.Generation
	late    bool // it had its time, and is not waited for until it is current
}

// add notes what the host must hear.
func (f *hostFeed) add(change hostChange) {
	if f.pending == nil {
		f.pending = map[model.HostBackendKey]*model.HostBackend{}
	}
	for key, b := range change.backends {
		f.pending[key] = b
	}
	if f.dirty = true; len(f.pending) > maxPending {
		f.whole, f.pending = true, nil
	}
	wake(f.wake)
}

// take returns what is due, if anything is and the State holds generation first.
func (f *hostFeed) take(first model.Generation) (update rpc.HostUpdate, due bool) {
	h := f.hub
	h.mu.Lock()
	s := h.state
	if s == nil || s.Generation < first || !f.whole && !f.dirty {
		h.mu.Unlock()
		return rpc.HostUpdate{}, false
	}
	whole, pending := f.whole, f.pending
	f.whole, f.dirty, f.pending, f.sent = false, false, nil, s.Generation
	delete(h.fresh, f)
	h.mu.Unlock()
	update = rpc.HostUpdate{Generation: s.Generation, Snapshot: whole, Muxes: s.Muxes()}
	if whole {
		update.HashKey = s.HashKey
		for _, b := range s.BackendsOn(f.host) {
			update.Backends = append(update.Backends, b)
		}
	} else {
		for key, b := range pending {
			if b == nil {
				update.Removed = append(update.Removed, key)
			} else {
				update.Backends = append(update.Backends, *b)
			}
		}
	}
	compare := func(a, b model.HostBackendKey) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), a.Tunnel.Compare(b.Tunnel))
	}
	slices.SortFunc(update.Backends, func(a, b model.HostBackend) int { return compare(a.Key(), b.Key()) })
	slices.SortFunc(update.Removed, compare)
	return update, true
}

// muxFeed is what a mux's stream has to send yet: the endpoints that changed, which are read when it is
// sent. Its fields are guarded by the hub.
type muxFeed struct {
	hub     *hub
	mux     string
	wake    chan struct{} // holds at most one
	whole   bool          // a snapshot is due
	dirty   bool          // something is due
	pending map[model.EndpointKey]bool
	sent    model.Generation
	acked   model.Generation
	waits   time.Time        // since when an answer is due; zero: it is current
	runs    model.Generation // of what it acked, what it did not refuse
	joins   bool             // it had seen nothing when it opened this stream
	first   bool             // it has answered on this stream

	out      bool // it did not answer in time
	withdraw bool // it is out of the pool, and told so
}

// add notes endpoints that the mux must hear of.
func (f *muxFeed) add(keys []model.EndpointKey) {
	if f.pending == nil {
		f.pending = map[model.EndpointKey]bool{}
	}
	for _, key := range keys {
		f.pending[key] = true
	}
	if len(f.pending) > maxPending {
		f.whole, f.pending = true, nil
	}
}

// soon has what is due sent, if only the generation or the pool.
func (f *muxFeed) soon() {
	f.dirty = true
	wake(f.wake)
}

// take returns what is due, if anything is and muxes may run generation first.
func (f *muxFeed) take(first model.Generation) (update rpc.MuxUpdate, due bool) {
	h := f.hub
	h.mu.Lock()
	s := h.released
	if s == nil || s.Generation < first || !f.whole && !f.dirty {
		h.mu.Unlock()
		return rpc.MuxUpdate{}, false
	}
	whole, pending := f.whole, f.pending
	f.whole, f.dirty, f.pending, f.sent = false, false, nil, s.Generation
	if f.waits.IsZero() {
		f.waits = h.now()
	}
	update = rpc.MuxUpdate{Generation: s.Generation, Snapshot: whole, Pool: h.pool, Withdraw: f.withdraw}
	h.mu.Unlock()
	if whole {
		update.HashKey = s.HashKey
		update.Endpoints = make([]model.MuxEndpoint, 0, s.Tables.Len())
		for key := range s.Tables.Keys() {
			add(&update, s, key)
		}
	} else {
		for key := range pending {
			add(&update, s, key)
		}
		slices.SortFunc(update.Endpoints, func(a, b model.MuxEndpoint) int { return a.Key.Compare(b.Key) })
		slices.SortFunc(update.Removed, model.EndpointKey.Compare)
	}
	return update, true
}

func add(update *rpc.MuxUpdate, s *store.State, key model.EndpointKey) {
	if e, there := muxEndpoint(s, key); there {
		update.Endpoints = append(update.Endpoints, e)
	} else if !update.Snapshot {
		update.Removed = append(update.Removed, key)
	}
}

// ack notes what the mux runs, and refused.
func (f *muxFeed) ack(runs, refused model.Generation, now time.Time) {
	generation := max(runs, refused)
	f.first, f.runs = true, runs
	if generation > f.acked {
		f.acked, f.waits = generation, now
	}
	if generation >= f.sent {
		f.waits = time.Time{}
	}
}

// wake tells whoever reads the channel, which holds one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
