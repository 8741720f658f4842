package overlay

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package overlay -type overlay_role -type overlay_workload overlay ../../../bpf/overlay/overlay.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -I../../../bpf/include

// Config is what the programs are loaded with.
type Config struct {
	Sets   uint32 // of sessions, a power of two
	Uplink uint32 // ifindex
	MTU    uint32
	// Local prefixes: the server knows a client by an address of them. Of IPv6 48 bits; not valid: none.
	Local4, Local6 netip.Prefix
	Seal           [2]uint32 // what tells the programs' own packets at the uplink
}

// Datapath is the programs and their tables, attached to nothing.
type Datapath struct {
	objects  overlayObjects
	verdicts abi.Verdicts
	*Table
}

// Load loads them.
func Load(c Config) (*Datapath, error) {
	spec, err := loadOverlay()
	if err != nil {
		return nil, fmt.Errorf("read overlay's programs: %w", err)
	}
	if c.Sets == 0 || c.Sets&(c.Sets-1) != 0 {
		return nil, fmt.Errorf("load overlay's programs: %d sets are no power of two", c.Sets)
	}
	if c.Local4.IsValid() && uint64(c.Sets)*Ways > 1<<(32-c.Local4.Bits()) {
		return nil, fmt.Errorf("load overlay's programs: %s has fewer addresses than the table rows, %d", c.Local4, c.Sets*Ways)
	}
	spec.Maps["session_sets"].MaxEntries = c.Sets
	key := make([]byte, 40)
	_, _ = rand.Read(key) // never fails
	d := &Datapath{}
	if d.verdicts, err = abi.VerdictsOf(spec); err != nil {
		return nil, err
	}
	err = errors.Join(spec.Variables[overlayVarHashKey].Set(key), spec.Variables[overlayVarSettings].Set(c.settings()))
	if err != nil {
		return nil, fmt.Errorf("set overlay's settings: %w", err)
	}
	if err := spec.LoadAndAssign(&d.objects, nil); err != nil {
		return nil, fmt.Errorf("load overlay's programs: %w", err)
	}
	if d.Table, err = Map(d.objects.SessionSets); err != nil {
		return nil, errors.Join(err, d.objects.Close())
	}
	return d, nil
}

// Close unloads them.
func (d *Datapath) Close() error { return errors.Join(d.Table.Close(), d.objects.Close()) }

func (c Config) settings() *overlayOverlaySettings {
	s := &overlayOverlaySettings{
		SetMask: c.Sets - 1, OldMask: c.Sets - 1, Uplink: c.Uplink, Mtu: c.MTU, Seal: c.Seal,
	}
	if c.Local4.IsValid() {
		s.Local4 = abi.Words(c.Local4.Masked().Addr())[3]
		mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-c.Local4.Bits()))
		s.Local4Mask = binary.NativeEndian.Uint32(mask)
	}
	if c.Local6.IsValid() {
		words := abi.Words(netip.PrefixFrom(c.Local6.Addr(), 48).Masked().Addr())
		s.Local6 = [2]uint32(words[:2])
	}
	return s
}

// SetKeys sets the keys of FBTs to this host.
func (d *Datapath) SetKeys(keys []fbt.Key) error {
	var rows overlayFbtKeys
	for _, key := range keys {
		row := &rows.Rows[key.ID%fbt.Keys]
		row.Id = key.ID
		for i := range row.Key {
			row.Key[i] = binary.LittleEndian.Uint64(key.Secret[8*i:])
		}
	}
	if err := d.objects.FbtKeys.Set(&rows); err != nil {
		return fmt.Errorf("set keys of FBTs: %w", err)
	}
	return nil
}

// Attachment is a VIP in a virtual network.
type Attachment struct {
	VNI        uint32
	VIP        netip.Addr // in that network
	Service    netip.Addr // the VIP's own address, by which rules know it
	Tenant     uint32     // of the network
	GatewayMAC [6]byte
}

// SetAttachment puts an attachment under its number, which is not 0.
func (d *Datapath) SetAttachment(number uint32, a Attachment) error {
	row := overlayOverlayAttachment{Vni: a.VNI, Tenant: a.Tenant, GatewayMac: a.GatewayMAC}
	row.Vip.Words, row.Service.Words = abi.Words(a.VIP), abi.Words(a.Service)
	key := overlayNetworkVip{Vni: a.VNI}
	key.Vip.Words = row.Vip.Words
	if err := errors.Join(d.objects.Attachments.Put(number, row), d.objects.NetworkVips.Put(key, number)); err != nil {
		return fmt.Errorf("set attachment of %s in network %d: %w", a.VIP, a.VNI, err)
	}
	return nil
}

// Rule is a backend behind a tunnel address of this host.
type Rule struct {
	Service netip.AddrPort // port 0: all ports
	Tunnel  netip.Addr
	Backend netip.AddrPort
	Ifindex uint32 // 0: the workload is on the host itself
}

// SetRule puts a rule under its number. A number is another rule's only when no session has it.
func (d *Datapath) SetRule(number uint32, r Rule) error {
	const tcp, native, behindInterface = 6, 1, 2
	row := overlayOverlayRule{Port: abi.Port(r.Backend.Port()), Workload: native, Ifindex: r.Ifindex}
	if r.Ifindex != 0 {
		row.Workload = behindInterface
	}
	row.Dip.Words, row.Tunnel.Words = abi.Words(r.Backend.Addr()), abi.Words(r.Tunnel)
	key := overlayOverlayRuleKey{Port: abi.Port(r.Service.Port()), Protocol: tcp}
	key.Vip.Words, key.Tunnel.Words = abi.Words(r.Service.Addr()), row.Tunnel.Words
	if err := errors.Join(d.objects.RuleRows.Put(number, row), d.objects.Rules.Put(key, number)); err != nil {
		return fmt.Errorf("set rule of %s: %w", r.Service, err)
	}
	return nil
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

// SetHost names the tunnel addresses of a host, or of a mux (number 0), and what they may send.
func (d *Datapath) SetHost(number uint32, roles Role, v4, v6 netip.Addr) error {
	row := overlayOverlayHost{}
	row.V4.Words, row.V6.Words = abi.Words(v4), abi.Words(v6)
	if number != 0 {
		if err := d.objects.Hosts.Put(number, row); err != nil {
			return fmt.Errorf("set host %d: %w", number, err)
		}
	}
	for _, a := range []netip.Addr{v4, v6} {
		if !a.IsValid() {
			continue
		}
		vtep := overlayOverlayVtep{Number: number, Roles: overlayOverlayRole(roles)}
		if err := d.objects.Vteps.Put(overlayAddress{Words: abi.Words(a)}, vtep); err != nil {
			return fmt.Errorf("set tunnel address %s: %w", a, err)
		}
	}
	return nil
}

// SetTenant sets how many sessions a tenant has of its own and at most, and how many half-open ones. Of tenant 0 own is
// what all may borrow together.
func (d *Datapath) SetTenant(number, own, most, halfOpen uint32) error {
	var row overlayOverlayTenant
	if err := d.objects.Tenants.Lookup(number, &row); err != nil {
		return fmt.Errorf("read tenant %d: %w", number, err)
	}
	row.Own, row.Most, row.HalfOpenMost = own, most, halfOpen
	if err := d.objects.Tenants.Put(number, row); err != nil {
		return fmt.Errorf("set tenant %d: %w", number, err)
	}
	return nil
}

// Verdicts are counters by verdict.
func (d *Datapath) Verdicts() (map[string]model.Counter, error) {
	return d.verdicts.Read(d.objects.Verdicts)
}
