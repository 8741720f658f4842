package overlay

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/wire"
)

// wanted is what the manager has told of virtual networks.
type wanted struct {
	number         uint32       // of the host
	own, addresses []netip.Addr // of the host, and of the muxes
	local          []netip.Prefix
	keys           []fbt.Key
	attachments    map[vnet.AttachmentKey]vnet.Attachment
	hosts          map[uint32]vnet.NetworkHost
	networks       map[uint32]vnet.HostNetwork // by VNI
}

// note takes an update, and says whether it has changed anything.
func (w *wanted) note(u wire.HostNetworks, snapshot bool) (changed bool) {
	was := *w
	w.attachments = merged(w.attachments, u.Attachments, u.AttachmentsRemoved, snapshot, func(a vnet.Attachment) vnet.AttachmentKey { return a.AttachmentKey })
	w.hosts = merged(w.hosts, u.Hosts, u.HostsRemoved, snapshot, func(h vnet.NetworkHost) uint32 { return h.Number })
	w.networks = merged(w.networks, u.Networks, u.NetworksRemoved, snapshot, func(n vnet.HostNetwork) uint32 { return n.VNI })
	// A host that has nothing to do with networks any more keeps its rows until muxes have forgotten them, and needs the rest
	// as long.
	if u.Number != 0 || !w.any() {
		w.number, w.own, w.addresses, w.local, w.keys = u.Number, u.Own, u.Addresses, u.LocalPrefixes, u.Keys
	}
	return !reflect.DeepEqual(was, *w)
}

// merged is rows with some changed and some removed; in a snapshot none stays that is not told.
func merged[K comparable, V any](rows map[K]V, changed []V, removed []K, snapshot bool, key func(V) K) map[K]V {
	if len(changed)+len(removed) == 0 && !snapshot && rows != nil {
		return rows
	}
	next := map[K]V{}
	if !snapshot {
		maps.Copy(next, rows)
	}
	for _, k := range removed {
		delete(next, k)
	}
	for _, v := range changed {
		next[key(v)] = v
	}
	return next
}

// with is w and what it has no more of an earlier state.
func (w *wanted) with(earlier wanted) wanted {
	all := *w
	all.attachments, all.hosts, all.networks = union(w.attachments, earlier.attachments), union(w.hosts, earlier.hosts), union(w.networks, earlier.networks)
	return all
}

// union is rows, and those of others that are not among them.
func union[K comparable, V any](rows, others map[K]V) map[K]V {
	all := maps.Clone(others)
	if all == nil {
		all = map[K]V{}
	}
	maps.Copy(all, rows)
	return all
}

// lacks says whether an attachment of an earlier state is gone.
func (w *wanted) lacks(earlier wanted) bool {
	for key := range earlier.attachments {
		if _, there := w.attachments[key]; !there {
			return true
		}
	}
	return false
}

// any says whether the host has to do with a network.
func (w *wanted) any() bool { return len(w.attachments) > 0 }

// localPrefixes are those of both families; not valid: none.
func (w *wanted) localPrefixes() (v4, v6 netip.Prefix) {
	for _, p := range w.local {
		if p.Addr().Is4() {
			v4 = p
		} else {
			v6 = p
		}
	}
	return v4, v6
}

// services are the VIPs' own addresses.
func (w *wanted) services() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, a := range w.attachments {
		all[a.Service] = true
	}
	return all
}

// tunnels are all addresses of this host that VXLAN comes to, in order.
func (w *wanted) tunnels() []netip.Addr {
	all := slices.Concat(w.own, w.hosts[w.number].Tunnels)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
