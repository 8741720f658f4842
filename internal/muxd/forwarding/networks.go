package forwarding

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/muxd/announce"
	"github.com/weirlb/weir/internal/wire"
)

// Overlay is the data plane of virtual networks. Each setter makes its table exactly what it is given.
type Overlay interface {
	OverlayAddresses() (v4, v6 netip.Addr, err error)
	SetOverlayAddresses(v4, v6 netip.Addr) error
	Attachments() (map[uint32]overlay.Attachment, error)
	SetAttachments(map[uint32]overlay.Attachment) error
	MaxAttachments() int
	AttachmentCounter(number uint32) (model.Counter, error)
	SetVTEPs([]overlay.Host) error
	SetHostKeys(makes uint32, hosts map[uint32][]fbt.Key) error
}

// networks keeps the tables of virtual networks at the manager's updates. Without a network it costs nothing.
type networks struct {
	datapath Overlay
	full     *fullNAT
	wanted   networkSet
	numbers  map[vnet.AttachmentKey]uint32 // of attachments, in the tables
	keys     map[uint32][]fbt.Key          // of hosts, in the tables
	makes    uint32
}

// networkSet is what the updates so far say. Its maps are immutable.
type networkSet struct {
	v4, v6      netip.Addr // where hosts send VXLAN to; not valid: nowhere
	masters     []fbt.Master
	attachments map[vnet.AttachmentKey]vnet.Attachment
	hosts       map[uint32]vnet.MuxHost
	endpoints   map[model.EndpointKey]model.MuxEndpoint // whose VIPs have full NAT in muxes
}

// newNetworks adopts the live tables: their attachments keep their numbers, and so their counters.
func newNetworks(datapath Overlay, full *fullNAT) (networks, error) {
	n := networks{datapath: datapath, full: full, numbers: map[vnet.AttachmentKey]uint32{}, keys: map[uint32][]fbt.Key{}}
	live, err := datapath.Attachments()
	if err != nil {
		return n, err
	}
	n.wanted.attachments = make(map[vnet.AttachmentKey]vnet.Attachment, len(live))
	for number, a := range live {
		key := vnet.AttachmentKey{VNI: a.VNI, VIP: a.VIP}
		n.numbers[key] = number
		n.wanted.attachments[key] = vnet.Attachment{AttachmentKey: key, Service: a.Service, GatewayMAC: a.GatewayMAC, FullNAT: a.FullNAT, Relay: a.Relay, NAT: a.NAT}
		if a.NAT {
			full.adopt(key, a.Tenant)
		}
	}
	n.wanted.v4, n.wanted.v6, err = datapath.OverlayAddresses()
	return n, err
}

// next is what the update makes of the set.
func (s networkSet) next(update wire.MuxUpdate) networkSet {
	of := update.Networks
	next := networkSet{masters: of.Masters, attachments: s.attachments, hosts: s.hosts, endpoints: s.endpoints}
	for _, a := range of.Addresses {
		if a.Is4() {
			next.v4 = a
		} else {
			next.v6 = a
		}
	}
	if update.Snapshot {
		next.attachments, next.hosts, next.endpoints = nil, nil, nil
	}
	next.attachments = changed(next.attachments, of.Attachments, of.AttachmentsRemoved, func(a vnet.Attachment) vnet.AttachmentKey { return a.AttachmentKey })
	next.hosts = changed(next.hosts, of.Hosts, of.HostsRemoved, func(h vnet.MuxHost) uint32 { return h.Number })
	put, removed := natEndpoints(next.endpoints, update)
	next.endpoints = changed(next.endpoints, put, removed, func(e model.MuxEndpoint) model.EndpointKey { return e.Key })
	return next
}

// natEndpoints are what an update has of endpoints whose VIPs have full NAT in muxes, and those that had it.
func natEndpoints(had map[model.EndpointKey]model.MuxEndpoint, update wire.MuxUpdate) (put []model.MuxEndpoint, removed []model.EndpointKey) {
	gone := slices.Clone(update.Removed)
	for _, e := range update.Endpoints {
		if e.NAT && e.Key.Protocol == model.TCP {
			put = append(put, e)
		} else {
			gone = append(gone, e.Key)
		}
	}
	for _, key := range gone {
		if _, there := had[key]; there {
			removed = append(removed, key)
		}
	}
	return put, removed
}

// changed is rows without those removed and with those put, by key. What does not change is not copied.
func changed[K comparable, V any](rows map[K]V, put []V, removed []K, key func(V) K) map[K]V {
	if len(put)+len(removed) == 0 {
		return rows
	}
	next := maps.Clone(rows)
	if next == nil {
		next = make(map[K]V, len(put))
	}
	for _, k := range removed {
		delete(next, k)
	}
	for _, v := range put {
		next[key(v)] = v
	}
	return next
}

// addresses are those that the set has VXLAN sent to.
func (s networkSet) addresses() (all []netip.Addr) {
	for _, a := range []netip.Addr{s.v4, s.v6} {
		if a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// routes are what is announced of the set: VIPs of networks with hosts that have no agent are told to these by EVPN.
func (s networkSet) routes() announce.Overlay {
	o := announce.Overlay{Addresses: s.addresses()}
	if len(o.Addresses) == 0 {
		return o
	}
	for key, a := range s.attachments {
		if a.WithoutAgent {
			o.Attached = append(o.Attached, bgp.MACRoute{VNI: key.VNI, MAC: a.GatewayMAC, Address: key.VIP, VTEP: o.Addresses[0]})
		}
	}
	return o
}

// validate refuses what the tables have no room for, before anything is changed.
func (s networkSet) validate(room int) error {
	if n := len(s.attachments); n > room {
		return fmt.Errorf("virtual networks have %d VIPs, and the mux has room for %d", n, room)
	}
	addresses := map[netip.Addr]uint32{}
	for number, h := range s.hosts {
		for _, a := range h.Addresses {
			if other, taken := addresses[a]; taken {
				return fmt.Errorf("%s is an address of hosts %d and %d of virtual networks", a, other, number)
			}
			addresses[a] = number
		}
	}
	return nil
}

// prepare has the tables ready for what an update does to endpoints: what leaves is gone, and hosts that backends come to
// have keys.
func (n *networks) prepare(next networkSet) error {
	if err := next.validate(n.datapath.MaxAttachments()); err != nil {
		return err
	}
	if err := n.full.prepare(next); err != nil {
		return err
	}
	keys, makes := n.keysOf(next), fbt.Makes(next.masters)
	both := maps.Clone(n.keys)
	maps.Copy(both, keys)
	if err := n.setKeys(makes, both); err != nil {
		return err
	}
	kept := map[vnet.AttachmentKey]vnet.Attachment{}
	for key, a := range n.wanted.attachments {
		if next.attachments[key].Service == a.Service {
			kept[key] = a
		}
	}
	if len(kept) == len(n.wanted.attachments) {
		return nil
	}
	return n.setAttachments(kept)
}

// complete makes the tables what next says, after the endpoints were changed.
func (n *networks) complete(next networkSet) error {
	if n.wanted.v4 != next.v4 || n.wanted.v6 != next.v6 {
		if err := n.datapath.SetOverlayAddresses(next.v4, next.v6); err != nil {
			return err
		}
	}
	if !maps.EqualFunc(n.wanted.hosts, next.hosts, vnet.MuxHost.Equal) {
		if err := n.datapath.SetVTEPs(vteps(next)); err != nil {
			return err
		}
	}
	if err := n.setKeys(fbt.Makes(next.masters), n.keysOf(next)); err != nil {
		return err
	}
	if err := n.full.place(next); err != nil {
		return err
	}
	if err := n.setAttachments(next.attachments); err != nil {
		return err
	}
	if err := n.full.complete(next); err != nil {
		return err
	}
	n.wanted = next
	return nil
}

func vteps(s networkSet) (hosts []overlay.Host) {
	for _, h := range s.hosts {
		hosts = append(hosts, overlay.Host{Number: h.Number, Agent: h.Agent, Server: h.Server, Addresses: h.Addresses, VNIs: h.VNIs})
	}
	return hosts
}

// keysOf are the keys of the hosts with backends. Those that are known are not derived again.
func (n *networks) keysOf(next networkSet) map[uint32][]fbt.Key {
	same := slices.Equal(n.wanted.masters, next.masters)
	keys := map[uint32][]fbt.Key{}
	for number, h := range next.hosts {
		if !h.Server {
			continue
		}
		if has, there := n.keys[number]; there && same && n.wanted.hosts[number].Name == h.Name {
			keys[number] = has
		} else {
			keys[number] = fbt.HostKeys(next.masters, h.Name)
		}
	}
	return keys
}

func (n *networks) setKeys(makes uint32, keys map[uint32][]fbt.Key) error {
	if makes == n.makes && maps.EqualFunc(n.keys, keys, slices.Equal[[]fbt.Key]) {
		return nil
	}
	if err := n.datapath.SetHostKeys(makes, keys); err != nil {
		return err
	}
	n.makes, n.keys = makes, keys
	return nil
}

// row is an attachment as the tables have it.
func (n *networks) row(a vnet.Attachment) overlay.Attachment {
	of := overlay.Attachment{VNI: a.VNI, VIP: a.VIP, Service: a.Service, GatewayMAC: a.GatewayMAC, FullNAT: a.FullNAT, Relay: a.Relay}
	if n.full.is(a) {
		of.NAT, of.Tenant = true, n.full.tenantOf(a)
	}
	return of
}

// setAttachments writes attachments under the numbers that they have, new ones under free numbers.
func (n *networks) setAttachments(attachments map[vnet.AttachmentKey]vnet.Attachment) error {
	numbers := make(map[vnet.AttachmentKey]uint32, len(attachments))
	taken := make(map[uint32]bool, len(attachments))
	for key := range attachments {
		if number, has := n.numbers[key]; has {
			numbers[key], taken[number] = number, true
		}
	}
	rows, free := make(map[uint32]overlay.Attachment, len(attachments)), uint32(1)
	same := len(attachments) == len(n.numbers) && len(numbers) == len(attachments)
	for key, a := range attachments {
		number, has := numbers[key]
		if !has {
			for ; taken[free]; free++ {
			}
			number = free
			numbers[key], taken[free] = free, true
		}
		rows[number] = n.row(a)
		same = same && n.row(n.wanted.attachments[key]) == rows[number]
	}
	if same {
		return nil
	}
	if err := n.datapath.SetAttachments(rows); err != nil {
		return err
	}
	n.numbers = numbers
	return nil
}
