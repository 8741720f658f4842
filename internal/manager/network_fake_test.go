package manager

import (
	"slices"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/wire"
)

// muxNetworks are the virtual networks of a fake mux.
type muxNetworks struct {
	last        wire.MuxNetworks // of the newest message
	attachments map[vnet.AttachmentKey]vnet.Attachment
	hosts       map[uint32]vnet.MuxHost
}

func (n *muxNetworks) apply(u wire.MuxUpdate) {
	if u.Snapshot || n.hosts == nil {
		*n = muxNetworks{attachments: map[vnet.AttachmentKey]vnet.Attachment{}, hosts: map[uint32]vnet.MuxHost{}}
	}
	n.last = u.Networks
	for _, a := range u.Networks.Attachments {
		n.attachments[a.AttachmentKey] = a
	}
	for _, key := range u.Networks.AttachmentsRemoved {
		delete(n.attachments, key)
	}
	for _, h := range u.Networks.Hosts {
		n.hosts[h.Number] = h
	}
	for _, number := range u.Networks.HostsRemoved {
		delete(n.hosts, number)
	}
}

// host is one by its name.
func (n *muxNetworks) host(name string) vnet.MuxHost {
	for _, h := range n.hosts {
		if h.Name == name {
			return h
		}
	}
	return vnet.MuxHost{}
}

// hostNetworks are the virtual networks of a fake host.
type hostNetworks struct {
	last        wire.HostNetworks // of the newest message
	keys        []fbt.Key         // that it was ever given
	attachments map[vnet.AttachmentKey]vnet.Attachment
	hosts       map[uint32]vnet.NetworkHost
	networks    map[uint32]vnet.HostNetwork
}

func (n *hostNetworks) apply(u wire.HostUpdate) {
	if u.Snapshot || n.hosts == nil {
		*n = hostNetworks{
			keys: n.keys, attachments: map[vnet.AttachmentKey]vnet.Attachment{}, hosts: map[uint32]vnet.NetworkHost{}, networks: map[uint32]vnet.HostNetwork{},
		}
	}
	n.last = u.Networks
	for _, key := range u.Networks.Keys {
		if !slices.Contains(n.keys, key) {
			n.keys = append(n.keys, key)
		}
	}
	for _, a := range u.Networks.Attachments {
		n.attachments[a.AttachmentKey] = a
	}
	for _, key := range u.Networks.AttachmentsRemoved {
		delete(n.attachments, key)
	}
	for _, h := range u.Networks.Hosts {
		n.hosts[h.Number] = h
	}
	for _, number := range u.Networks.HostsRemoved {
		delete(n.hosts, number)
	}
	for _, of := range u.Networks.Networks {
		n.networks[of.VNI] = of
	}
	for _, vni := range u.Networks.NetworksRemoved {
		delete(n.networks, vni)
	}
}
