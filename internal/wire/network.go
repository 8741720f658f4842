package wire

import (
	"fmt"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model/vnet"
)

// MuxNetworks is what a step changes of the virtual networks of a mux. The zero value: there are none, or nothing of
// their rows.
type MuxNetworks struct {
	Addresses []netip.Addr // where hosts send VXLAN to, one of each family at most; every time
	// Masters are all that are valid, the oldest first; every time. Keys of FBTs to a host are fbt.HostKeys() of them and
	// its name, and those of fbt.Makes() make FBTs.
	Masters []fbt.Master

	Attachments        []vnet.Attachment // new or changed; in a snapshot these are all
	AttachmentsRemoved []vnet.AttachmentKey
	Hosts              []vnet.MuxHost // likewise
	HostsRemoved       []uint32
}

// HostNetworks is what a step changes of the virtual networks of a host. The zero value: it has nothing to do with any,
// or nothing changes of their rows.
type HostNetworks struct {
	Number        uint32         // of the host; every time
	Own           []netip.Addr   // that its clients send VXLAN from, one of each family at most; every time
	Addresses     []netip.Addr   // as in MuxNetworks
	LocalPrefixes []netip.Prefix // one of each family at most; every time
	Keys          []fbt.Key      // of FBTs to this host, that are valid; every time

	// Attachments are new or changed; in a snapshot these are all. A backend whose VIP is a service of one of them has a
	// rule.
	Attachments        []vnet.Attachment
	AttachmentsRemoved []vnet.AttachmentKey
	Hosts              []vnet.NetworkHost // likewise; the host itself is among them
	HostsRemoved       []uint32
	Networks           []vnet.HostNetwork // likewise
	NetworksRemoved    []uint32
	// Moved are clients of backends here that have just gone to another host; some may have been told before.
	Moved []vnet.Move
}

func muxNetworksToProto(n MuxNetworks) *weirv1.MuxNetworks {
	p := &weirv1.MuxNetworks{
		Addresses: compile.AddressTexts(n.Addresses), Attachments: attachmentsToProto(n.Attachments),
		AttachmentsRemoved: attachmentKeysToProto(n.AttachmentsRemoved), HostsRemoved: n.HostsRemoved,
	}
	for _, m := range n.Masters {
		p.Masters = append(p.Masters, &weirv1.FBTMaster{Id: m.ID, Secret: m.Secret[:]})
	}
	for _, h := range n.Hosts {
		p.Hosts = append(p.Hosts, &weirv1.MuxHost{
			Number: h.Number, Name: h.Name, Addresses: compile.AddressTexts(h.Addresses), Agent: h.Agent, Server: h.Server, Vnis: h.VNIs,
		})
	}
	if len(p.GetAddresses())+len(p.GetMasters())+len(p.GetAttachments())+len(p.GetAttachmentsRemoved())+len(p.GetHosts())+
		len(p.GetHostsRemoved()) == 0 {
		return nil
	}
	return p
}

func muxNetworksFromProto(p *weirv1.MuxNetworks) (MuxNetworks, error) {
	var f fields
	n := MuxNetworks{
		Addresses:   f.oneOfEachFamily("addresses", p.GetAddresses()),
		Attachments: f.attachments("attachments", p.GetAttachments()), AttachmentsRemoved: f.attachmentKeys("attachmentsRemoved", p.GetAttachmentsRemoved()),
		HostsRemoved: f.numbers("hostsRemoved", p.GetHostsRemoved()),
	}
	if most := fbt.Masters; len(p.GetMasters()) > most {
		f.Refuse("masters", "must be at most %d, are %d", most, len(p.GetMasters()))
		return n, f.Err()
	}
	for i, m := range p.GetMasters() {
		master := fbt.Master{ID: m.GetId()}
		f.secret(fmt.Sprintf("masters[%d]", i), m, master.Secret[:])
		n.Masters = append(n.Masters, master)
	}
	known := map[uint32]bool{}
	for i, h := range p.GetHosts() {
		path := fmt.Sprintf("hosts[%d].", i)
		host := vnet.MuxHost{
			Number: f.newNumber(path+"number", h.GetNumber(), known), Name: h.GetName(),
			Addresses: f.oneOfEachFamily(path+"addresses", h.GetAddresses()), Agent: h.GetAgent(), Server: h.GetServer(), VNIs: f.vnis(path+"vnis", h.GetVnis()),
		}
		if len(host.Addresses) == 0 {
			f.Refuse(path+"addresses", "must have at least one")
		}
		if host.Agent || host.Server || host.Name != "" { // else nothing is derived from it
			f.name(path+"name", host.Name)
		}
		n.Hosts = append(n.Hosts, host)
	}
	return n, f.Err()
}

func hostNetworksToProto(n HostNetworks) *weirv1.HostNetworks {
	p := &weirv1.HostNetworks{
		Number: n.Number, Own: compile.AddressTexts(n.Own), Addresses: compile.AddressTexts(n.Addresses), LocalPrefixes: compile.PrefixTexts(n.LocalPrefixes),
		Attachments: attachmentsToProto(n.Attachments), AttachmentsRemoved: attachmentKeysToProto(n.AttachmentsRemoved),
		HostsRemoved: n.HostsRemoved, NetworksRemoved: n.NetworksRemoved,
	}
	for _, k := range n.Keys {
		p.Keys = append(p.Keys, &weirv1.FBTKey{Id: k.ID, Secret: k.Secret[:]})
	}
	for _, h := range n.Hosts {
		host := &weirv1.NetworkHost{Number: h.Number, Client: h.Client, WithoutAgent: h.WithoutAgent, Tunnels: compile.AddressTexts(h.Tunnels)}
		for _, a := range []netip.Addr{h.V4, h.V6} {
			if a.IsValid() {
				host.Addresses = append(host.Addresses, a.String())
			}
		}
		p.Hosts = append(p.Hosts, host)
	}
	for _, network := range n.Networks {
		of := &weirv1.HostNetwork{Vni: network.VNI, Name: network.Name, Tenant: network.Tenant, GatewayMac: network.GatewayMAC.String()}
		for _, port := range network.Ports {
			of.Ports = append(of.Ports, &weirv1.NetworkPort{
				Interface: port.Interface, Workload: port.Workload, Mac: port.MAC.String(), Addresses: compile.AddressTexts(port.Addresses),
			})
		}
		p.Networks = append(p.Networks, of)
	}
	for _, m := range n.Moved {
		p.Moved = append(p.Moved, &weirv1.ClientMove{Vni: m.VNI, Addresses: compile.AddressTexts(m.Addresses), Host: m.Host})
	}
	if n.Number == 0 && len(p.GetOwn())+len(p.GetAddresses())+len(p.GetLocalPrefixes())+len(p.GetKeys())+len(p.GetAttachments())+
		len(p.GetAttachmentsRemoved())+len(p.GetHosts())+len(p.GetHostsRemoved())+len(p.GetNetworks())+len(p.GetNetworksRemoved())+len(p.GetMoved()) == 0 {
		return nil
	}
	return p
}

func hostNetworksFromProto(p *weirv1.HostNetworks) (HostNetworks, error) {
	var f fields
	n := HostNetworks{
		Number: f.optionalNumber("number", p.GetNumber()), Own: f.oneOfEachFamily("own", p.GetOwn()), Addresses: f.oneOfEachFamily("addresses", p.GetAddresses()),
		LocalPrefixes: f.Prefixes("localPrefixes", p.GetLocalPrefixes()),
		Attachments:   f.attachments("attachments", p.GetAttachments()), AttachmentsRemoved: f.attachmentKeys("attachmentsRemoved", p.GetAttachmentsRemoved()),
		HostsRemoved: f.numbers("hostsRemoved", p.GetHostsRemoved()), NetworksRemoved: f.vnis("networksRemoved", p.GetNetworksRemoved()),
	}
	for i, prefix := range n.LocalPrefixes {
		if i > 0 && prefix.Addr().Is4() == n.LocalPrefixes[0].Addr().Is4() {
			f.Refuse(fmt.Sprintf("localPrefixes[%d]", i), "must be of another family than localPrefixes[0]")
		}
	}
	if most := fbt.Masters; len(p.GetKeys()) > most {
		f.Refuse("keys", "must be at most %d, are %d", most, len(p.GetKeys()))
		return n, f.Err()
	}
	for i, k := range p.GetKeys() {
		key := fbt.Key{ID: k.GetId()}
		f.secret(fmt.Sprintf("keys[%d]", i), k, key.Secret[:])
		n.Keys = append(n.Keys, key)
	}
	known := map[uint32]bool{}
	for i, h := range p.GetHosts() {
		path := fmt.Sprintf("hosts[%d].", i)
		host := vnet.NetworkHost{
			Number: f.newNumber(path+"number", h.GetNumber(), known), Client: h.GetClient(), WithoutAgent: h.GetWithoutAgent(), Tunnels: f.Addresses(path+"tunnels", h.GetTunnels()),
		}
		host.V4, host.V6 = vnet.Tunnels(f.oneOfEachFamily(path+"addresses", h.GetAddresses()))
		n.Hosts = append(n.Hosts, host)
	}
	for i, network := range p.GetNetworks() {
		n.Networks = append(n.Networks, f.hostNetwork(fmt.Sprintf("networks[%d].", i), network))
	}
	n.Moved = f.moves("moved", p.GetMoved())
	return n, f.Err()
}

func (f *fields) moves(path string, all []*weirv1.ClientMove) (moves []vnet.Move) {
	count := 0
	for i, m := range all {
		at := fmt.Sprintf("%s[%d].", path, i)
		if count += 1 + len(m.GetAddresses()); count > 2*vnet.MaxMoves {
			f.Refuse(path, "must be at most %d addresses", vnet.MaxMoves)
			return nil
		}
		moves = append(moves, vnet.Move{VNI: f.vni(at+"vni", m.GetVni()), Addresses: f.Addresses(at+"addresses", m.GetAddresses()), Host: f.optionalNumber(at+"host", m.GetHost())})
		if m.GetHost() == 0 {
			f.Refuse(at+"host", "is required")
		}
	}
	return moves
}

func (f *fields) hostNetwork(path string, p *weirv1.HostNetwork) vnet.HostNetwork {
	n := vnet.HostNetwork{
		VNI: f.vni(path+"vni", p.GetVni()), Name: f.name(path+"name", p.GetName()), Tenant: f.name(path+"tenant", p.GetTenant()),
		GatewayMAC: f.MAC(path+"gatewayMac", p.GetGatewayMac()),
	}
	for i, port := range p.GetPorts() {
		at := fmt.Sprintf("%sports[%d].", path, i)
		if reason := vnet.InterfaceName(port.GetInterface()); reason != "" {
			f.Refuse(at+"interface", "%s", reason)
		}
		if len(port.GetAddresses()) > vnet.MaxAddresses {
			f.Refuse(at+"addresses", "must be at most %d, are %d", vnet.MaxAddresses, len(port.GetAddresses()))
			continue
		}
		n.Ports = append(n.Ports, vnet.Port{
			Interface: port.GetInterface(), Workload: f.name(at+"workload", port.GetWorkload()), MAC: f.MAC(at+"mac", port.GetMac()),
			Addresses: f.Addresses(at+"addresses", port.GetAddresses()),
		})
	}
	return n
}

func attachmentsToProto(all []vnet.Attachment) []*weirv1.NetworkAttachment {
	var messages []*weirv1.NetworkAttachment
	for _, a := range all {
		messages = append(messages, &weirv1.NetworkAttachment{
			Key: attachmentKeyToProto(a.AttachmentKey), Service: compile.OptionalAddress(a.Service), Network: a.Network,
			GatewayMac: optionalMAC(a.GatewayMAC), WithoutAgent: a.WithoutAgent, FullNat: a.FullNAT, Relay: a.Relay,
			Nat: a.NAT, Tenant: a.Tenant,
		})
	}
	return messages
}

// optionalMAC is empty for the zero address.
func optionalMAC(m vnet.MAC) string {
	if m == (vnet.MAC{}) {
		return ""
	}
	return m.String()
}

func (f *fields) attachments(path string, all []*weirv1.NetworkAttachment) []vnet.Attachment {
	var attachments []vnet.Attachment
	known := map[vnet.AttachmentKey]bool{}
	for i, p := range all {
		at := fmt.Sprintf("%s[%d].", path, i)
		a := vnet.Attachment{
			AttachmentKey: f.attachmentKey(at+"key.", p.GetKey()), Service: f.Address(at+"service", p.GetService()), Network: f.name(at+"network", p.GetNetwork()),
			WithoutAgent: p.GetWithoutAgent(), FullNAT: p.GetFullNat(), Relay: p.GetRelay(), NAT: p.GetNat(),
		}
		if p.GetTenant() != "" || a.NAT {
			a.Tenant = f.name(at+"tenant", p.GetTenant())
		}
		if mac := p.GetGatewayMac(); mac != "" {
			a.GatewayMAC = f.MAC(at+"gatewayMac", mac)
		}
		switch {
		case a.VIP.IsValid() && a.Service.IsValid() && a.VIP.Is4() != a.Service.Is4():
			f.Refuse(at+"service", "must be of the family of %s, is %s", a.VIP, a.Service)
		case known[a.AttachmentKey]:
			f.Refuse(at+"key", "is another one's too: %s in network %d", a.VIP, a.VNI)
		}
		known[a.AttachmentKey] = true
		attachments = append(attachments, a)
	}
	return attachments
}

func attachmentKeyToProto(k vnet.AttachmentKey) *weirv1.AttachmentKey {
	return &weirv1.AttachmentKey{Vni: k.VNI, Vip: compile.OptionalAddress(k.VIP)}
}

// attachmentKey reads a key; path ends in a dot.
func (f *fields) attachmentKey(path string, p *weirv1.AttachmentKey) vnet.AttachmentKey {
	return vnet.AttachmentKey{VNI: f.vni(path+"vni", p.GetVni()), VIP: f.Address(path+"vip", p.GetVip())}
}

func attachmentKeysToProto(keys []vnet.AttachmentKey) []*weirv1.AttachmentKey {
	var messages []*weirv1.AttachmentKey
	for _, k := range keys {
		messages = append(messages, attachmentKeyToProto(k))
	}
	return messages
}

func (f *fields) attachmentKeys(path string, all []*weirv1.AttachmentKey) []vnet.AttachmentKey {
	var keys []vnet.AttachmentKey
	for i, p := range all {
		keys = append(keys, f.attachmentKey(fmt.Sprintf("%s[%d].", path, i), p))
	}
	return keys
}

// oneOfEachFamily reads addresses of which a family has one at most.
func (f *fields) oneOfEachFamily(path string, list []string) []netip.Addr {
	const families = 2
	if len(list) > families {
		f.Refuse(path, "must be at most one of each family, are %d", len(list))
		return nil
	}
	all := f.Addresses(path, list)
	if len(all) == families && all[0].IsValid() && all[1].IsValid() && all[0].Is4() == all[1].Is4() {
		f.Refuse(path, "must be at most one of each family, are %s and %s", all[0], all[1])
	}
	return all
}

// secret copies what a key has. What is refused must not tell it.
func (f *fields) secret(path string, p interface {
	GetId() uint32
	GetSecret() []byte
}, to []byte,
) {
	if p.GetId() == 0 || len(p.GetSecret()) != len(to) {
		f.Refuse(path, "must have an id and a secret of %d bytes", len(to))
		return
	}
	copy(to, p.GetSecret())
}

func (f *fields) vni(path string, n uint32) uint32 {
	if n == 0 || n > vnet.MaxVNI {
		f.Refuse(path, "must be 1 to %d, is %d", vnet.MaxVNI, n)
	}
	return n
}

func (f *fields) vnis(path string, list []uint32) []uint32 {
	if len(list) > vnet.MaxNetworks {
		f.Refuse(path, "must be at most %d, are %d", vnet.MaxNetworks, len(list))
		return nil
	}
	for i, n := range list {
		f.vni(fmt.Sprintf("%s[%d]", path, i), n)
	}
	return list
}

// optionalNumber reads the number of a host; 0: it has none.
func (f *fields) optionalNumber(path string, n uint32) uint32 {
	if n > vnet.MaxHosts {
		f.Refuse(path, "must be at most %d, is %d", vnet.MaxHosts, n)
	}
	return n
}

// newNumber reads the number of a host that is not among those known, and is from then on.
func (f *fields) newNumber(path string, n uint32, known map[uint32]bool) uint32 {
	switch {
	case n == 0:
		f.Refuse(path, "is required")
	case known[n]:
		f.Refuse(path, "is another host's too: %d", n)
	}
	known[n] = true
	return f.optionalNumber(path, n)
}

func (f *fields) numbers(path string, list []uint32) []uint32 {
	if len(list) > vnet.MaxHosts {
		f.Refuse(path, "must be at most %d, are %d", vnet.MaxHosts, len(list))
		return nil
	}
	for i, n := range list {
		if f.optionalNumber(fmt.Sprintf("%s[%d]", path, i), n) == 0 {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "is required")
		}
	}
	return list
}
