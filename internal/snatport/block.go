package snatport

import (
	"cmp"

	"github.com/weirlb/weir/internal/model"
)

// blocksOf are the port blocks of a VIP: one of each host that has workloads of it, with a tunnel to that host. Of two
// hosts whose names have one key, the one listed first has the block.
func blocksOf(vip model.VIP) map[model.SNATKey]model.SNATWorkload {
	if vip.SNAT == nil || !vip.Address.IsValid() {
		return nil
	}
	blocks := map[model.SNATKey]model.SNATWorkload{}
	keys := map[string]model.SNATKey{} // by host
	for _, w := range vip.SNAT.Workloads {
		key, known := keys[w.Host]
		if !known {
			key = model.BlockKey(vip.Address, w.Host)
			keys[w.Host] = key
		}
		if block, there := blocks[key]; !there || block.Host == w.Host && compareTunnels(w, block) < 0 {
			blocks[key] = w
		}
	}
	for key, w := range blocks {
		blocks[key] = model.SNATWorkload{Address: key.Address, Host: w.Host, Tunnel: w.TunnelAddress()}
	}
	return blocks
}

// compareTunnels orders workloads by how well their tunnels serve their host's block: those that were given before those
// that are the workloads' own addresses, which may move, and then by address, so that the order of the list means nothing.
func compareTunnels(a, b model.SNATWorkload) int {
	switch {
	case a.Tunnel.IsValid() && !b.Tunnel.IsValid():
		return -1
	case !a.Tunnel.IsValid() && b.Tunnel.IsValid():
		return 1
	}
	return cmp.Or(a.TunnelAddress().Compare(b.TunnelAddress()), a.Address.Compare(b.Address))
}

// Limits are how many ranges each workload and each port block of a VIP may have: of a workload by maxPorts, of a block
// so many that it and what its workloads have of their own are not more than maxPorts of each of these.
func (a Allocations) Limits(vip model.VIP) map[model.SNATKey]int {
	limits := map[model.SNATKey]int{}
	if vip.SNAT == nil {
		return limits
	}
	most := int(vip.SNAT.MaxPorts) / model.RangePorts
	blocks := map[string]model.SNATKey{}
	for key, w := range blocksOf(vip) {
		blocks[w.Host], limits[key] = key, 0
	}
	for _, w := range vip.SNAT.Workloads {
		key := model.SNATKey{VIP: vip.Address, Address: w.Address}
		limits[key] = most
		if block, has := blocks[w.Host]; has {
			limits[block] += most - len(a.At(key).Ranges)
		}
	}
	return limits
}

// Limit is how many ranges the workload or the port block of a key may have. A workload of a host whose block has ranges
// may have what these leave it, so that whatever a host asks for it has no more than its workloads together may.
func (a Allocations) Limit(vip model.VIP, key model.SNATKey) int {
	w, there := a.clients.Get(key)
	if !there || vip.SNAT == nil {
		return 0
	}
	if key.IsBlock() {
		return a.blockLimit(vip, w.Host)
	}
	most := int(vip.SNAT.MaxPorts) / model.RangePorts
	block := a.At(model.BlockKey(vip.Address, w.Host))
	if block.Host != w.Host || len(block.Ranges) == 0 {
		return most
	}
	return min(most, len(a.At(key).Ranges)+max(0, a.blockLimit(vip, w.Host)-len(block.Ranges)))
}

// blockLimit is maxPorts of each workload of a host, less what they have of their own.
func (a Allocations) blockLimit(vip model.VIP, host string) (limit int) {
	for _, w := range vip.SNAT.Workloads {
		if w.Host == host {
			limit += int(vip.SNAT.MaxPorts)/model.RangePorts - len(a.At(model.SNATKey{VIP: vip.Address, Address: w.Address}).Ranges)
		}
	}
	return limit
}

// HostCount is how many hosts have workloads of a VIP.
func HostCount(vip model.VIP) int {
	hosts := map[string]bool{}
	if vip.SNAT != nil {
		for _, w := range vip.SNAT.Workloads {
			hosts[w.Host] = true
		}
	}
	return len(hosts)
}
