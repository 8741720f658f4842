package publish

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
	"github.com/weirlb/weir/internal/nodesync/publish/steered"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

// HostsGrace is how long the gate holds a generation back from muxes for a host that has not acknowledged it. A host
// that took longer is not waited for again until it is current.
const HostsGrace = time.Second

// Hub computes what changed between two States, and which nodes with a stream at this manager need an update: hosts get
// it at once, muxes when the hosts are ready.
type Hub struct {
	*Progress

	store *store.Store
	// Grace is how long muxes wait for a host, Patience how long the pool waits for a mux. They may be changed before Run.
	Grace, Patience time.Duration

	now func() time.Time

	mu     sync.Mutex
	state  *store.State // newest that hosts are told; nil before the first
	gate   *gate
	hosts  map[string]map[*HostFeed]bool
	muxes  muxFeeds
	here   progress.Slowest   // of muxes, those that are waited for
	unsent map[*HostFeed]bool // feeds that wait for their first State
	ready  model.Generation   // generation that the hosts here are ready for, as the other managers know it

	released     *store.State // newest that muxes are told; nil until the hosts were ready once
	held         []heldState  // States that wait for the hosts
	updates      muxUpdates
	pool         []model.PoolMember
	poolMessages []*weirv1.PoolMember
	poolState    *store.State // from which pool was computed
	backlogs     []*weirv1.EndpointBacklog
	recheck      wake.Signal // the gate is to be checked again
	exclusion    exclusion
	snat         snatRelease
	networks     networkRelease
	moves        clientMoves
	steered      *steered.Table // of state
	digests      digests

	published func(after model.Generation, s *store.State, since time.Time) // called for each
}

// heldState is a State that the gate holds back from muxes, and what differs from the one before it.
type heldState struct {
	state       *store.State
	keys        []model.EndpointKey
	snat        []model.SNATKey // workloads that differ
	lists       []string        // prefix lists that differ
	networks    networkChanges
	needsNoHost bool // no host has to have it before muxes do
	since       time.Time
}

// New makes a Hub. published is called for each State that muxes may have, with the generation before it, and since when.
func New(s *store.Store, published func(after model.Generation, s *store.State, since time.Time)) *Hub {
	return &Hub{
		Progress: newProgress(), store: s, published: published, now: time.Now,
		Grace: HostsGrace, Patience: muxPatience, gate: newGate(), recheck: wake.New(),
		hosts: map[string]map[*HostFeed]bool{}, muxes: muxFeeds{}, unsent: map[*HostFeed]bool{},
		exclusion: exclusion{store: s}, snat: snatRelease{snapshots: map[*HostFeed]bool{}}, networks: networkRelease{},
	}
}

// Run follows the store until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	for {
		state, changed := h.store.Watch()
		wait := h.follow(state)
		var expired <-chan time.Time
		if wait > 0 {
			expired = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-h.recheck:
		case <-expired:
		}
	}
}

// follow computes the updates of a new State, and checks the gate. It returns after which time the gate has to be
// checked again; 0: nothing waits for a time.
func (h *Hub) follow(s *store.State) time.Duration {
	var changed changes // without the lock: nobody else replaces the State
	if before := h.state; before == nil {
		h.steered = steered.New(s.State)
	} else if before.Generation != s.Generation {
		changed = newChanges(before, s, s.DeltaSince(before), h.steered)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	h.gate.grace = h.Grace
	switch {
	case h.state == nil:
		h.gate.begin(s, now)
		h.held = []heldState{{state: s}}
		h.digests.add(s)
	case h.state != s:
		h.notifyHosts(s, changed, now)
	}
	h.state = s
	for f := range h.unsent {
		f.wake.Set()
	}
	ready, wait := h.gate.ready(s, now)
	h.notifyManagers(s, ready)
	ready, wait = h.gate.all(h.hostsReady(s), ready, wait, now)
	h.release(h.skipUnaffected(ready))
	if s != h.poolState {
		h.poolState = s
		h.notifyExcluded(s)
		h.notifyPool(members(s))
	}
	h.snat.confirm(h.findFloor(s, h.pool), h.hosts)
	h.networks.confirm(h.snat.confirmed)
	return wait
}

// notifyManagers reports the progress of the nodes here to the other managers: by streams, or by the store.
func (h *Hub) notifyManagers(s *store.State, ready model.Generation) {
	own := progress.Nodes{Notes: h.store.Presence.Self(), Muxes: make(map[string]progress.Mux, len(h.muxes))}
	if h.gate.hosts > 0 {
		own.HostsReady = ready
	}
	processed := map[string]model.Generation{}
	for mux := range h.muxes {
		at, generation, isAwaited := h.muxes.progress(mux)
		if own.Muxes[mux] = at; isAwaited {
			processed[mux] = generation
		}
	}
	h.here = progress.NewSlowest(processed)
	own.Floor, _ = h.here.Least()
	h.set(own, h.awaited(own.HostsReady))
	h.ready = own.HostsReady
	h.store.Presence.SetReady(own.HostsReady, !h.ReportsToAllManagers(s))
}

// awaited says whether muxes may be waiting for the hosts here: not if only generations that need no host are held.
func (h *Hub) awaited(ready model.Generation) bool {
	return h.ready == 0 || ready < h.ready || slices.ContainsFunc(h.held, func(held heldState) bool {
		return !held.needsNoHost && h.ready < held.state.Generation && held.state.Generation <= ready
	})
}

// skipUnaffected is ready, or the newest generation after it up to which no host needs anything: no other manager has
// to confirm those.
func (h *Hub) skipUnaffected(ready model.Generation) model.Generation {
	if h.released == nil {
		return ready
	}
	ready = max(ready, h.released.Generation)
	for _, held := range h.held {
		if held.state.Generation <= ready {
			continue
		}
		if !held.needsNoHost {
			break
		}
		ready = held.state.Generation
	}
	return ready
}

// notifyHosts adds what changed from the last State to s to the feeds of hosts.
func (h *Hub) notifyHosts(s *store.State, c changes, now time.Time) {
	if h.state.Generation == s.Generation {
		if len(h.held) > 0 {
			h.held[len(h.held)-1].state = s // streams and reports are newer
		} else {
			h.released = s
		}
		return
	}
	h.digests.add(s)
	h.steered.Apply(c.steered)
	h.moves.add(c.moves, now)
	alone := true
	for host, changed := range c.hosts {
		alone = alone && !changed.adds
		h.notifyHost(host, changed, s.Generation, now)
	}
	if c.sources || !slices.Equal(h.state.FastpathKeys, s.FastpathKeys) || !slices.Equal(h.state.SYNSecrets, s.SYNSecrets) {
		alone = false
		for host := range h.hosts {
			h.notifyHost(host, hostChange{adds: true}, s.Generation, now)
		}
	}
	if !slices.Equal(h.state.FBTMasters, s.FBTMasters) {
		for host := range h.hosts {
			if of, _ := nodeconfig.MuxHost(s.State, host); of.Server {
				alone = false
				h.notifyHost(host, hostChange{adds: true}, s.Generation, now)
			}
		}
	}
	h.held = append(h.held, heldState{s, c.endpoints, c.snat, c.lists, c.networks, alone, now})
}

// notifyHost adds a change to the feeds of a host, if it has streams here.
func (h *Hub) notifyHost(host string, changed hostChange, generation model.Generation, now time.Time) {
	for f := range h.hosts[host] {
		f.add(changed)
		if changed.adds {
			h.gate.need(f, generation, now)
		}
	}
}

// release lets muxes have the newest State that is not newer than ready.
func (h *Hub) release(ready model.Generation) {
	n := 0
	for n < len(h.held) && h.held[n].state.Generation <= ready {
		n++
	}
	if n == 0 {
		return
	}
	after := model.Generation(0)
	if h.released != nil {
		after = h.released.Generation
	}
	for _, held := range h.held[:n] {
		h.published(after, held.state, held.since)
		after = held.state.Generation
	}
	before := h.released
	h.released = h.held[n-1].state
	sent := h.released.Generation
	for f := range h.muxes.all() {
		if !f.snapshotDue {
			sent = min(sent, f.sent)
		}
		f.schedule()
	}
	h.updates.forget(sent)
	for _, held := range h.held[:n] {
		h.updates.add(muxChanges{held.state.Generation, held.keys, newSNATChanges(before, held.snat), held.lists, held.networks})
		before = held.state
	}
	h.snat.unacknowledged = append(h.snat.unacknowledged, h.held[:n]...)
	h.held = slices.Delete(h.held, 0, n)
}

// notifyPool sends muxes the members of the pool when these changed.
func (h *Hub) notifyPool(pool []model.PoolMember) {
	if reflect.DeepEqual(pool, h.pool) {
		return
	}
	h.pool, h.poolMessages = pool, wire.PoolToProto(pool)
	for f := range h.muxes.all() {
		f.schedule()
	}
}

// SetBacklogs sends muxes the endpoints whose SYNs are to be answered: all of them. They are no part of the desired state.
func (h *Hub) SetBacklogs(all []*weirv1.EndpointBacklog) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.backlogs = all
	for f := range h.muxes.all() {
		f.schedule()
	}
}

// members are the muxes of the pool, by name: those with an open stream that are not excluded.
func members(s *store.State) []model.PoolMember {
	var pool []model.PoolMember
	for node := range s.MuxNodes() {
		if s.Streams.At(node.Name) && !s.Excluded.Has(node.Name) {
			pool = append(pool, model.PoolMember{Name: node.Name, Addresses: node.Addresses, Prefixes: node.Prefixes})
		}
	}
	return pool
}

// OpenHost begins the feed of a host's stream. deltas: it takes them of port ranges.
func (h *Hub) OpenHost(name string, deltas bool) (f *HostFeed, closed func()) {
	f = &HostFeed{hub: h, host: name, deltas: deltas, snapshotDue: true, wake: wake.New()}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.snapshotSNAT()
	if h.hosts[name] == nil {
		h.hosts[name] = map[*HostFeed]bool{}
	}
	h.hosts[name][f], h.unsent[f] = true, true
	h.gate.hosts++
	if h.state != nil && len(h.held) > 0 {
		h.gate.need(f, h.state.Generation, h.now())
	}
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.hosts[name], f)
		delete(h.unsent, f)
		delete(h.snat.snapshots, f)
		delete(h.networks, f)
		if len(h.hosts[name]) == 0 {
			delete(h.hosts, name)
		}
		h.gate.hosts--
		h.gate.forget(f)
		h.recheck.Set()
	}
}

// OpenMux begins the feed of a mux's stream; one that joins has seen no generation yet. chunks are those that it has;
// deltas: it takes them of port ranges.
func (h *Hub) OpenMux(name string, joins bool, chunks []string, deltas bool) (f *MuxFeed, closed func()) {
	f = &MuxFeed{hub: h, mux: name, joins: joins, deltas: deltas, chunks: setOf(chunks), snapshotDue: true, wake: wake.New()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.muxes.add(f)
	h.muxAnswered(name)
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.muxes.remove(f)
		h.recheck.Set()
	}
}

// PublishedGeneration is the newest generation that muxes may run, 0 if none yet, and how many hosts with a stream here
// are late: the gate no longer waits for them.
func (h *Hub) PublishedGeneration() (published model.Generation, late int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released != nil {
		published = h.released.Generation
	}
	for f := range h.gate.wanted {
		if f.late {
			late++
		}
	}
	return published, late
}
