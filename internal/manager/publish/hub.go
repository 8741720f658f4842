package publish

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// HostsGrace is how long muxes wait for a host to have what they are about to use of it. A host that
// took longer is not waited for again until it is current.
const HostsGrace = time.Second

// Hub works out from what changed between two States which nodes that have their stream here must hear of
// it: hosts at once, muxes when the hosts are ready.
type Hub struct {
	store    *store.Store
	progress *progress
	// Grace is how long muxes wait for a host, Patience how long the pool waits for a mux. They may be changed before Run.
	Grace, Patience time.Duration

	looked time.Time // when their patience was last looked at
	now    func() time.Time

	mu    sync.Mutex
	state *store.State // newest that hosts are told; nil before the first
	gate  *gate
	hosts map[string]map[*HostFeed]bool
	muxes map[*MuxFeed]bool
	fresh map[*HostFeed]bool // those that wait for their first State
	whole map[*HostFeed]bool // those that wait for a snapshot of SNAT
	ready model.Generation   // that the other managers are told that the hosts here are ready for

	released *store.State // newest that muxes are told; nil until the hosts were ready once
	held     []heldState  // States that wait for the hosts
	pool     []model.PoolMember
	counted  *store.State  // that pool is of
	acked    chan struct{} // holds at most one: a host made room
	told     []heldState   // States that muxes were told and have not all answered
	// confirmed is the newest that all healthy muxes have answered: what hosts are told of SNAT.
	confirmed *store.State
	digests   digests

	published func(after model.Generation, s *store.State, since time.Time) // is told of each
}

// heldState is a State that muxes may not use yet, and the endpoints that differ from the one before it.
type heldState struct {
	state *store.State
	keys  []model.EndpointKey
	snat  []model.SNATKey // workloads that differ
	lists []string        // prefix lists that differ
	alone bool            // hosts need nothing of it before muxes may use it
	since time.Time
}

// New follows the store once Run runs. published is told of each State that muxes are told, with the generation before
// it, and since when it has been there.
func New(s *store.Store, published func(after model.Generation, s *store.State, since time.Time)) *Hub {
	return &Hub{
		store: s, published: published, progress: newProgress(), Grace: HostsGrace, Patience: muxPatience, now: time.Now, gate: newGate(), hosts: map[string]map[*HostFeed]bool{},
		muxes: map[*MuxFeed]bool{}, fresh: map[*HostFeed]bool{}, whole: map[*HostFeed]bool{}, acked: make(chan struct{}, 1),
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
		case <-h.acked:
		case <-expired:
		}
	}
}

// follow takes over a State and tells the feeds. It returns when to look again at the latest: 0 if nothing
// waits for a time.
func (h *Hub) follow(s *store.State) time.Duration {
	var changed changes
	if before := h.state; before != nil && before.Generation != s.Generation {
		changed = newChanges(before, s, s.DeltaSince(before)) // without the lock: nobody else replaces the State
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
		h.advance(s, changed, now)
	}
	h.state = s
	for f := range h.fresh {
		wake(f.wake)
	}
	ready, wait := h.gate.ready(s, now)
	h.tellManagers(s, ready)
	ready, wait = h.gate.all(h.progress.hostsReady(s), ready, wait, now)
	h.release(h.beyond(ready))
	if s != h.counted {
		h.counted = s
		h.tellExcluded(s)
		h.tellPool(members(s))
	}
	h.confirm(h.progress.settle(s, h.pool))
	return wait
}

// tellManagers tells how far the nodes here are: by streams, and by the store if a manager has none from here.
func (h *Hub) tellManagers(s *store.State, ready model.Generation) {
	own := nodesProgress{notes: h.store.Self(), muxes: make(map[string]muxProgress, len(h.muxes))}
	if h.gate.hosts > 0 {
		own.hostsReady = ready
	}
	for f := range h.muxes {
		at := muxProgress{runs: f.runs, answered: f.acked, joins: f.joins && !f.first}
		if before, twice := own.muxes[f.mux]; !twice || at.answered > before.answered {
			own.muxes[f.mux] = at
		}
		if awaited := !at.joins && !f.out; awaited && (own.floor == 0 || at.answered < own.floor) {
			own.floor = at.answered
		}
	}
	h.progress.set(own, h.awaited(own.hostsReady))
	h.ready = own.hostsReady
	h.store.SetReady(own.hostsReady, !h.TellsAll(s))
}

// awaited says whether muxes may wait for the hosts here to be ready: not while they only keep up with what hosts
// need nothing of.
func (h *Hub) awaited(ready model.Generation) bool {
	return h.ready == 0 || ready < h.ready || slices.ContainsFunc(h.held, func(held heldState) bool {
		return !held.alone && h.ready < held.state.Generation && held.state.Generation <= ready
	})
}

// beyond is ready, or the newest generation after it up to which hosts need nothing: no other manager has to say
// that its hosts have it.
func (h *Hub) beyond(ready model.Generation) model.Generation {
	if h.released == nil {
		return ready
	}
	ready = max(ready, h.released.Generation)
	for _, held := range h.held {
		if held.state.Generation <= ready {
			continue
		}
		if !held.alone {
			break
		}
		ready = held.state.Generation
	}
	return ready
}

// advance tells hosts what changed from the last State to s.
func (h *Hub) advance(s *store.State, c changes, now time.Time) {
	if h.state.Generation == s.Generation {
		if len(h.held) > 0 {
			h.held[len(h.held)-1].state = s // streams and reports are newer
		} else {
			h.released = s
		}
		return
	}
	h.digests.add(s)
	alone := true
	for host, changed := range c.hosts {
		alone = alone && !changed.adds
		h.tellHost(host, changed, s.Generation, now)
	}
	if c.sources || !slices.Equal(h.state.FastpathKeys, s.FastpathKeys) || !slices.Equal(h.state.SYNSecrets, s.SYNSecrets) {
		alone = false
		for host := range h.hosts {
			h.tellHost(host, hostChange{adds: true}, s.Generation, now)
		}
	}
	h.held = append(h.held, heldState{state: s, keys: c.endpoints, snat: c.snat, lists: c.lists, alone: alone, since: now})
}

// tellHost tells the host's streams, if there are any here.
func (h *Hub) tellHost(host string, changed hostChange, generation model.Generation, now time.Time) {
	for f := range h.hosts[host] {
		f.add(changed)
		if changed.adds {
			h.gate.need(f, generation, now)
		}
	}
}

// release tells muxes the newest State that is not newer than ready.
func (h *Hub) release(ready model.Generation) {
	n := 0
	for n < len(h.held) && h.held[n].state.Generation <= ready {
		n++
	}
	if n == 0 {
		return
	}
	if h.released != nil {
		after := h.released.Generation
		for _, held := range h.held[:n] {
			h.published(after, held.state, held.since)
			after = held.state.Generation
		}
	}
	h.released = h.held[n-1].state
	for f := range h.muxes {
		for _, held := range h.held[:n] {
			f.add(held.keys)
			f.addSNAT(held.snat)
			f.addLists(held.lists)
		}
		f.soon()
	}
	h.told = append(h.told, h.held[:n]...)
	h.held = slices.Delete(h.held, 0, n)
}

// tellPool tells muxes when others come and go.
func (h *Hub) tellPool(pool []model.PoolMember) {
	if reflect.DeepEqual(pool, h.pool) {
		return
	}
	h.pool = pool
	for f := range h.muxes {
		f.soon()
	}
}

// members are the muxes whose stream is open, by name, but for those that do not answer.
func members(s *store.State) []model.PoolMember {
	var pool []model.PoolMember
	for node := range s.MuxNodes() {
		if s.Streams.At(node.Name) && !s.Excluded.Has(node.Name) {
			pool = append(pool, model.PoolMember{Name: node.Name, Addresses: node.Addresses, Prefixes: node.Prefixes})
		}
	}
	return pool
}

// OpenHost begins the feed of a host's stream.
func (h *Hub) OpenHost(name string) (f *HostFeed, closed func()) {
	f = &HostFeed{hub: h, host: name, whole: true, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.snapshotSNAT()
	if h.hosts[name] == nil {
		h.hosts[name] = map[*HostFeed]bool{}
	}
	h.hosts[name][f], h.fresh[f] = true, true
	h.gate.hosts++
	if h.state != nil && len(h.held) > 0 {
		h.gate.need(f, h.state.Generation, h.now())
	}
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.hosts[name], f)
		delete(h.fresh, f)
		delete(h.whole, f)
		if len(h.hosts[name]) == 0 {
			delete(h.hosts, name)
		}
		h.gate.hosts--
		h.gate.forget(f)
		h.look()
	}
}

// OpenMux begins the feed of a mux's stream; one that joins has seen no generation yet. Of prefix lists it has these
// chunks.
func (h *Hub) OpenMux(name string, joins bool, chunks []string) (f *MuxFeed, closed func()) {
	f = &MuxFeed{hub: h, mux: name, joins: joins, chunks: feedChunks{has: setOf(chunks)}, whole: true, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.muxes[f] = true
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.muxes, f)
		h.look()
	}
}

// Reached is the generation that muxes may run, 0 if none yet, and how many hosts with a stream here had
// their time for what they must have, and do not have it.
func (h *Hub) Reached() (published model.Generation, late int) {
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

// look has run look at the gate again.
func (h *Hub) look() { wake(h.acked) }

// changes are what differs between two States for those that run it.
type changes struct {
	sources   bool                  // that hosts accept
	hosts     map[string]hostChange // by host, those that must hear of something
	endpoints []model.EndpointKey   // of muxes
	snat      []model.SNATKey       // of muxes and hosts
	lists     []string              // of muxes, those that endpoints name
}

// hostChange is what one host must hear.
type hostChange struct {
	backends map[model.HostBackendKey]*model.HostBackend // nil: removed
	adds     bool                                        // what muxes wait for
}

// newChanges works out from what was written what changed. It costs what was written.
func newChanges(old, s *store.State, delta store.Delta) changes {
	c := changes{hosts: map[string]hostChange{}}
	vips := touched(old, s, delta)
	before, after := placed{}, placed{}
	for name := range vips {
		before.gather(old, name)
		after.gather(s, name)
	}
	for at := range before {
		if _, kept := after[at]; !kept {
			c.host(at.host, at.key, nil, false)
		}
	}
	for at, b := range after {
		was, had := before[at]
		if !had || !was.Equal(b) {
			c.host(at.host, at.key, &b, desired.IsNeededBeforeMuxes(was, b))
		}
	}
	c.endpoints = changedEndpoints(old, s, vips)
	c.snat = changedSNAT(old, s, delta)
	c.lists = changedLists(old, s, vips, delta)
	for name := range delta.Nodes {
		if old.Nodes.At(name).Role == model.RoleMux || s.Nodes.At(name).Role == model.RoleMux {
			c.sources = c.sources || !slices.Equal(old.Muxes(), s.Muxes())
		}
	}
	return c
}

func (c changes) host(host string, key model.HostBackendKey, b *model.HostBackend, adds bool) {
	change, there := c.hosts[host]
	if !there {
		change.backends = map[model.HostBackendKey]*model.HostBackend{}
	}
	change.backends[key] = b
	change.adds = change.adds || adds
	c.hosts[host] = change
}

// touched are the names of the VIPs whose nodes may have to hear of what was written.
func touched(old, s *store.State, delta store.Delta) map[string]bool {
	vips := map[string]bool{}
	for name := range delta.VIPs {
		vips[name] = true
	}
	for key := range delta.Tables {
		for _, state := range []*store.State{old, s} {
			if vip, there := state.VIPAt(key.VIP); there {
				vips[vip.Name] = true
			}
		}
	}
	for name := range delta.PrefixLists { // hosts have of them what concerns Fastpath
		for vip := range s.VIPsUsingList(name) {
			vips[vip.Name] = vips[vip.Name] || vip.Fastpath != nil
		}
	}
	maps.DeleteFunc(vips, func(_ string, is bool) bool { return !is })
	for name := range delta.Nodes {
		if slices.Equal(old.Nodes.At(name).Addresses, s.Nodes.At(name).Addresses) {
			continue
		}
		for vip := range s.VIPsOn(name) {
			vips[vip.Name] = true
		}
	}
	return vips
}

// hostedBackend names a backend of a host.
type hostedBackend struct {
	host string
	key  model.HostBackendKey
}

// placed are backends of VIPs as their hosts run them.
type placed map[hostedBackend]model.HostBackend

// gather adds the backends of a VIP, if it is there.
func (p placed) gather(s *store.State, name string) {
	if vip, there := s.VIPs.Get(name); there {
		s.EachBackend(vip, func(host string, b model.HostBackend) { p[hostedBackend{host, b.Key()}] = b })
	}
}

// changedEndpoints are those of the VIPs that muxes have to hear of.
func changedEndpoints(old, s *store.State, vips map[string]bool) []model.EndpointKey {
	keys := map[model.EndpointKey]bool{}
	for name := range vips {
		for _, state := range []*store.State{old, s} {
			vip := state.VIPs.At(name)
			for _, e := range vip.Endpoints {
				keys[desired.Key(vip, e)] = true
			}
		}
	}
	var changed []model.EndpointKey
	for key := range keys {
		was, had := muxEndpoint(old, key)
		is, has := muxEndpoint(s, key)
		if had != has || !was.Equal(is) {
			changed = append(changed, key)
		}
	}
	return changed
}

// muxEndpoint is an endpoint as muxes run it, if there is one of that key.
func muxEndpoint(s *store.State, key model.EndpointKey) (model.MuxEndpoint, bool) {
	vip, e, there := s.EndpointAt(key)
	if !there {
		return model.MuxEndpoint{}, false
	}
	return s.MuxEndpoint(vip, e), true
}
