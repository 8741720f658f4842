package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/fbt"
)

const protocolTCP, protocolUDP = 6, 17

// Network is what the programs know of virtual networks, of backends here, and of the underlay.
type Network struct {
	objects        *overlayObjects
	local4, local6 netip.Prefix
	statistics     *Statistics

	mu          sync.Mutex // guards the below, and what tables hold
	attachments map[uint32]Attachment
	rules       map[uint32]Rule
	hosts       map[uint32]Host
	detached    map[uint32]Attachment // that sessions still have
	removed     map[uint32]Rule       // likewise
	answerKey   fbt.Key               // of answers that go by muxes
}

func newNetwork(objects *overlayObjects, local4, local6 netip.Prefix) *Network {
	return &Network{
		objects: objects, local4: local4, local6: local6, statistics: newStatistics(objects),
		attachments: make(map[uint32]Attachment), rules: make(map[uint32]Rule), hosts: make(map[uint32]Host),
		detached: make(map[uint32]Attachment), removed: make(map[uint32]Rule),
	}
}

// Attachment is a VIP in a virtual network.
type Attachment struct {
	VNI        uint32
	VIP        netip.Addr // in that network
	Service    netip.Addr // the VIP's own address, by which rules know it
	Tenant     uint32     // of the network
	GatewayMAC [6]byte    // from where the network's frames come
	Leaving    bool       // it is detached: its sessions end, and their clients can still be told so
}

// SetAttachments makes the attachments exactly those, by number, which is never 0. A number is another one's only when
// no session has it.
func (n *Network) SetAttachments(want map[uint32]Attachment) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	vips := make(map[overlayNetworkAddress]uint32, len(want))
	for number, a := range want {
		key := overlayNetworkAddress{Vni: a.VNI}
		key.Address.Words = abi.Words(a.VIP)
		vips[key] = number
	}
	for number, a := range n.attachments {
		if _, kept := want[number]; !kept {
			n.detached[number] = a
		}
	}
	for number := range want {
		delete(n.detached, number)
	}
	if err := n.statistics.setHandshakes(n.attachments, want); err != nil {
		return fmt.Errorf("set attachments: %w", err)
	}
	if err := putRows(n.objects.Attachments, n.attachments, want, attachmentRow); err != nil {
		return fmt.Errorf("set attachments: %w", err)
	}
	if err := abi.WriteTable(n.objects.NetworkVips, vips); err != nil {
		return fmt.Errorf("set VIPs of virtual networks: %w", err)
	}
	return clearRows[overlayOverlayAttachment](n.objects.Attachments, n.attachments, want)
}

func attachmentRow(a Attachment) overlayOverlayAttachment {
	row := overlayOverlayAttachment{Vni: a.VNI, Tenant: a.Tenant, GatewayMac: a.GatewayMAC}
	row.Vip.Words, row.Service.Words = abi.Words(a.VIP), abi.Words(a.Service)
	return row
}

// Rule is a backend behind a tunnel address of this host.
type Rule struct {
	Service netip.AddrPort // port 0: all ports
	IsUDP   bool           // else TCP
	Tunnel  netip.Addr
	Backend netip.AddrPort // port 0: the client's
	Ifindex uint32         // of the workload's host-side interface; 0: it is on the host itself
	IsDown  bool           // the workload is not there, as while a VM starts
	// IdleTimeout is the silence after which an open connection may be ended; 0: none is.
	IdleTimeout time.Duration
	SYNCookies  bool // muxes may answer SYNs
}

// SetRules makes the rules exactly those, by number. A number is another rule's only when no session has it.
func (n *Network) SetRules(want map[uint32]Rule) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	numbers := make(map[overlayOverlayRuleKey]uint32, len(want))
	for number, r := range want {
		key := overlayOverlayRuleKey{Port: abi.Port(r.Service.Port()), Protocol: protocolTCP}
		if r.IsUDP {
			key.Protocol = protocolUDP
		}
		key.Vip.Words, key.Tunnel.Words = abi.Words(r.Service.Addr()), abi.Words(r.Tunnel)
		numbers[key] = number
	}
	for number, r := range n.rules {
		if _, kept := want[number]; !kept {
			n.removed[number] = r
		}
	}
	for number := range want {
		delete(n.removed, number)
	}
	if err := putRows(n.objects.RuleRows, n.rules, want, ruleRow); err != nil {
		return fmt.Errorf("set rules: %w", err)
	}
	if err := abi.WriteTable(n.objects.Rules, numbers); err != nil {
		return fmt.Errorf("set numbers of rules: %w", err)
	}
	return clearRows[overlayOverlayRule](n.objects.RuleRows, n.rules, want)
}

func ruleRow(r Rule) overlayOverlayRule {
	row := overlayOverlayRule{
		Port: abi.Port(r.Backend.Port()), Workload: overlayOverlayWorkloadOVERLAY_NATIVE, Ifindex: r.Ifindex,
		IdleTimeout: uint32(r.IdleTimeout.Milliseconds()),
	}
	if r.Ifindex != 0 {
		row.Workload = overlayOverlayWorkloadOVERLAY_BEHIND_INTERFACE
	}
	if r.IsDown {
		row.Workload = overlayOverlayWorkloadOVERLAY_NO_WORKLOAD
	}
	if r.SYNCookies {
		row.Flags = uint16(overlayOverlayRuleFlagOVERLAY_SYN_COOKIES)
	}
	row.Dip.Words, row.Tunnel.Words = abi.Words(r.Backend.Addr()), abi.Words(r.Tunnel)
	return row
}

// Role is what an address of the underlay may send; bits.
type Role uint32

// The roles; see enum overlay_role.
const (
	Mux    = Role(overlayOverlayRoleOVERLAY_MUX)
	Server = Role(overlayOverlayRoleOVERLAY_SERVER)
	Client = Role(overlayOverlayRoleOVERLAY_CLIENT)
	Bare   = Role(overlayOverlayRoleOVERLAY_BARE)
)

// Host is a host, or a mux: its number is 0.
type Host struct {
	Number uint32
	Roles  Role
	V4, V6 netip.Addr // its tunnel addresses; not valid: none of the family
}

// SetHosts makes the hosts and muxes of the underlay exactly those. A host may have more than one entry: one with its number,
// and others, without, for addresses of its servers. What has several entries has the roles of all.
func (n *Network) SetHosts(want []Host) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	vteps, hosts := make(map[overlayAddress]overlayOverlayVtep), make(map[uint32]Host)
	for _, h := range want {
		if h.Number != 0 {
			hosts[h.Number] = h
		}
		for _, a := range []netip.Addr{h.V4, h.V6} {
			if a.IsValid() {
				row := vteps[overlayAddress{Words: abi.Words(a)}]
				row.Number, row.Roles = max(row.Number, h.Number), row.Roles|overlayOverlayRole(h.Roles)
				vteps[overlayAddress{Words: abi.Words(a)}] = row
			}
		}
	}
	if err := putRows(n.objects.Hosts, n.hosts, hosts, hostRow); err != nil {
		return fmt.Errorf("set hosts: %w", err)
	}
	if err := abi.WriteTable(n.objects.Vteps, vteps); err != nil {
		return fmt.Errorf("set tunnel addresses: %w", err)
	}
	return clearRows[overlayOverlayHost](n.objects.Hosts, n.hosts, hosts)
}

func hostRow(h Host) overlayOverlayHost {
	row := overlayOverlayHost{}
	row.V4.Words, row.V6.Words = abi.Words(h.V4), abi.Words(h.V6)
	return row
}

// putRows writes what differs from what an array is known to hold.
func putRows[T comparable, R any](table *ebpf.Map, known, want map[uint32]T, rowOf func(T) R) error {
	for number, to := range want {
		if is, ok := known[number]; ok && is == to {
			continue
		}
		if number == 0 {
			return errors.New("number 0 is none's")
		}
		if err := table.Put(number, rowOf(to)); err != nil {
			return fmt.Errorf("row %d: %w", number, err)
		}
		known[number] = to
	}
	return nil
}

// clearRows makes those rows zero that are known and not wanted.
func clearRows[R any, T comparable](table *ebpf.Map, known, want map[uint32]T) error {
	var none R
	for number := range known {
		if _, kept := want[number]; kept {
			continue
		}
		if err := table.Put(number, none); err != nil {
			return fmt.Errorf("clear row %d: %w", number, err)
		}
		delete(known, number)
	}
	return nil
}

// Attachments are those that are set, by number. The result is the caller's.
func (n *Network) Attachments() map[uint32]Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.attachments)
}

// Rules are those that are set, by number. The result is the caller's.
func (n *Network) Rules() map[uint32]Rule {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.rules)
}

// read learns what an earlier process has left.
func (n *Network) read() error {
	services, err := abi.ReadTable[overlayOverlayRuleKey, uint32](n.objects.Rules)
	if err != nil {
		return fmt.Errorf("read tables of the overlay: %w", err)
	}
	vteps, err := abi.ReadTable[overlayAddress, overlayOverlayVtep](n.objects.Vteps)
	if err != nil {
		return fmt.Errorf("read tables of the overlay: %w", err)
	}
	err = errors.Join(
		abi.EachRow(n.objects.Attachments, func(number uint32, row overlayOverlayAttachment) {
			n.attachments[number] = Attachment{
				VNI: row.Vni, Tenant: row.Tenant, GatewayMAC: row.GatewayMac,
				VIP: abi.Address(row.Vip.Words), Service: abi.Address(row.Service.Words),
			}
		}),
		abi.EachRow(n.objects.RuleRows, func(number uint32, row overlayOverlayRule) { n.rules[number] = ruleOf(row) }),
		abi.EachRow(n.objects.Hosts, func(number uint32, row overlayOverlayHost) {
			h := Host{Number: number, V4: abi.Address(row.V4.Words), V6: abi.Address(row.V6.Words)}
			for _, a := range []overlayAddress{row.V4, row.V6} {
				h.Roles |= Role(vteps[a].Roles)
			}
			n.hosts[number] = h
		}))
	if err != nil {
		return fmt.Errorf("read tables of the overlay: %w", err)
	}
	for key, number := range services {
		if rule, ok := n.rules[number]; ok {
			rule.Service = netip.AddrPortFrom(abi.Address(key.Vip.Words), abi.Port(key.Port))
			rule.IsUDP = key.Protocol == protocolUDP
			n.rules[number] = rule
		}
	}
	return nil
}

// ruleOf is what a row tells.
func ruleOf(row overlayOverlayRule) Rule {
	return Rule{
		Tunnel: abi.Address(row.Tunnel.Words), Backend: netip.AddrPortFrom(abi.Address(row.Dip.Words), abi.Port(row.Port)), Ifindex: row.Ifindex,
		IsDown: row.Workload == overlayOverlayWorkloadOVERLAY_NO_WORKLOAD, IdleTimeout: time.Duration(row.IdleTimeout) * time.Millisecond,
		SYNCookies: row.Flags&uint16(overlayOverlayRuleFlagOVERLAY_SYN_COOKIES) != 0,
	}
}

// tenantOf tells the tenant of the network that a session's client is in; 0: the attachment is gone.
func (n *Network) tenantOf() func(Session) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	attachments := maps.Clone(n.attachments)
	maps.Copy(attachments, n.detached)
	return func(s Session) uint32 { return attachments[s.Attachment].Tenant }
}

func fbtKeys(keys []fbt.Key) *overlayFbtKeys {
	rows := new(overlayFbtKeys)
	for _, key := range keys {
		row := &rows.Rows[key.ID%fbt.Keys]
		row.Id = key.ID
		for i := range row.Key {
			row.Key[i] = binary.LittleEndian.Uint64(key.Secret[8*i:])
		}
	}
	return rows
}
