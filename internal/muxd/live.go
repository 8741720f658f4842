package muxd

import (
	"maps"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// live are the live endpoints, counted by VIP, so that a change of one costs no look at all others.
type live struct {
	endpoints map[model.EndpointKey]bool
	ofVIP     map[netip.Addr]int
}

func newLive(keys []model.EndpointKey) *live {
	l := &live{endpoints: map[model.EndpointKey]bool{}, ofVIP: map[netip.Addr]int{}}
	for _, key := range keys {
		l.add(key)
	}
	return l
}

func (l *live) add(key model.EndpointKey) {
	if !l.endpoints[key] {
		l.endpoints[key] = true
		l.ofVIP[key.VIP]++
	}
}

func (l *live) remove(key model.EndpointKey) {
	if !l.endpoints[key] {
		return
	}
	delete(l.endpoints, key)
	if l.ofVIP[key.VIP]--; l.ofVIP[key.VIP] == 0 {
		delete(l.ofVIP, key.VIP)
	}
}

// vips are those of the endpoints.
func (l *live) vips() map[netip.Addr]bool {
	vips := make(map[netip.Addr]bool, len(l.ofVIP))
	for vip := range l.ofVIP {
		vips[vip] = true
	}
	return vips
}

// leaving are the VIPs that have no endpoint any more after the update.
func (l *live) leaving(update rpc.MuxUpdate) map[netip.Addr]bool {
	gone := map[netip.Addr]bool{}
	if update.Snapshot {
		gone = l.vips()
	} else {
		left := map[netip.Addr]int{}
		for _, key := range update.Removed {
			if l.endpoints[key] {
				left[key.VIP]++
			}
		}
		maps.DeleteFunc(left, func(vip netip.Addr, n int) bool { return n < l.ofVIP[vip] })
		for vip := range left {
			gone[vip] = true
		}
	}
	for _, e := range update.Endpoints {
		delete(gone, e.Key.VIP)
	}
	return gone
}

// apply brings l to the update. It says whether the VIPs are others now.
func (l *live) apply(update rpc.MuxUpdate) bool {
	if update.Snapshot {
		next := newLive(nil)
		for _, e := range update.Endpoints {
			next.add(e.Key)
		}
		same := maps.Equal(l.vips(), next.vips())
		*l = *next
		return !same
	}
	changed := len(l.leaving(update)) > 0
	for _, e := range update.Endpoints {
		changed = changed || l.ofVIP[e.Key.VIP] == 0
	}
	for _, key := range update.Removed {
		l.remove(key)
	}
	for _, e := range update.Endpoints {
		l.add(e.Key)
	}
	return changed
}
