package forwarding

import (
	"maps"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// owner is what keeps a VIP live: an endpoint, or a workload with source NAT.
type owner struct {
	endpoint model.EndpointKey
	workload model.SNATKey
}

func (o owner) vip() netip.Addr {
	if o.endpoint.VIP.IsValid() {
		return o.endpoint.VIP
	}
	return o.workload.VIP
}

// live are the live endpoints and workloads, counted by VIP, so that a change of one does not scan all.
type live struct {
	owners    map[owner]bool
	ofVIP     map[netip.Addr]int
	endpoints int
}

// newLive makes the set of adopted endpoints and VIPs. A VIP without endpoints has source NAT; the first snapshot names
// its workloads.
func newLive(keys []model.EndpointKey, vips []netip.Addr) *live {
	l := &live{owners: map[owner]bool{}, ofVIP: map[netip.Addr]int{}}
	for _, key := range keys {
		l.add(owner{endpoint: key})
	}
	for _, vip := range vips {
		if l.ofVIP[vip] == 0 {
			l.add(owner{workload: model.SNATKey{VIP: vip}})
		}
	}
	return l
}

func (l *live) add(o owner) {
	if l.owners[o] {
		return
	}
	l.owners[o] = true
	l.ofVIP[o.vip()]++
	if o.endpoint.VIP.IsValid() {
		l.endpoints++
	}
}

func (l *live) remove(o owner) {
	if !l.owners[o] {
		return
	}
	delete(l.owners, o)
	if l.ofVIP[o.vip()]--; l.ofVIP[o.vip()] == 0 {
		delete(l.ofVIP, o.vip())
	}
	if o.endpoint.VIP.IsValid() {
		l.endpoints--
	}
}

// vips are those of the endpoints and workloads.
func (l *live) vips() map[netip.Addr]bool {
	vips := make(map[netip.Addr]bool, len(l.ofVIP))
	for vip := range l.ofVIP {
		vips[vip] = true
	}
	return vips
}

func put(update wire.MuxUpdate) (all []owner) {
	for _, e := range update.Endpoints {
		all = append(all, owner{endpoint: e.Key})
	}
	for _, s := range update.SNAT {
		all = append(all, owner{workload: s.Key})
	}
	return all
}

func removed(update wire.MuxUpdate) (all []owner) {
	for _, key := range update.Removed {
		all = append(all, owner{endpoint: key})
	}
	for _, key := range update.SNATRemoved {
		all = append(all, owner{workload: key})
	}
	return all
}

// leaving are the VIPs without any owner after the update.
func (l *live) leaving(update wire.MuxUpdate) map[netip.Addr]bool {
	gone := map[netip.Addr]bool{}
	if update.Snapshot {
		gone = l.vips()
	} else {
		left := map[netip.Addr]int{}
		for _, o := range removed(update) {
			if l.owners[o] {
				left[o.vip()]++
			}
		}
		maps.DeleteFunc(left, func(vip netip.Addr, n int) bool { return n < l.ofVIP[vip] })
		for vip := range left {
			gone[vip] = true
		}
	}
	for _, o := range put(update) {
		delete(gone, o.vip())
	}
	return gone
}

// apply applies an update, and says whether the set of VIPs has changed.
func (l *live) apply(update wire.MuxUpdate) bool {
	if update.Snapshot {
		next := newLive(nil, nil)
		for _, o := range put(update) {
			next.add(o)
		}
		same := maps.Equal(l.vips(), next.vips())
		*l = *next
		return !same
	}
	changed := len(l.leaving(update)) > 0
	for _, o := range put(update) {
		changed = changed || l.ofVIP[o.vip()] == 0
	}
	for _, o := range removed(update) {
		l.remove(o)
	}
	for _, o := range put(update) {
		l.add(o)
	}
	return changed
}
