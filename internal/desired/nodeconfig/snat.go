package nodeconfig

import (
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// MuxSNAT is what the workload or the port block of a key has, as muxes run it, if there is such.
func MuxSNAT(s desired.State, key model.SNATKey) (model.MuxSNAT, bool) {
	vip, w, there := s.SNATClientWithVIP(key)
	if !there || key.IsBlock() && len(s.Ports.At(key).Ranges) == 0 {
		return model.MuxSNAT{}, false
	}
	return model.MuxSNAT{
		Key: key, Tunnel: w.TunnelAddress(), Ranges: s.Ports.At(key).Ranges, Tenant: vip.Tenant, Ping: vip.Ping != model.PingIgnore,
	}, true
}

// HostSNAT is what the workload of a key has, as its host runs it, and which host that is, if there is such a
// workload. A host is told of its port block only if its agent knows what that is.
func HostSNAT(s desired.State, key model.SNATKey) (host string, snat model.HostSNAT, there bool) {
	vip, w, there := s.SNATClientWithVIP(key)
	if !there || key.IsBlock() && !desired.HasPortBlock(s, key) {
		return "", model.HostSNAT{}, false
	}
	h := s.Ports.At(key)
	of := model.HostSNAT{
		Key: key, Tunnel: w.TunnelAddress(), Ranges: h.Ranges, Reclaim: h.Reclaim,
		Filtering: vip.SNAT.Filtering, Exhausted: vip.SNAT.Exhausted, IdleTimeout: vip.SNAT.IdleTimeout,
		MaxPorts: vip.SNAT.MaxPorts, Tenant: vip.Tenant,
	}
	if !key.IsBlock() {
		of.Except, of.KeepPorts = vip.SNAT.Except, vip.SNAT.Preallocate
	}
	return w.Host, of, true
}
