package placement

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

// mostPutOut bounds the VIPs that are out of switches because of one host: a host that lies has no more of them served by
// muxes. What it does not steer beyond that stays in switches, as if it dropped those packets.
const mostPutOut = 4

// refusals are what hosts say of VIPs that they do not steer. A host is heard of VIPs alone that it serves.
type refusals struct {
	said   *reported.Part[*weirv1.SteeringRefusal]
	looked time.Time
	of     map[netip.Addr]map[string]string // by VIP and host, why
	named  map[string][]netip.Addr          // by host, its VIPs in of
	more   map[string]bool                  // hosts that do not name all
	heard  map[string]bool                  // hosts that were read in this step
	putOut map[string]map[netip.Addr]bool   // by host, VIPs that are out of switches for it
}

func newRefusals(source *reported.Source) *refusals {
	return &refusals{
		said: reported.New(source, "steeringRefused", func(d *weirv1.NodeStatus) []*weirv1.SteeringRefusal {
			list := d.GetHost().GetSteeringRefused()
			if list = list[:min(len(list), steering.MaxRefusals)]; d.GetHost().GetSteeringRefusedMore() {
				list = append(slices.Clone(list), nil)
			}
			return list
		}),
		heard: map[string]bool{}, of: map[netip.Addr]map[string]string{}, named: map[string][]netip.Addr{}, more: map[string]bool{}, putOut: map[string]map[netip.Addr]bool{},
	}
}

// look reads what hosts say now, if some time has passed, and adds VIPs of which they say something else than before.
func (r *refusals) look(s *store.State, now time.Time, vips map[netip.Addr]bool) {
	if since := now.Sub(r.looked); since >= 0 && since < lookInterval {
		return
	}
	r.looked = now
	for node := range s.Nodes.Values() {
		if s.Placements.Len()+len(r.named) == 0 {
			break // no switch serves a VIP, as in most clusters
		}
		if node.Role == model.RoleHost {
			for _, vip := range r.read(s, node.Name, now) {
				vips[vip] = true
			}
		}
	}
	for host := range r.named {
		if !s.Nodes.Has(host) {
			r.read(s, host, now)
		}
	}
	r.said.Forget(s)
}

// read reads what a host says, if it was not read in this step, and returns the VIPs of which it said something else before.
func (r *refusals) read(s *store.State, host string, now time.Time) (changed []netip.Addr) {
	if r.heard[host] {
		return nil
	}
	r.heard[host] = true
	var said []*weirv1.SteeringRefusal
	if s.Streams.At(host) {
		said = r.said.Of(s, host, now)
	}
	before := r.named[host]
	if r.more[host] = slices.Contains(said, nil); !r.more[host] {
		delete(r.more, host)
	}
	if len(said)+len(before) == 0 {
		return nil
	}
	var named []netip.Addr
	for _, refusal := range said {
		address, err := netip.ParseAddr(refusal.GetVip())
		if vip, there := s.VIPAt(address); err != nil || !there || !s.Serves(host, vip.Name) || !s.Placements.Has(address) {
			continue
		}
		if named = append(named, address); r.of[address] == nil {
			r.of[address] = map[string]string{}
		}
		r.of[address][host] = fmt.Sprintf("host %s does not steer it: %s", host, cmp.Or(events.CutMessage(refusal.GetReason()), "it does not say why"))
		if !slices.Contains(before, address) {
			changed = append(changed, address)
		}
	}
	for _, address := range before {
		if slices.Contains(named, address) {
			continue
		}
		changed = append(changed, address)
		if delete(r.of[address], host); len(r.of[address]) == 0 {
			delete(r.of, address)
		}
	}
	if r.named[host] = named; len(named) == 0 {
		delete(r.named, host)
	}
	return changed
}

// recount counts the VIPs that are out of switches by the hosts for which they are. One that comes back counts until a switch
// serves it, though its place names the host no more: a host that changes its mind has no others leave meanwhile.
func (r *refusals) recount(s *store.State) {
	before := r.putOut
	r.putOut = map[string]map[netip.Addr]bool{}
	for vip, state := range s.Placements.All() {
		for _, place := range state.Places {
			if place.Host != "" && place.Attempts > 0 {
				r.put(place.Host, vip)
			}
			if place.Attempts == 0 || !place.Phase.Serves() || place.Phase == placementpolicy.Hardware {
				continue
			}
			for host, vips := range before {
				if vips[vip] {
					r.put(host, vip)
				}
			}
		}
	}
}

func (r *refusals) put(host string, vip netip.Addr) {
	if r.putOut[host] == nil {
		r.putOut[host] = map[netip.Addr]bool{}
	}
	r.putOut[host][vip] = true
}

// mayPutOut says whether a VIP that a switch serves may leave it for a host.
func (r *refusals) mayPutOut(host string, vip netip.Addr) bool {
	if !r.putOut[host][vip] && len(r.putOut[host]) >= mostPutOut {
		return false
	}
	r.put(host, vip)
	return true
}

// unsteered is a host for which a VIP does not go into a switch, or leaves it, and why; empty: none. What is behind a TIP
// stays: the switches that send there leave.
func (w *Watch) unsteered(s *store.State, vip model.VIP, was placementpolicy.Place, now time.Time) (host, why string) {
	switch was.Phase {
	case placementpolicy.Preparing:
		return w.notReady(s, vip, now)
	case placementpolicy.Programming, placementpolicy.Announcing, placementpolicy.Hardware:
	default:
		return "", ""
	}
	if was.TIP.IsValid() {
		return "", ""
	}
	said := w.hosts.of[vip.Address]
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if was.Phase != placementpolicy.Hardware || w.hosts.mayPutOut(name, vip.Address) {
			return name, said[name]
		}
	}
	return "", ""
}

// notReady is a host of the VIP that does not have what it needs to steer it, by its word of this step.
func (w *Watch) notReady(s *store.State, vip model.VIP, now time.Time) (host, why string) {
	_, all := desired.Steering(vip)
	for _, name := range slices.Sorted(all) {
		for _, vip := range w.hosts.read(s, name, now) {
			w.look[vip] = true
		}
		if why := w.hosts.of[vip.Address][name]; why != "" {
			return name, why
		}
		if w.hosts.more[name] {
			return name, fmt.Sprintf("host %s steers fewer VIPs than it is told, and does not name all", name)
		}
		status := s.Status.At(name)
		if newest, _, here := w.Latest(name, status); here {
			status = newest
		}
		if written := s.PlacementWritten.At(vip.Address); s.Streams.At(name) && status.Rejected > status.Generation && status.Generation < written {
			return name, fmt.Sprintf("host %s refuses generation %d: %s", name, status.Rejected, events.CutMessage(status.Reason))
		}
	}
	return "", ""
}
