package overlay

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
)

// Networks are the virtual networks of a mux.
type Networks struct {
	mu     *sync.Mutex
	tables *bpf.Tables
	nat    *nat.Table
	keys   map[uint32]bpf.MuxFbtKeys     // rows of host_keys that have keys
	hosts  map[uint32]bpf.MuxOverlayHost // rows of overlay_hosts that have addresses
	named  map[uint32]bool               // numbers that attachments have
}

// New knows no keys yet. The lock is the data plane's.
func New(mu *sync.Mutex, tables *bpf.Tables, full *nat.Table) *Networks {
	return &Networks{mu: mu, tables: tables, nat: full, keys: map[uint32]bpf.MuxFbtKeys{}, hosts: map[uint32]bpf.MuxOverlayHost{}, named: map[uint32]bool{}}
}

// Adopt reads what of adopted tables it must know.
func (n *Networks) Adopt() error {
	err := abi.EachRow(n.tables.HostKeys, func(number uint32, row bpf.MuxFbtKeys) { n.keys[number] = row })
	if err != nil {
		return fmt.Errorf("read keys of hosts: %w", err)
	}
	err = abi.EachRow(n.tables.OverlayHosts, func(number uint32, row bpf.MuxOverlayHost) { n.hosts[number] = row })
	if err != nil {
		return fmt.Errorf("read hosts of clients: %w", err)
	}
	live, err := n.Attachments()
	for number := range live {
		n.named[number] = true
	}
	return err
}

// OverlayAddresses are where virtual networks' hosts send VXLAN to, as the tables say; not valid: nowhere.
func (n *Networks) OverlayAddresses() (v4, v6 netip.Addr, err error) { return readAddresses(n.tables) }

func readAddresses(t *bpf.Tables) (v4, v6 netip.Addr, err error) {
	var row bpf.MuxMuxOverlay
	if err := t.Overlay.Lookup(uint32(0), &row); err != nil {
		return v4, v6, fmt.Errorf("read overlay's settings: %w", err)
	}
	if v4 = abi.Address(row.Addresses[0].Words); !v4.Is4() || v4.IsUnspecified() {
		v4 = netip.Addr{}
	}
	if v6 = abi.Address(row.Addresses[1].Words); !v6.Is6() || v6.IsUnspecified() {
		v6 = netip.Addr{}
	}
	return v4, v6, nil
}

// SetOverlayAddresses says where virtual networks' hosts send VXLAN to, the same on all muxes; invalid: nowhere in that
// family.
func (n *Networks) SetOverlayAddresses(v4, v6 netip.Addr) error {
	if v4.IsValid() && !v4.Is4() || v6.IsValid() && !v6.Is6() {
		return fmt.Errorf("set addresses for VXLAN: %s and %s are not of IPv4 and IPv6", v4, v6)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writeRow(func(row *bpf.MuxMuxOverlay) {
		row.Addresses[0].Words, row.Addresses[1].Words = abi.Words(v4), abi.Words(v6)
	})
}

func (n *Networks) writeRow(change func(*bpf.MuxMuxOverlay)) error {
	var row bpf.MuxMuxOverlay
	if err := n.tables.Overlay.Lookup(uint32(0), &row); err != nil {
		return fmt.Errorf("read overlay's settings: %w", err)
	}
	old := row
	if change(&row); row == old {
		return nil
	}
	if err := n.tables.Overlay.Put(uint32(0), row); err != nil {
		return fmt.Errorf("write overlay's settings: %w", err)
	}
	return nil
}

// Attachment is a VIP in a virtual network.
type Attachment struct {
	VNI     uint32
	VIP     netip.Addr // in that network
	Service netip.Addr // the VIP's own address, of the same family, by which endpoints know it

	GatewayMAC [6]byte // from where the network's frames come
	FullNAT    bool    // servers answer all clients by muxes
	Relay      bool    // likewise, those whose host has no agent
	NAT        bool    // this mux is the client of backends
	Tenant     uint32  // of the network, with NAT
}

// mostVNI is RFC 7348's.
const mostVNI = 1<<24 - 1

// MaxAttachments is how many attachments the tables have room for.
func (n *Networks) MaxAttachments() int { return int(n.tables.NetworkCounts.MaxEntries()) - 1 }

// Attachments are those of the tables, by number.
func (n *Networks) Attachments() (map[uint32]Attachment, error) { return readAttachments(n.tables) }

func readAttachments(t *bpf.Tables) (map[uint32]Attachment, error) {
	rows, err := abi.ReadTable[bpf.MuxNetworkAddress, bpf.MuxAttachedVip](t.NetworkVIPs)
	if err != nil {
		return nil, fmt.Errorf("read attachments: %w", err)
	}
	more, err := nat.ReadAttachments(t)
	if err != nil {
		return nil, err
	}
	all := make(map[uint32]Attachment, len(rows))
	for key, row := range rows {
		a := Attachment{
			VNI: key.Vni, VIP: bpf.FromAddress(key.Address), Service: bpf.FromAddress(row.Service), GatewayMAC: row.GatewayMac,
			FullNAT: row.Flags&uint16(bpf.MuxAttachedFlagATTACHED_FULL_NAT) != 0, Relay: row.Flags&uint16(bpf.MuxAttachedFlagATTACHED_RELAY) != 0,
			NAT: row.Flags&attachedNAT != 0,
		}
		if a.NAT {
			a.Tenant = more[row.Attachment].Tenant
		}
		all[row.Attachment] = a
	}
	return all, nil
}

// SetAttachments makes the attachments exactly those, by number, which is never 0. The counter of a number that none had
// begins at 0.
func (n *Networks) SetAttachments(want map[uint32]Attachment) error {
	rows := make(map[bpf.MuxNetworkAddress]bpf.MuxAttachedVip, len(want))
	for number, a := range want {
		key := bpf.MuxNetworkAddress{Vni: a.VNI, Address: bpf.ToAddress(a.VIP)}
		switch _, twice := rows[key]; {
		case number == 0 || int(number) > n.MaxAttachments():
			return fmt.Errorf("set attachments: number %d is not from 1 to %d", number, n.MaxAttachments())
		case a.VNI == 0 || a.VNI > mostVNI:
			return fmt.Errorf("set attachment %d: VNI %d is not from 1 to %d", number, a.VNI, mostVNI)
		case !a.VIP.IsValid() || a.VIP.Is4() != a.Service.Is4() || !a.Service.IsValid():
			return fmt.Errorf("set attachment %d: %s and %s are not of one family", number, a.VIP, a.Service)
		case twice:
			return fmt.Errorf("set attachments: %s is twice in network %d", a.VIP, a.VNI)
		}
		row := bpf.MuxAttachedVip{Service: bpf.ToAddress(a.Service), Attachment: number, GatewayMac: a.GatewayMAC}
		if a.FullNAT {
			row.Flags |= uint16(bpf.MuxAttachedFlagATTACHED_FULL_NAT)
		}
		if a.Relay {
			row.Flags |= uint16(bpf.MuxAttachedFlagATTACHED_RELAY)
		}
		rows[key] = row
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	full, err := n.withNAT(want, rows)
	if err != nil {
		return err
	}
	for number := range want {
		if n.named[number] {
			continue
		}
		if err := n.tables.NetworkCounts.Put(number, make([]bpf.MuxCounter, ebpf.MustPossibleCPU())); err != nil {
			return fmt.Errorf("set the counter of attachment %d: %w", number, err)
		}
	}
	if err := n.nat.AddAttachments(full); err != nil {
		return err
	}
	if err := abi.WriteTable(n.tables.NetworkVIPs, rows); err != nil {
		return fmt.Errorf("set attachments: %w", err)
	}
	if err := n.nat.SetAttachments(full); err != nil {
		return err
	}
	clear(n.named)
	for number := range want {
		n.named[number] = true
	}
	return nil
}

// What the programs do with an attachment's segments.
const (
	attachedNAT      = uint16(bpf.MuxAttachedFlagATTACHED_NAT)
	attachedSessions = uint16(bpf.MuxAttachedFlagATTACHED_SESSIONS)
)

// withNAT marks the rows of attachments that have full NAT, or had it: sessions of these may live. It returns those.
func (n *Networks) withNAT(want map[uint32]Attachment, rows map[bpf.MuxNetworkAddress]bpf.MuxAttachedVip) (map[uint32]nat.Attachment, error) {
	before, err := nat.ReadAttachments(n.tables)
	if err != nil {
		return nil, err
	}
	full := map[uint32]nat.Attachment{}
	for key, row := range rows {
		a := want[row.Attachment]
		of := nat.Attachment{VNI: a.VNI, VIP: a.VIP, Tenant: a.Tenant, GatewayMAC: a.GatewayMAC}
		was, had := before[row.Attachment]
		switch {
		case a.NAT:
			row.Flags |= attachedNAT | attachedSessions
		case had && was.VNI == a.VNI && was.VIP == a.VIP:
			row.Flags, of = row.Flags|attachedSessions, was
		default:
			continue
		}
		rows[key], full[row.Attachment] = row, of
	}
	return full, nil
}

// AttachmentCounter counts the packets that were forwarded for an attachment, since it was set.
func (n *Networks) AttachmentCounter(number uint32) (model.Counter, error) {
	return abi.Counter(n.tables.NetworkCounts, number)
}

// Host is one that sends VXLAN to muxes.
type Host struct {
	Number    uint32 // in the cluster
	Agent     bool   // one runs there
	Server    bool   // it has servers, whose answers may go by muxes
	Addresses []netip.Addr
	VNIs      []uint32 // of the networks that it speaks for: it has workloads of them
}

// SetVTEPs makes those that may send VXLAN exactly these.
func (n *Networks) SetVTEPs(hosts []Host) error {
	vteps, rows := map[bpf.MuxNetworkAddress]bpf.MuxOverlayVtep{}, map[uint32]bpf.MuxOverlayHost{}
	owners := map[netip.Addr]uint32{}
	for _, h := range hosts {
		row := bpf.MuxOverlayVtep{Number: h.Number, Roles: bpf.MuxOverlayRoleOVERLAY_BARE}
		if h.Agent {
			row.Roles = bpf.MuxOverlayRoleOVERLAY_CLIENT
		}
		if h.Number == 0 {
			return fmt.Errorf("set VTEPs: the host of %s has no number", h.Addresses)
		}
		for _, address := range h.Addresses {
			if other, taken := owners[address]; taken && other != h.Number {
				return fmt.Errorf("set VTEPs: %s is of hosts %d and %d", address, other, h.Number)
			}
			owners[address] = h.Number
			if h.Server { // of no network
				vteps[bpf.MuxNetworkAddress{Address: bpf.ToAddress(address)}] = bpf.MuxOverlayVtep{Number: h.Number, Roles: bpf.MuxOverlayRoleOVERLAY_SERVER}
			}
			if row := rows[h.Number]; address.Is4() {
				row.V4 = bpf.ToAddress(address)
				rows[h.Number] = row
			} else {
				row.V6 = bpf.ToAddress(address)
				rows[h.Number] = row
			}
			for _, vni := range h.VNIs {
				vteps[bpf.MuxNetworkAddress{Vni: vni, Address: bpf.ToAddress(address)}] = row
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := abi.WriteTable(n.tables.VTEPs, vteps); err != nil {
		return fmt.Errorf("set VTEPs: %w", err)
	}
	return n.putHosts(rows)
}

// putHosts makes the addresses of hosts exactly these, by number.
func (n *Networks) putHosts(want map[uint32]bpf.MuxOverlayHost) error {
	all := maps.Clone(want)
	for number := range n.hosts {
		if _, kept := want[number]; !kept {
			all[number] = bpf.MuxOverlayHost{}
		}
	}
	for number, row := range all {
		if n.hosts[number] == row {
			continue
		}
		if err := n.tables.OverlayHosts.Put(number, row); err != nil {
			return fmt.Errorf("write addresses of host %d: %w", number, err)
		}
		if n.hosts[number] = row; row == (bpf.MuxOverlayHost{}) {
			delete(n.hosts, number)
		}
	}
	return nil
}

// SetHostKeys makes the keys of hosts with backends exactly these, by the hosts' numbers. FBTs are made with those of the
// id makes; those of the one before must be there still.
func (n *Networks) SetHostKeys(makes uint32, hosts map[uint32][]fbt.Key) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number := range n.keys {
		if _, kept := hosts[number]; !kept {
			if err := n.putKeys(number, bpf.MuxFbtKeys{}); err != nil {
				return err
			}
		}
	}
	for number, keys := range hosts {
		if number == 0 || number >= n.tables.HostKeys.MaxEntries() {
			return fmt.Errorf("set keys of hosts: number %d is not from 1 to %d", number, n.tables.HostKeys.MaxEntries()-1)
		}
		if err := n.putKeys(number, keyRow(keys)); err != nil {
			return err
		}
	}
	return n.writeRow(func(row *bpf.MuxMuxOverlay) { row.Makes = makes })
}

// HostsWithKeys are the numbers of the hosts that have keys, in order.
func (n *Networks) HostsWithKeys() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.keys))
}

func (n *Networks) putKeys(number uint32, row bpf.MuxFbtKeys) error {
	if n.keys[number] == row {
		return nil
	}
	if err := n.tables.HostKeys.Put(number, row); err != nil {
		return fmt.Errorf("write keys of host %d: %w", number, err)
	}
	if n.keys[number] = row; row == (bpf.MuxFbtKeys{}) {
		delete(n.keys, number)
	}
	return nil
}

func keyRow(keys []fbt.Key) (row bpf.MuxFbtKeys) {
	for _, key := range keys {
		r := &row.Rows[key.ID%fbt.Keys]
		r.Id = key.ID
		for i := range r.Key {
			r.Key[i] = binary.LittleEndian.Uint64(key.Secret[8*i:])
		}
	}
	return row
}
