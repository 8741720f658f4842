package publish

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// maxPending bounds what a feed keeps for a slow reader, who gets a snapshot instead of more.
const maxPending = 1 << 16

// HostFeed is what a host's stream has to send yet. Changes of one backend fall together: it does not grow
// with time. Its fields are guarded by the hub.
type HostFeed struct {
	hub     *Hub
	host    string
	wake    chan struct{} // holds at most one
	whole   bool          // a snapshot is due
	dirty   bool          // something is due
	pending map[model.HostBackendKey]*model.HostBackend
	sent    model.Generation
	acked   model.Generation
	late    bool // it had its time, and is not waited for until it is current

	snatWhole bool // a snapshot of SNAT is due, when the muxes have what the host may know
	snat      map[model.SNATKey]bool
	waits     bool // to tell of snat

	secrets secretNeeds
}

// laterSNAT is how long a host is not told what it knows by the answer to its request: by then there may be more to
// tell, and it answers but once.
const laterSNAT = time.Second

// tellLater has the host told what is due by then, unless it is sooner.
func (f *HostFeed) tellLater() {
	if f.waits {
		return
	}
	f.waits = true
	time.AfterFunc(laterSNAT, func() {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		f.waits = false
		wake(f.wake)
	})
}

// addSNAT notes workloads of which the host must hear.
func (f *HostFeed) addSNAT(key model.SNATKey) {
	if f.snat == nil {
		f.snat = map[model.SNATKey]bool{}
	}
	if f.snat[key] = true; len(f.snat) > maxPending {
		f.snapshotSNAT()
	}
}

// snapshotSNAT has the host told all of SNAT.
func (f *HostFeed) snapshotSNAT() {
	f.snatWhole, f.snat = true, nil
	f.hub.whole[f] = true
}

// takeSNAT adds what is due of SNAT to an update: what the muxes have. Of what the host heard before this stream,
// up to generation first, it takes nothing back. While a restore is pending the host tells, and is told nothing.
func (f *HostFeed) takeSNAT(update *wire.HostUpdate, s *store.State, first model.Generation) {
	if s == nil || s.Restored.Pending() || f.snatWhole && s.Generation < first {
		return
	}
	whole, keys := f.snatWhole, f.snat
	f.snatWhole, f.snat = false, nil
	delete(f.hub.whole, f)
	if whole {
		update.SNATSnapshot, keys = true, map[model.SNATKey]bool{}
		for key := range s.SNATClientsOn(f.host) {
			keys[key] = true
		}
	}
	for key := range keys {
		if host, snat, there := hostSNAT(s, key); there && host == f.host {
			update.SNAT = append(update.SNAT, snat)
		} else {
			update.SNATRemoved = append(update.SNATRemoved, key)
		}
	}
	slices.SortFunc(update.SNAT, func(a, b model.HostSNAT) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(update.SNATRemoved, model.SNATKey.Compare)
}

// snatDue says whether there is anything of SNAT to tell, as of what the muxes have.
func (f *HostFeed) snatDue(s *store.State, first model.Generation) bool {
	return s != nil && !s.Restored.Pending() && (len(f.snat) > 0 || f.snatWhole) && (!f.snatWhole || s.Generation >= first)
}

// add notes what the host must hear.
func (f *HostFeed) add(change hostChange) {
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

// Wake has something when Take may return more.
func (f *HostFeed) Wake() <-chan struct{} { return f.wake }

// Take returns what is due, if anything is and the State holds generation first.
func (f *HostFeed) Take(first model.Generation) (update wire.HostUpdate, due bool) {
	h := f.hub
	h.mu.Lock()
	s := h.state
	if s == nil || s.Generation < first || !f.whole && !f.dirty && !f.snatDue(h.confirmed, first) {
		h.mu.Unlock()
		return wire.HostUpdate{}, false
	}
	whole, pending := f.whole, f.pending
	f.whole, f.dirty, f.pending, f.sent = false, false, nil, s.Generation
	delete(h.fresh, f)
	update = wire.HostUpdate{Generation: s.Generation, Snapshot: whole, Muxes: s.Muxes()}
	update.TellRanges = s.Restored.Pending()
	f.takeSNAT(&update, h.confirmed, first)
	h.mu.Unlock()
	if whole {
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
	f.secrets.give(&update, s, f.host)
	return update, true
}

// MuxFeed is what a mux's stream has to send yet: the endpoints that changed, which are read when it is
// sent. Its fields are guarded by the hub.
type MuxFeed struct {
	hub     *Hub
	mux     string
	wake    chan struct{} // holds at most one
	whole   bool          // a snapshot is due
	dirty   bool          // something is due
	pending map[model.EndpointKey]bool
	snat    map[model.SNATKey]bool
	sent    model.Generation
	acked   model.Generation
	waits   time.Time        // since when an answer is due; zero: it is current
	runs    model.Generation // of what it acked, what it did not refuse
	joins   bool             // it had seen nothing when it opened this stream
	chunks  feedChunks
	first   bool // it has answered on this stream
	keeps   bool // it was told last to keep what it has of SNAT: a snapshot is due when the restore is settled

	out      bool // it did not answer in time
	withdraw bool // it is out of the pool, and told so
}

// add notes endpoints that the mux must hear of.
func (f *MuxFeed) add(keys []model.EndpointKey) {
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

// addSNAT notes workloads that the mux must hear of.
func (f *MuxFeed) addSNAT(keys []model.SNATKey) {
	if f.snat == nil {
		f.snat = map[model.SNATKey]bool{}
	}
	for _, key := range keys {
		f.snat[key] = true
	}
	if len(f.snat) > maxPending {
		f.whole, f.snat = true, nil
	}
}

// soon has what is due sent, if only the generation or the pool.
func (f *MuxFeed) soon() {
	f.dirty = true
	wake(f.wake)
}

// Wake has something when Take may return more.
func (f *MuxFeed) Wake() <-chan struct{} { return f.wake }

// Sent is the generation of what Take returned last. It is for the goroutine that calls Take.
func (f *MuxFeed) Sent() model.Generation { return f.sent }

// Take returns what is due, if anything is and muxes may run generation first.
func (f *MuxFeed) Take(first model.Generation) (update wire.MuxUpdate, due bool) {
	h := f.hub
	h.mu.Lock()
	s := h.released
	if s == nil || s.Generation < first || !f.whole && !f.dirty {
		h.mu.Unlock()
		return wire.MuxUpdate{}, false
	}
	restoring := s.Restored.Pending()
	whole, pending, snat := f.whole || f.keeps && !restoring, f.pending, f.snat
	f.keeps = restoring
	f.whole, f.dirty, f.pending, f.snat, f.sent = false, false, nil, nil, s.Generation
	if f.waits.IsZero() {
		f.waits = h.now()
	}
	update = wire.MuxUpdate{
		Generation: s.Generation, Snapshot: whole, Pool: h.pool, Withdraw: f.withdraw,
		Keys: s.FastpathKeys, SYNSecrets: s.SYNSecrets, Routes: s.Routes(), KeepSNAT: restoring,
	}
	f.takeLists(&update, s)
	h.mu.Unlock()
	if whole {
		update.HashKey = s.HashKey
		update.Endpoints = make([]model.MuxEndpoint, 0, s.Tables.Len())
		for key := range s.Tables.Keys() {
			addEndpoint(&update, s, key)
		}
		for key := range s.SNATClients() {
			addSNAT(&update, s, key)
		}
	} else {
		for key := range snat {
			addSNAT(&update, s, key)
		}
		slices.SortFunc(update.SNAT, func(a, b model.MuxSNAT) int { return a.Key.Compare(b.Key) })
		slices.SortFunc(update.SNATRemoved, model.SNATKey.Compare)
		for key := range pending {
			addEndpoint(&update, s, key)
		}
		slices.SortFunc(update.Endpoints, func(a, b model.MuxEndpoint) int { return a.Key.Compare(b.Key) })
		slices.SortFunc(update.Removed, model.EndpointKey.Compare)
	}
	return update, true
}

// addEndpoint adds an endpoint, or its removal.
func addEndpoint(update *wire.MuxUpdate, s *store.State, key model.EndpointKey) {
	if e, there := muxEndpoint(s, key); there {
		update.Endpoints = append(update.Endpoints, e)
	} else if !update.Snapshot {
		update.Removed = append(update.Removed, key)
	}
}

func addSNAT(update *wire.MuxUpdate, s *store.State, key model.SNATKey) {
	if snat, there := s.MuxSNAT(key); there {
		update.SNAT = append(update.SNAT, snat)
	} else if !update.Snapshot {
		update.SNATRemoved = append(update.SNATRemoved, key)
	}
}

// ack notes what the mux runs, and answered beyond that.
func (f *MuxFeed) ack(runs, answered model.Generation, now time.Time) {
	generation := max(runs, answered)
	f.first, f.runs = true, max(f.runs, runs) // a report may be older than an acknowledgement
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
