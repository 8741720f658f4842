package secret

import (
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// Needs is what a host needs the pool's secrets for, and which of them it has been given on this stream. Its
// owner is the goroutine that calls Next.
type Needs struct {
	syn      need // a backend's endpoint answers SYNs with cookies
	fastpath need // the host may be the server or the client of a Fastpath

	hashed  bool // the host has been given the hash key
	keys    []model.FastpathKey
	secrets []model.SYNSecret
}

// need is whether a host needs something. It is found when it is asked for, and kept while the host's own backends and
// workloads do not change.
type need struct{ is, known bool }

func (n *need) find(in func(s desired.State, host string) bool, s *store.State, host string) bool {
	if !n.known {
		n.is, n.known = in(s.State, host), true
	}
	return n.is
}

// follow forgets what an update may change of a host's needs.
func (n *Needs) follow(update *wire.HostUpdate) {
	if update.Snapshot {
		*n = Needs{keys: n.keys, secrets: n.secrets}
	}
	if update.SNATSnapshot || len(update.Backends)+len(update.Removed)+len(update.SNAT)+len(update.SNATRemoved) > 0 {
		n.syn.known, n.fastpath.known = false, false
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
	n.follow(update)
	drains := func(b model.HostBackend) bool { return len(b.Draining) > 0 }
	if !n.hashed && (len(update.Steering.Changed) > 0 || slices.ContainsFunc(update.Backends, drains)) {
		update.HashKey, n.hashed = s.HashKey, true
	}
	syn := len(s.SYNSecrets) > 0 && n.syn.find(nodeconfig.AnswersSYNs, s, host)
	fastpath := len(s.FastpathKeys) > 0 && n.fastpath.find(nodeconfig.HasFastpath, s, host)
	n.secrets = given(s.SYNSecrets, n.secrets, syn, func(secret model.SYNSecret) uint32 { return secret.ID })
	n.keys = given(s.FastpathKeys, n.keys, fastpath, func(key model.FastpathKey) uint32 { return key.ID })
	update.SYNSecrets, update.Keys = n.secrets, n.keys
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
