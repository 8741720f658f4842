package publish

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// networkRelease holds what goes of hosts' virtual networks back until all healthy muxes have acknowledged that it is
// gone: a mux that sends to a host which knows no attachment or client any more loses segments.
type networkRelease map[*HostFeed]model.Generation // feeds that have something that goes, by the generation that muxes must have

// confirm has the feeds send what went up to a generation that all healthy muxes have acknowledged.
func (r networkRelease) confirm(s *store.State) {
	for f, generation := range r {
		if s != nil && s.Generation >= generation {
			delete(r, f)
			f.networksDue, f.dirty = true, true
			f.wake.Set()
		}
	}
}

// sentNetworks are the virtual networks of a host as they were sent on a stream. Its owner is the goroutine that calls Next.
type sentNetworks struct {
	attachments sentRows[vnet.AttachmentKey, vnet.Attachment]
	hosts       sentRows[uint32, vnet.NetworkHost]
	networks    sentRows[uint32, vnet.HostNetwork]
	now         wire.HostNetworks // what comes with each update
	isServer    bool
}

// addTo writes into an update what a State has of the host's networks and was not sent. Rows that go are kept until muxes
// have confirmed a generation without them; leaving is the first one that they must confirm, 0: nothing goes.
func (n *sentNetworks) addTo(update *wire.HostUpdate, s *store.State, host string, due bool, confirmed model.Generation) (leaving model.Generation) {
	if update.Snapshot {
		*n = sentNetworks{}
	}
	var want nodeconfig.Networks
	if due {
		want = nodeconfig.NetworksOf(s.State, host)
		n.now, n.isServer = wire.HostNetworks{Number: want.Number, Own: want.Own}, want.IsServer
	}
	update.Networks = n.now
	if n.now.Number != 0 {
		update.Networks.Addresses, update.Networks.LocalPrefixes = s.Networks.Overlay.Addresses, s.Networks.Overlay.LocalPrefixes
		if n.isServer { // a host that is compromised has no key but its own
			update.Networks.Keys = fbt.HostKeys(s.FBTMasters, host)
		}
	}
	if !due {
		return 0
	}
	u := &update.Networks
	u.Attachments, u.AttachmentsRemoved = n.attachments.next(want.Attachments, s.Generation, confirmed)
	u.Hosts, u.HostsRemoved = n.hosts.next(want.Hosts, s.Generation, confirmed)
	u.Networks, u.NetworksRemoved = n.networks.next(want.Networks, s.Generation, confirmed)
	slices.SortFunc(u.Attachments, func(a, b vnet.Attachment) int { return a.Compare(b.AttachmentKey) })
	slices.SortFunc(u.AttachmentsRemoved, vnet.AttachmentKey.Compare)
	slices.SortFunc(u.Hosts, func(a, b vnet.NetworkHost) int { return cmp.Compare(a.Number, b.Number) })
	slices.Sort(u.HostsRemoved)
	slices.SortFunc(u.Networks, func(a, b vnet.HostNetwork) int { return cmp.Compare(a.VNI, b.VNI) })
	slices.Sort(u.NetworksRemoved)
	return earliest(n.attachments.earliest(), n.hosts.earliest(), n.networks.earliest())
}

// sentRows are rows that a host has.
type sentRows[K comparable, V interface{ Equal(V) bool }] struct {
	sent    map[K]V
	leaving map[K]model.Generation // those that are gone since a generation
}

// next returns what is to be sent so that the host has the rows of a generation.
func (r *sentRows[K, V]) next(want map[K]V, at, confirmed model.Generation) (changed []V, removed []K) {
	if r.sent == nil {
		r.sent, r.leaving = map[K]V{}, map[K]model.Generation{}
	}
	for key, is := range want {
		delete(r.leaving, key)
		if was, had := r.sent[key]; !had || !was.Equal(is) {
			r.sent[key] = is
			changed = append(changed, is)
		}
	}
	for key := range r.sent {
		if _, kept := want[key]; kept {
			continue
		}
		since, known := r.leaving[key]
		if !known {
			since = at
			r.leaving[key] = since
		}
		if since <= confirmed {
			delete(r.sent, key)
			delete(r.leaving, key)
			removed = append(removed, key)
		}
	}
	return changed, removed
}

// earliest is the first generation that muxes must confirm; 0: none.
func (r *sentRows[K, V]) earliest() model.Generation {
	return earliest(slices.Collect(maps.Values(r.leaving))...)
}

// earliest is the least that is not 0.
func earliest(generations ...model.Generation) (least model.Generation) {
	for _, g := range generations {
		if g != 0 && (least == 0 || g < least) {
			least = g
		}
	}
	return least
}
