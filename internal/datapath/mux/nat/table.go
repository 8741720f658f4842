package nat

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nexthop"
	"github.com/weirlb/weir/internal/datapath/overlay/quota"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// Slot is a backend's place in its endpoint, of TCP.
type Slot struct {
	Service netip.Addr // the VIP's own address
	Port    uint16     // 0: all ports
	Slot    model.Slot
}

// Backend is what connections to a slot go to.
type Backend struct {
	Address     netip.AddrPort // port 0: the VIP's
	IdleTimeout time.Duration  // of open sessions; 0: none
}

// Host is one of clients.
type Host struct {
	Number uint32
	V4, V6 netip.Addr // its tunnel addresses; not valid: none of the family
}

// Table knows backends and hosts by the numbers that sessions have. The caller holds the data plane's lock.
type Table struct {
	tables  *bpf.Tables
	hops    *nexthop.Hops
	tunnels *nexthop.Tunnels

	slots    map[Slot]Backend
	numbers  map[Slot]uint32
	backends map[uint32]Backend // by number: those of slots, and those that sessions may have still
	ids      *alloc.IDs
	hosts    map[uint32]Host

	sessions sessions // nil until they are mapped, as quotas
	quotas   quota.Quotas
	raw      [][]byte
}

// New knows none yet.
func New(tables *bpf.Tables, backends uint32, hops *nexthop.Hops, tunnels *nexthop.Tunnels) *Table {
	return &Table{
		tables: tables, hops: hops, tunnels: tunnels, slots: map[Slot]Backend{}, numbers: map[Slot]uint32{},
		backends: map[uint32]Backend{}, hosts: map[uint32]Host{}, ids: alloc.NewIDs("nat_backends", backends),
	}
}

// open maps what the programs write, once.
func (t *Table) open() (err error) {
	if t.sessions != nil {
		return nil
	}
	if t.quotas, err = abi.MapRows[quota.Row](&t.raw, t.tables.NATTenants); err != nil {
		return fmt.Errorf("map table tenants: %w", err)
	}
	if t.sessions, err = abi.MapRows[bpf.MuxOverlaySet](&t.raw, t.tables.NATSessions); err != nil {
		return fmt.Errorf("map table session_sets: %w", err)
	}
	return nil
}

// Close ends the sharing of memory with packets.
func (t *Table) Close() {
	abi.Unmap(&t.raw)
	t.sessions, t.quotas = nil, nil
}

// MaxHostBits bounds how many addresses a NAT prefix has.
const MaxHostBits = vnet.MaxNATBits

// Room is how many sessions a NAT prefix has addresses and ports for.
func Room(p netip.Prefix) int {
	return 1 << (p.Addr().BitLen() - p.Bits() + int(bpf.MuxNatLayoutNAT_PORT_BITS))
}

// SetPrefixes says which NAT addresses the mux has; not valid: none of the family.
func (t *Table) SetPrefixes(v4, v6 netip.Prefix) error {
	var row bpf.MuxMuxNat
	rows := t.tables.NATSessions.MaxEntries() * uint32(Ways)
	for i, p := range []netip.Prefix{v4, v6} {
		if !p.IsValid() {
			continue
		}
		bits := p.Addr().BitLen() - p.Bits()
		switch {
		case p.Addr().Is4() != (i == 0) || p.Masked() != p:
			return fmt.Errorf("set NAT prefix %s: it is no prefix of the family", p)
		case bits > MaxHostBits:
			return fmt.Errorf("set NAT prefix %s: it may have at most %d addresses", p, 1<<MaxHostBits)
		case int(rows) > Room(p):
			return fmt.Errorf("set NAT prefix %s: it is too small for %d sessions", p, rows)
		}
		to := &row.Prefixes[i]
		row.Any = 1
		to.Address, to.Bits = bpf.ToAddress(p.Addr()), uint32(bits)
		to.Mask = abi.Words(netip.AddrFrom16([16]byte{12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}))[3]
		low := [16]byte{0: 1} // not an IPv4 address mapped into IPv6
		for bit := range bits {
			low[15-bit/8] |= 1 << (bit % 8)
		}
		to.Mask &^= abi.Words(netip.AddrFrom16(low))[3]
	}
	if err := t.tables.NAT.Put(uint32(0), row); err != nil {
		return fmt.Errorf("write NAT prefixes: %w", err)
	}
	return nil
}

// Prefixes are those that are set.
func (t *Table) Prefixes() (v4, v6 netip.Prefix, err error) {
	var row bpf.MuxMuxNat
	if err := t.tables.NAT.Lookup(uint32(0), &row); err != nil {
		return v4, v6, fmt.Errorf("read NAT prefixes: %w", err)
	}
	for i, to := range []*netip.Prefix{&v4, &v6} {
		if r := row.Prefixes[i]; r.Mask != 0 {
			address := bpf.FromAddress(r.Address)
			*to = netip.PrefixFrom(address, address.BitLen()-int(r.Bits))
		}
	}
	return v4, v6, nil
}

// SetBackends makes the backends of slots exactly those. Sessions keep theirs.
func (t *Table) SetBackends(want map[Slot]Backend) error {
	for slot, b := range want {
		if !b.Address.Addr().IsValid() || b.Address.Addr().Is4() != slot.Service.Is4() {
			return fmt.Errorf("set backends: %s is not of the family of %s", b.Address, slot.Service)
		}
	}
	fresh := maps.Clone(t.numbers)
	maps.DeleteFunc(fresh, func(slot Slot, _ uint32) bool { _, kept := want[slot]; return !kept })
	for slot, b := range want {
		if number, has := t.numbers[slot]; has && t.slots[slot].Address == b.Address {
			t.backends[number] = b // its timeout may be another
			continue
		}
		number, err := t.put(b)
		if err != nil {
			return err
		}
		fresh[slot] = number
	}
	rows := make(map[bpf.MuxNatSlot]uint32, len(fresh))
	for slot, number := range fresh {
		rows[bpf.MuxNatSlot{
			Service: bpf.ToAddress(slot.Service), Port: abi.Port(slot.Port), Protocol: unix.IPPROTO_TCP, Slot: uint32(slot.Slot),
		}] = number
	}
	if err := abi.WriteTable(t.tables.NATSlots, rows); err != nil {
		return fmt.Errorf("set backends: %w", err)
	}
	t.slots, t.numbers = maps.Clone(want), fresh
	return nil
}

// put gives a backend a number.
func (t *Table) put(b Backend) (uint32, error) {
	number, err := t.ids.Take()
	if err != nil {
		return 0, fmt.Errorf("set backends: %w", err)
	}
	t.backends[number] = b
	t.tunnels.Add(b.Address.Addr(), 1)
	return number, t.writeBackend(number)
}

func (t *Table) writeBackend(number uint32) error {
	b := t.backends[number].Address
	row := bpf.MuxNatBackend{Address: bpf.ToAddress(b.Addr()), Port: abi.Port(b.Port()), NextHop: t.hops.ID(b.Addr())}
	if err := t.tables.NATBackends.Put(number, row); err != nil {
		return fmt.Errorf("write backend %d: %w", number, err)
	}
	return nil
}

// SetHosts makes the hosts of clients exactly those.
func (t *Table) SetHosts(want []Host) error {
	fresh := make(map[uint32]Host, len(want))
	for _, h := range want {
		if h.Number == 0 || h.Number >= t.tables.NATHosts.MaxEntries() {
			return fmt.Errorf("set hosts: number %d is not from 1 to %d", h.Number, t.tables.NATHosts.MaxEntries()-1)
		}
		fresh[h.Number] = h
	}
	t.count(fresh, 1)
	t.count(t.hosts, -1)
	old := t.hosts
	t.hosts = fresh
	for number, h := range fresh {
		if is, known := old[number]; !known || is != h {
			if err := t.writeHost(number); err != nil {
				return err
			}
		}
	}
	for number := range old {
		if _, kept := fresh[number]; !kept {
			if err := t.writeHost(number); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Table) count(hosts map[uint32]Host, n int) {
	for _, h := range hosts {
		for _, a := range []netip.Addr{h.V4, h.V6} {
			if a.IsValid() {
				t.tunnels.Add(a, n)
			}
		}
	}
}

func (t *Table) writeHost(number uint32) error {
	h := t.hosts[number]
	row := bpf.MuxNatHost{}
	if h.V4.IsValid() {
		row.V4, row.NextHop4 = bpf.ToAddress(h.V4), t.hops.ID(h.V4)
	}
	if h.V6.IsValid() {
		row.V6, row.NextHop6 = bpf.ToAddress(h.V6), t.hops.ID(h.V6)
	}
	if err := t.tables.NATHosts.Put(number, row); err != nil {
		return fmt.Errorf("write host %d: %w", number, err)
	}
	return nil
}

// Point rewrites next hops that have moved.
func (t *Table) Point(moved func(tunnel netip.Addr) bool) error {
	for number, b := range t.backends {
		if moved(b.Address.Addr()) {
			if err := t.writeBackend(number); err != nil {
				return err
			}
		}
	}
	for number, h := range t.hosts {
		if h.V4.IsValid() && moved(h.V4) || h.V6.IsValid() && moved(h.V6) {
			if err := t.writeHost(number); err != nil {
				return err
			}
		}
	}
	return nil
}

// adoptedIdle ends open sessions of a backend that was removed before this process began: RFC 5382 has a NAT keep them for 2 hours
// and 4 minutes.
const adoptedIdle = 2*time.Hour + 4*time.Minute

// Adopt reads what adopted tables have.
func (t *Table) Adopt() error {
	slots, err := abi.ReadTable[bpf.MuxNatSlot, uint32](t.tables.NATSlots)
	if err != nil {
		return fmt.Errorf("read backends: %w", err)
	}
	err = errors.Join(
		abi.EachRow(t.tables.NATBackends, func(number uint32, row bpf.MuxNatBackend) {
			b := Backend{
				Address:     netip.AddrPortFrom(bpf.FromAddress(row.Address), abi.Port(row.Port)),
				IdleTimeout: adoptedIdle, // of those that a slot has, SetBackends knows better
			}
			t.backends[number] = b
			t.tunnels.Add(b.Address.Addr(), 1)
			t.hops.Adopt(b.Address.Addr(), row.NextHop)
		}),
		abi.EachRow(t.tables.NATHosts, func(number uint32, row bpf.MuxNatHost) {
			h := Host{Number: number}
			if v4 := bpf.FromAddress(row.V4); v4.Is4() {
				h.V4 = v4
				t.hops.Adopt(v4, row.NextHop4)
			}
			if v6 := bpf.FromAddress(row.V6); v6.Is6() && !v6.IsUnspecified() {
				h.V6 = v6
				t.hops.Adopt(v6, row.NextHop6)
			}
			t.hosts[number] = h
		}))
	if err != nil {
		return fmt.Errorf("read tables of full NAT: %w", err)
	}
	t.count(t.hosts, 1)
	used := make(map[uint32]bool, len(t.backends))
	for number := range t.backends {
		used[number] = true
	}
	t.ids.Claim(used)
	for key, number := range slots {
		slot := Slot{Service: bpf.FromAddress(key.Service), Port: abi.Port(key.Port), Slot: model.Slot(key.Slot)}
		t.slots[slot], t.numbers[slot] = t.backends[number], number
	}
	return nil
}
