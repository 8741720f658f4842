package desired

import (
	"iter"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// ChangedPorts are what the workloads of the VIP at an address are to have of its ports, where that differs from s. While
// a restore is pending nothing is allocated.
func (s State) ChangedPorts(address netip.Addr, now time.Time) map[model.SNATKey]snatport.Allocation {
	vip, _ := s.VIPAt(address)
	return s.Ports.Changed(address, vip, now, s.Restored.Pending(), func(host string) bool { return HostHasPortBlocks(s, host) })
}

// HostHasPortBlocks says whether the agent of a host serves its workloads from a port block.
func HostHasPortBlocks(s State, host string) bool {
	node, there := s.Nodes.Get(host)
	return there && node.PortBlocks
}

// HasPortBlock says whether a key names the block of a host that serves its workloads from it.
func HasPortBlock(s State, key model.SNATKey) bool {
	w, there := s.Ports.Client(key)
	return there && key.IsBlock() && HostHasPortBlocks(s, w.Host)
}

// AllocatePorts returns what the workload of a key has with up to n ranges more, from start on, and which those are. While
// a restore is pending those are none.
func (s State) AllocatePorts(key model.SNATKey, n int, start model.Range) (snatport.Allocation, []model.Range) {
	if s.Restored.Pending() {
		return s.Ports.At(key), nil
	}
	vip, _ := s.VIPAt(key.VIP)
	return s.Ports.Allocate(vip, key, n, start)
}

// SNATClientWithVIP finds the VIP and the workload that a key names, if there are such.
func (s State) SNATClientWithVIP(key model.SNATKey) (model.VIP, model.SNATWorkload, bool) {
	w, there := s.Ports.Client(key)
	if !there {
		return model.VIP{}, w, false
	}
	vip, there := s.VIPAt(key.VIP)
	return vip, w, there
}

// SNATClientsOn are those of one host.
func (s State) SNATClientsOn(host string) iter.Seq[model.SNATKey] {
	return func(yield func(model.SNATKey) bool) {
		for vip := range s.VIPsOn(host) {
			for key := range snatport.KeysOf(vip) {
				if w, _ := s.Ports.Client(key); w.Host == host && !yield(key) {
					return
				}
			}
		}
	}
}
