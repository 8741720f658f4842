package multipath

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

// owner is a session of a connection that has a token.
type owner struct {
	session bpf.AgentSessionKey
	vipPort uint16
}

// restore puts back tokens of live connections that have no row: the program puts one but once, and there may have been no room, it
// was evicted, or the row was that of an equal token, whose connection is over. owned have theirs. quotas shrink by what it puts.
func (d *Directory) restore(owners map[tokenOf]owner, owned map[bpf.AgentMultipathName]bool, quotas map[netip.Addr]bpf.AgentMultipathQuota, made map[netip.Addr]bpf.AgentMultipathUsage) error {
	const tokens = bpf.AgentMultipathTableMULTIPATH_TOKENS
	clock, err := now()
	if err != nil {
		return err
	}
	for of, owner := range owners {
		vip := bpf.FromAddress(of.vip)
		quota := quotas[vip]
		name, tunnel, found := d.nameOf(of, owner)
		if !found || owned[name] || quota.Limit[tokens] <= made[vip].Made[tokens] {
			continue
		}
		row := bpf.AgentMultipathHolder{
			Tunnel: bpf.ToAddress(tunnel), Until: uint64(clock + multipath.NameLife),
			Client: owner.session.Client, ClientPort: owner.session.ClientPort,
		}
		if err := d.objects.MptcpTokens.Put(name, row); err != nil {
			return fmt.Errorf("restore token: %w", err)
		}
		owned[name] = true // of two equal ones
		quota.Limit[tokens]--
		quotas[vip] = quota
		d.empty = false
	}
	return nil
}

// nameOf names the token of a session's endpoint, and the tunnel of its backend.
func (d *Directory) nameOf(of tokenOf, owner owner) (name bpf.AgentMultipathName, tunnel netip.Addr, found bool) {
	vip, backend := bpf.FromAddrPort(of.vip, owner.vipPort), bpf.FromAddrPort(owner.session.Dip, owner.session.DipPort)
	key := model.EndpointKey{VIP: vip.Addr(), Protocol: model.TCP, Port: vip.Port()}
	e, found := d.endpoints[key]
	if !found {
		key.Port = model.AllPorts
		e = d.endpoints[key]
	}
	tunnel, found = e.tunnels[backend]
	if !found {
		tunnel, found = e.tunnels[netip.AddrPortFrom(backend.Addr(), 0)]
	}
	name = toName(multipath.Name{Endpoint: key})
	name.Token = of.token
	return name, tunnel, found
}
