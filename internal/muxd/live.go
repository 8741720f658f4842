package muxd

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

func (h owner) vip() netip.Addr {
	if h.endpoint.VIP.IsValid() {
		return h.endpoint.VIP
	}
	return h.workload.VIP
}

// live are the live endpoints and workloads, counted by VIP, so that a change of one does not scan all.
type live struct {
	holders   map[owner]bool
	ofVIP     map[netip.Addr]int
	endpoints int
}

// newLive makes the set of adopted endpoints and VIPs. A VIP without endpoints has source NAT; the first snapshot names its
// workloads.
func newLive(keys []model.EndpointKey, vips []netip.Addr) *live {
	l := &live{holders: map[owner]bool{}, ofVIP: map[netip.Addr]int{}}
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

func (l *live) add(h owner) {
	if l.holders[h] {
		return
	}
	l.holders[h] = true
	l.ofVIP[h.vip()]++
	if h.endpoint.VIP.IsValid() {
		l.endpoints++
	}
}

func (l *live) remove(h owner) {
	if !l.holders[h] {
		return
	}
	delete(l.holders, h)
	if l.ofVIP[h.vip()]--; l.ofVIP[h.vip()] == 0 {
		delete(l.ofVIP, h.vip())
	}
	if h.endpoint.VIP.IsValid() {
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
		for _, h := range removed(update) {
			if l.holders[h] {
				left[h.vip()]++
			}
		}
		maps.DeleteFunc(left, func(vip netip.Addr, n int) bool { return n < l.ofVIP[vip] })
		for vip := range left {
			gone[vip] = true
		}
	}
	for _, h := range put(update) {
		delete(gone, h.vip())
	}
	return gone
}

// apply applies an update, and says whether the set of VIPs has changed.
func (l *live) apply(update wire.MuxUpdate) bool {
	if update.Snapshot {
		next := newLive(nil, nil)
		for _, h := range put(update) {
			next.add(h)
		}
		same := maps.Equal(l.vips(), next.vips())
		*l = *next
		return !same
	}
	changed := len(l.leaving(update)) > 0
	for _, h := range put(update) {
		changed = changed || l.ofVIP[h.vip()] == 0
	}
	for _, h := range removed(update) {
		l.remove(h)
	}
	for _, h := range put(update) {
		l.add(h)
	}
	return changed
}
