package secret

import (
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// Needs is what a host needs the pool's secrets for, and which of them it has been given on this stream. Its
// owner is the goroutine that calls Next.
type Needs struct {
	backends map[model.HostBackendKey]backendNeeds
	syn      int // backends whose endpoint answers SYNs with cookies
	fastpath int // backends whose connections may leave the muxes

	leaves  bool // a workload leaves as a VIP, so it may be the client of a Fastpath
	counted bool // leaves is current

	hashed  bool // the host has been given the hash key
	keys    []model.FastpathKey
	secrets []model.SYNSecret
}

// backendNeeds is what one backend needs.
type backendNeeds struct{ syn, fastpath bool }

// addBackend notes a backend that the host has from now on.
func (n *Needs) addBackend(b model.HostBackend) {
	n.remove(b.Key())
	need := backendNeeds{
		syn: b.SYNCookies != model.SYNCookiesNever && b.Endpoint.Protocol == model.TCP, fastpath: b.Fastpath,
	}
	if n.backends == nil {
		n.backends = map[model.HostBackendKey]backendNeeds{}
	}
	n.backends[b.Key()] = need
	n.count(need, 1)
}

// remove notes a backend that the host has no more.
func (n *Needs) remove(key model.HostBackendKey) {
	n.count(n.backends[key], -1)
	delete(n.backends, key)
}

func (n *Needs) count(need backendNeeds, by int) {
	if need.syn {
		n.syn += by
	}
	if need.fastpath {
		n.fastpath += by
	}
}

// follow notes what an update changes of the host's backends.
func (n *Needs) follow(update wire.HostUpdate) {
	if update.Snapshot {
		*n = Needs{keys: n.keys, secrets: n.secrets}
	}
	for _, key := range update.Removed {
		n.remove(key)
	}
	for _, b := range update.Backends {
		n.addBackend(b)
	}
	if len(update.Backends)+len(update.Removed)+len(update.SNAT)+len(update.SNATRemoved) > 0 {
		n.counted = false
	}
}

// AddTo writes those secrets into an update that the host needs: a host that is compromised has no others.
//
//   - The hash key tells which sessions are in buckets that a backend is draining, and where packets belong that
//     switches bring. It is given once on a stream, with the first such bucket or VIP.
//   - Secrets of SYN cookies are for hosts with a backend whose endpoint may answer SYNs.
//   - Keys of Fastpath are for hosts with a backend whose connections may leave the muxes, and for those with a
//     workload that leaves as a VIP.
//
// Of secrets that the host needed and needs no more it is told of no new ones; those that it has are valid to their
// end, so that it can say of connections that they are gone.
func (n *Needs) AddTo(update *wire.HostUpdate, s *store.State, host string) {
	n.follow(*update)
	drains := func(b model.HostBackend) bool { return len(b.Draining) > 0 }
	if !n.hashed && (len(update.Steering.Changed) > 0 || slices.ContainsFunc(update.Backends, drains)) {
		update.HashKey, n.hashed = s.HashKey, true
	}
	n.secrets = given(s.SYNSecrets, n.secrets, n.syn > 0, func(secret model.SYNSecret) uint32 { return secret.ID })
	fastpath := len(s.FastpathKeys) > 0 && (n.fastpath > 0 || n.hasSNATClients(s, host))
	n.keys = given(s.FastpathKeys, n.keys, fastpath, func(key model.FastpathKey) uint32 { return key.ID })
	update.SYNSecrets, update.Keys = n.secrets, n.keys
}

// hasSNATClients says whether a workload of the host leaves as a VIP.
func (n *Needs) hasSNATClients(s *store.State, host string) bool {
	if !n.counted {
		n.leaves, n.counted = false, true
		for range s.SNATClientsOn(host) {
			n.leaves = true
			break
		}
	}
	return n.leaves
}

// given are the secrets that a host has: all that are valid if it needs them, else those of before that still are.
func given[S any](valid, before []S, needed bool, id func(S) uint32) []S {
	if needed {
		return valid
	}
	var kept []S
	for _, secret := range valid {
		if slices.ContainsFunc(before, func(b S) bool { return id(b) == id(secret) }) {
			kept = append(kept, secret)
		}
	}
	return kept
}
