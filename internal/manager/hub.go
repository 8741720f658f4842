package manager

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// hostsGrace is how long muxes wait for a host to have what they are about to use of it. A host that
// took longer is not waited for again until it is current.
const hostsGrace = time.Second

// view is what streams send of one generation. It is computed once and read by all.
type view struct {
	*store.State
	endpoints map[model.EndpointKey]*model.MuxEndpoint // the same pointer: nothing changed
	hosts     map[string]desired.HostBackends
	muxes     []netip.Prefix
	pool      []model.PoolMember // only where muxes read it
}

// newView makes the view of s. It takes over from last, which may be nil, the endpoints that did not change.
func newView(s *store.State, last *view) *view {
	v := &view{
		State: s, hosts: backendsByHost(s), muxes: s.Muxes(),
		endpoints: make(map[model.EndpointKey]*model.MuxEndpoint, s.Tables.Len()),
	}
	for _, vip := range s.VIPs.All() {
		for _, e := range vip.Endpoints {
			key := desired.Key(vip, e)
			if last.has(s, key, vip.Name) {
				v.endpoints[key] = last.endpoints[key]
				continue
			}
			endpoint := desired.MuxEndpoint(vip, e, s.Tables.At(key))
			v.endpoints[key] = &endpoint
			if last != nil && last.endpoints[key] != nil && reflect.DeepEqual(*last.endpoints[key], endpoint) {
				v.endpoints[key] = last.endpoints[key]
			}
		}
	}
	return v
}

func backendsByHost(s *store.State) map[string]desired.HostBackends {
	hosts := map[string]desired.HostBackends{}
	for vip := range s.VIPs.Values() {
		for host, backends := range s.BackendsOf(vip) {
			if hosts[host] == nil {
				hosts[host] = desired.HostBackends{}
			}
			maps.Copy(hosts[host], backends)
		}
	}
	return hosts
}

// has says whether the view's endpoint is that of s, where it is one of the VIP.
func (v *view) has(s *store.State, key model.EndpointKey, vip string) bool {
	if v == nil {
		return false
	}
	_, ok := v.endpoints[key]
	return ok && v.Written.At(vip) == s.Written.At(vip) && v.Computed.At(key) == s.Computed.At(key)
}

// members are the muxes whose stream is open, by name.
func members(s *store.State) []model.PoolMember {
	var pool []model.PoolMember
	for node := range s.MuxNodes() {
		if s.Streams.At(node.Name) {
			pool = append(pool, model.PoolMember{Name: node.Name, Addresses: node.Addresses, Prefixes: node.Prefixes})
		}
	}
	return pool
}

// with returns v, or what v is with another pool: that muxes are told at once.
func (v *view) with(pool []model.PoolMember) *view {
	if v == nil || reflect.DeepEqual(v.pool, pool) {
		return v
	}
	next := *v
	next.pool = pool
	return &next
}

// hub holds the views that streams send: the newest for hosts, and for muxes the newest one that the
// hosts are ready for.
type hub struct {
	store *store.Store
	grace time.Duration

	mu       sync.Mutex
	forHosts *view
	forMuxes *view         // nil until the hosts were ready once
	changed  chan struct{} // closed when a view is replaced
}

func newHub(s *store.Store) *hub {
	return &hub{store: s, grace: hostsGrace, changed: make(chan struct{})}
}

// hosts returns the newest view and a channel that is closed when there may be a newer one.
func (h *hub) hosts() (*view, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.forHosts, h.changed
}

// muxes returns the newest view for muxes, nil before the first, and a channel as hosts does.
func (h *hub) muxes() (*view, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.forMuxes, h.changed
}

func (h *hub) publish(forHosts, forMuxes *view) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.forHosts == forHosts && h.forMuxes == forMuxes {
		return
	}
	h.forHosts, h.forMuxes = forHosts, forMuxes
	close(h.changed)
	h.changed = make(chan struct{})
}

// run makes a view of each generation until ctx ends.
func (h *hub) run(ctx context.Context) error {
	var newest, ready, taken *view
	gate := gate{grace: h.grace}
	for {
		state, changed := h.store.Watch()
		if newest == nil || newest.Generation != state.Generation {
			newest = newView(state, newest)
		}
		wait := gate.wait(state, time.Now())
		if wait == 0 && taken != newest {
			ready, taken = newest, newest
		}
		ready = ready.with(members(state))
		h.publish(newest, ready)
		var expired <-chan time.Time
		if wait > 0 {
			expired = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-expired:
		}
	}
}

// gate decides when muxes may have a generation.
type gate struct {
	grace time.Duration
	since map[string]time.Time // when each host that lags was first seen to
}

// wait says how long to wait at most, from now on, for the hosts: 0 if all connected ones have what
// was last added, or had the time for it.
func (g *gate) wait(s *store.State, now time.Time) time.Duration {
	since := map[string]time.Time{}
	var longest time.Duration
	for name := range s.Streams.All() {
		status := s.Status.At(name)
		current := max(status.Generation, status.Rejected) >= s.HostsGeneration
		if s.Nodes.At(name).Role != model.RoleHost || current {
			continue
		}
		first, lagging := g.since[name]
		if !lagging {
			first = now
		}
		since[name] = first
		longest = max(longest, g.grace-now.Sub(first))
	}
	g.since = since
	return longest
}
