package publish

import (
	"cmp"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/secret"
	"github.com/weirlb/weir/internal/nodesync/publish/steered"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

// maxPending bounds the rows that are kept for a slow node. Beyond it the node gets a snapshot.
const maxPending = 1 << 16

// HostFeed holds the rows that are due on a host's stream. Changes of one row are coalesced, so it does not grow with
// time. Its fields are guarded by the hub's lock.
type HostFeed struct {
	hub         *Hub
	host        string
	wake        wake.Signal
	snapshotDue bool // a snapshot is due
	dirty       bool // something is due
	pending     map[model.HostBackendKey]*model.HostBackend
	sent        model.Generation
	acked       model.Generation
	late        bool // the gate waited for HostsGrace, and waits no more until the host is current

	snatSnapshotDue bool // a snapshot of source NAT is due, once the muxes have what it holds
	snat            map[model.SNATKey]bool
	waits           bool                        // to tell of snat
	deltas          bool                        // the host takes them of port ranges
	told            map[model.SNATKey]snat.List // what was sent last, for deltas

	secrets     secret.Needs
	networks    sentNetworks
	networksDue bool // something of them may have changed
	steered     steered.Sent
}

// snatDelay is how long a host is not sent ranges that it knows by the response to its request. Meanwhile there may be
// more to send in the same message.
const snatDelay = time.Second

// scheduleLater has what is due sent after snatDelay, if nothing else has it sent before.
func (f *HostFeed) scheduleLater() {
	if f.waits {
		return
	}
	f.waits = true
	time.AfterFunc(snatDelay, func() {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		f.waits = false
		f.wake.Set()
	})
}

// addSNAT marks a workload's source NAT as due for the host.
func (f *HostFeed) addSNAT(key model.SNATKey) {
	if f.snat == nil {
		f.snat = map[model.SNATKey]bool{}
	}
	if f.snat[key] = true; len(f.snat) > maxPending {
		f.snapshotSNAT()
	}
}

// snapshotSNAT marks all source NAT of the host as due.
func (f *HostFeed) snapshotSNAT() {
	f.snatSnapshotDue, f.snat = true, nil
	f.hub.snat.snapshots[f] = true
}

// nextSNAT adds the source NAT that is due to an update, as far as the muxes have it. It takes back nothing that the
// host got before this stream, up to generation first. While a restore is pending the host reports its ranges and gets
// none.
func (f *HostFeed) nextSNAT(update *wire.HostUpdate, s *store.State, first model.Generation) {
	if s == nil || s.Restored.Pending() || f.snatSnapshotDue && s.Generation < first {
		return
	}
	whole, keys := f.snatSnapshotDue, f.snat
	f.snatSnapshotDue, f.snat = false, nil
	delete(f.hub.snat.snapshots, f)
	if whole {
		update.SNATSnapshot, keys = true, map[model.SNATKey]bool{}
		for key := range s.SNATClientsOn(f.host) {
			keys[key] = true
		}
	}
	for key := range keys {
		if host, of, there := hostSNAT(s, key); there && host == f.host {
			update.SNAT = append(update.SNAT, of)
		} else {
			update.SNATRemoved = append(update.SNATRemoved, key)
		}
	}
	if f.deltas {
		update.SNATBefore = f.noteTold(*update)
	}
	slices.SortFunc(update.SNAT, func(a, b model.HostSNAT) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(update.SNATRemoved, model.SNATKey.Compare)
}

// noteTold notes the lists of an update, and returns those that the host was told of the same workloads before.
func (f *HostFeed) noteTold(update wire.HostUpdate) map[model.SNATKey]snat.List {
	if update.SNATSnapshot || f.told == nil {
		f.told = map[model.SNATKey]snat.List{}
	}
	before := make(map[model.SNATKey]snat.List, len(update.SNAT))
	for _, of := range update.SNAT {
		before[of.Key] = f.told[of.Key]
		f.told[of.Key] = snat.List{Written: of.Written, Ranges: of.Ranges}
	}
	for _, key := range update.SNATRemoved {
		delete(f.told, key)
	}
	return before
}

// snatDue says whether source NAT is due, as far as the muxes have it.
func (f *HostFeed) snatDue(s *store.State, first model.Generation) bool {
	return s != nil && !s.Restored.Pending() && (len(f.snat) > 0 || f.snatSnapshotDue) &&
		(!f.snatSnapshotDue || s.Generation >= first)
}

// add marks changed rows as due.
func (f *HostFeed) add(change hostChange) {
	if f.pending == nil {
		f.pending = map[model.HostBackendKey]*model.HostBackend{}
	}
	for key, b := range change.backends {
		f.pending[key] = b
	}
	f.networksDue = f.networksDue || change.networks
	f.steered.Add(change.steering)
	if f.dirty = true; len(f.pending) > maxPending {
		f.snapshotDue, f.pending = true, nil
	}
	f.wake.Set()
}

// Wake has something when Next may return more.
func (f *HostFeed) Wake() <-chan struct{} { return f.wake }

// Next returns what is due, if anything is and the State holds generation first.
func (f *HostFeed) Next(first model.Generation) (update wire.HostUpdate, due bool) {
	h := f.hub
	h.mu.Lock()
	s := h.state
	if s == nil || s.Generation < first || !f.snapshotDue && !f.dirty && !f.snatDue(h.snat.confirmed, first) {
		h.mu.Unlock()
		return wire.HostUpdate{}, false
	}
	whole, pending, networks, steers := f.snapshotDue, f.pending, f.snapshotDue || f.networksDue, f.steered.Take(h.steered, s.State, f.host, f.snapshotDue)
	f.snapshotDue, f.networksDue, f.dirty, f.pending, f.sent = false, false, false, nil, s.Generation
	delete(h.unsent, f)
	var moves clientMoves
	if networks && len(h.moves) > 0 {
		moves = h.moves.recent(h.now())
	}
	update = wire.HostUpdate{Generation: s.Generation, Snapshot: whole, Muxes: nodeconfig.Muxes(s.State), TellRanges: s.Restored.Pending()}
	f.nextSNAT(&update, h.snat.confirmed, first)
	confirmed := model.Generation(0)
	if h.snat.confirmed != nil {
		confirmed = h.snat.confirmed.Generation
	}
	h.mu.Unlock()
	if whole {
		for _, b := range nodeconfig.BackendsOn(s.State, f.host) {
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
	update.Steering = f.steered.Update(steers)
	f.secrets.AddTo(&update, s, f.host)
	if leaving := f.networks.addTo(&update, s, f.host, networks, confirmed); leaving != 0 {
		f.awaitMuxes(leaving)
	}
	if len(moves) > 0 && f.networks.isServer {
		update.Networks.Moved = f.networks.moved(s, moves)
	}
	return update, true
}

// awaitMuxes has what goes of virtual networks sent once muxes have a generation.
func (f *HostFeed) awaitMuxes(generation model.Generation) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if f.hub.hosts[f.host][f] {
		f.hub.networks[f] = generation
		f.hub.networks.confirm(f.hub.snat.confirmed)
	}
}

// MuxFeed is how far a mux's stream is. Its fields are guarded by the hub's lock.
type MuxFeed struct {
	hub         *Hub
	mux         string
	wake        wake.Signal
	snapshotDue bool // a snapshot is due
	dirty       bool // something is due
	sent        model.Generation
	acked       model.Generation
	waits       time.Time        // since when an acknowledgement is due; zero: the mux is current
	runs        model.Generation // the newest generation that it acknowledged and did not reject
	joins       bool             // the mux had no generation when it opened this stream
	chunks      chunksSent
	deltas      bool // the mux takes them of port ranges
	answered    bool // the mux has acknowledged on this stream
	keepsSNAT   bool // a restore is pending: the mux keeps its source NAT, and gets a snapshot when it ends

	silent   bool // it did not acknowledge in time
	withdraw bool // it is excluded, and was sent that
}

// schedule has an update sent, even if only the generation or the pool changed.
func (f *MuxFeed) schedule() {
	f.dirty = true
	f.wake.Set()
}

// Wake has something when Next may return more.
func (f *MuxFeed) Wake() <-chan struct{} { return f.wake }

// Sent is the generation of what Next returned last. It is for the goroutine that calls Next.
func (f *MuxFeed) Sent() model.Generation { return f.sent }

// isSnapshotDue says whether the next update is a snapshot. The hub's lock is held.
func (f *MuxFeed) isSnapshotDue(s *store.State) bool {
	return f.snapshotDue || f.sent < f.hub.updates.floor || f.keepsSNAT && !s.Restored.Pending()
}

// Next returns what is due, if anything is and muxes may run generation first; nil: nothing is. The part that muxes
// have in common stands in the message as unknown fields, which are written as the bytes that they are.
func (f *MuxFeed) Next(first model.Generation) (*weirv1.SyncMuxResponse, error) {
	h := f.hub
	h.mu.Lock()
	s := h.released
	if s == nil || s.Generation < first || !f.snapshotDue && !f.dirty {
		h.mu.Unlock()
		return nil, nil
	}
	snapshot := f.isSnapshotDue(s)
	update := h.updates.to(s, muxStream{f.sent, f.deltas}, snapshot)
	f.snapshotDue, f.dirty, f.keepsSNAT, f.sent = false, false, s.Restored.Pending(), s.Generation
	if f.waits.IsZero() {
		f.waits = h.now()
	}
	message := &weirv1.SyncMuxResponse{Withdraw: f.withdraw, Pool: h.poolMessages, Backlogs: h.backlogs}
	if snapshot || len(update.lists) > 0 {
		message.PrefixChunks = wire.ChunksToProto(f.chunks.next(s, update.lists))
	}
	h.mu.Unlock()
	encoded, err := update.encode()
	message.ProtoReflect().SetUnknown(encoded)
	return message, err
}

// ack records the generation that the mux runs, and the newest that it has processed.
func (f *MuxFeed) ack(runs, answered model.Generation, now time.Time) {
	generation := max(runs, answered)
	f.answered, f.runs = true, max(f.runs, runs) // a report may be older than an acknowledgement
	if generation > f.acked {
		f.acked, f.waits = generation, now
	}
	if generation >= f.sent {
		f.waits = time.Time{}
	}
}
