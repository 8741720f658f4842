package snatalloc

import (
	"net/netip"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/store"
)

// changedVIPs are the addresses of the VIPs whose allocations, or what decides on them, changed since last, an earlier
// State; all that have to do with source NAT if there is none, and when a restore takes a step. It costs what changed.
func changedVIPs(last, s *store.State) map[netip.Addr]bool {
	if last == nil {
		return snatVIPs(s)
	}
	delta, changed := s.DeltaSince(last), map[netip.Addr]bool{}
	if last.Restored != s.Restored {
		changed = snatVIPs(s)
	}
	for key := range delta.Ports {
		changed[key.VIP] = true
	}
	for name := range delta.VIPs {
		changed[last.VIPs.At(name).Address], changed[s.VIPs.At(name).Address] = true, true
	}
	delete(changed, netip.Addr{}) // of a VIP that was not there, or is not
	for host := range delta.Nodes {
		if desired.HostHasPortBlocks(last.State, host) == desired.HostHasPortBlocks(s.State, host) {
			continue
		}
		for vip := range s.VIPsOn(host) {
			changed[vip.Address] = true
		}
	}
	return changed
}

// snatVIPs are the addresses of all VIPs with clients, and of those that are gone and left allocations.
func snatVIPs(s *store.State) map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	for key := range s.Ports.Keys() {
		vips[key.VIP] = true
	}
	for key := range s.Ports.Clients() {
		vips[key.VIP] = true
	}
	return vips
}
