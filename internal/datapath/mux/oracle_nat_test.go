package mux

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle"
	"github.com/weirlb/weir/internal/testkit/oracle/natstate"
)

// So few sets of full NAT's sessions that some are full.
const oracleNATSets = 16

// One prefix has all rows in its addresses, the other one mostly in its ports.
var (
	natPrefix4, natPrefix6 = netip.MustParsePrefix("10.66.0.0/16"), netip.MustParsePrefix("fd66::40/126")
)

const oracleNATBackends = 4 // whose next hops are known but of the last one

// oracleNATAddress is the i-th backend of a family.
func oracleNATAddress(v4 bool, i int) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(i + 1)})
}

// oracleNATSlots are the backends of all slots of the VIPs with full NAT, but of some.
func oracleNATSlots() map[nat.Slot]nat.Backend {
	all := map[nat.Slot]nat.Backend{}
	for _, service := range []netip.Addr{oracleVIPs[0], oracleVIPs[1], oracleAllPorts[0]} {
		for port := uint16(portPlain - 1); port <= portLast; port++ {
			for slot := 1; slot < 2*oracleBackends-2; slot++ {
				at := nat.Slot{Service: service, Port: port, Slot: model.Slot(slot)}
				if port < portPlain {
					at.Port = model.AllPorts
				}
				to := uint16(8080)
				if at.Port == model.AllPorts || slot%4 == 1 {
					to = 0
				}
				all[at] = nat.Backend{Address: netip.AddrPortFrom(oracleNATAddress(service.Is4(), slot/2%oracleNATBackends), to)}
			}
		}
	}
	return all
}

// oracleNATHops lead to the backends and to the clients' hosts, but for one of each.
func oracleNATHops() map[netip.Addr]model.NextHop {
	hops := map[netip.Addr]model.NextHop{}
	for i := range oracleNATBackends - 1 {
		for _, v4 := range []bool{true, false} {
			hops[oracleNATAddress(v4, i)] = model.NextHop{Source: testHop.Source, Destination: [6]byte{2, 0xdd, 0, 0, 0, byte(i)}}
		}
	}
	for _, h := range oracleHosts[:2] {
		for _, a := range h.Addresses {
			if a != oracleHosts[1].Addresses[1] {
				hops[a] = model.NextHop{Source: testHop.Source, Destination: [6]byte{2, 0xee, 0, 0, 0, byte(h.Number)}}
			}
		}
	}
	return hops
}

// setNAT tells the program of full NAT.
func setNAT(t testing.TB, d *Datapath) {
	t.Helper()
	var hosts []nat.Host
	for _, h := range oracleHosts {
		hosts = append(hosts, nat.Host{Number: h.Number, V4: h.Addresses[0], V6: h.Addresses[1]})
	}
	err := errors.Join(d.SetNATPrefixes(natPrefix4, natPrefix6), d.SetNATBackends(oracleNATSlots()), d.SetNATHosts(hosts))
	for tenant := range uint32(3) {
		err = errors.Join(err, d.SetNATTenant(tenant, 1<<20, 1<<20, 1<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (g *rig) restoreNATQuotas(t testing.TB) {
	t.Helper()
	wipe[bpf.MuxOverlayTenant](t, g.datapath.tables.NATTenants)
	for tenant := range uint32(3) {
		if err := g.datapath.SetNATTenant(tenant, 1<<20, 1<<20, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// oracleNAT is the same for the oracle.
func oracleNAT() *oracle.NAT {
	n := &oracle.NAT{
		Table:    natstate.Table{Prefixes: []netip.Prefix{natPrefix4, natPrefix6}, Sets: oracleNATSets},
		Attached: map[oracle.NetworkVIP][6]byte{},
		Backends: map[natstate.Slot]netip.AddrPort{}, Hosts: map[uint32][]netip.Addr{},
	}
	for _, a := range oracleAttachments {
		if a.NAT {
			n.Attached[oracle.NetworkVIP{VNI: a.VNI, VIP: a.VIP}] = a.GatewayMAC
		}
	}
	for at, b := range oracleNATSlots() {
		n.Backends[natstate.Slot(at)] = b.Address
	}
	for _, h := range oracleHosts {
		n.Hosts[h.Number] = h.Addresses
	}
	return n
}

// natClasses are packets of full NAT, both ways.
func natClasses(s scene) []oracleClass {
	return []oracleClass{
		{name: "nat-forward", verdict: "forward_nat", more: []string{
			"forward_bucket", "drop_session_full", "drop_no_backend", "drop_no_next_hop", "drop_acl", "drop_ecn",
		}, draw: s.toNAT},
		{name: "nat-both", verdict: "reply_nat", more: []string{
			"forward_nat", "drop_no_session", "drop_nat_source", "drop_no_next_hop", "drop_other_host",
		}, draw: func(r *rand.Rand) draft {
			if r.IntN(3) == 0 {
				return s.toNAT(r)
			}
			return s.fromBackend(r, r.IntN(40))
		}},
		{name: "nat-other", verdict: "drop_nat_other", draw: func(r *rand.Rand) draft {
			f := s.fromBackend(r, r.IntN(40))
			switch r.IntN(3) {
			case 0:
				f.protocol = sometimes(r, byte(17), 1, 58, 50)
			case 1:
				if f.to.Is4() {
					f.fragment = uint16(r.Uint32())
				} else {
					f.extend = drawExtensions(r)
				}
			case 2:
				if f.to.Is4() {
					f.options = []byte{1, 1, 1, 1}
				} else {
					f.extend = drawExtensions(r)
				}
			}
			return f
		}},
		{name: "nat-large", verdict: "reply_too_big", more: []string{"reply_nat", "drop_merged"}, draw: func(r *rand.Rand) draft {
			if r.IntN(4) == 0 {
				return s.toNAT(r)
			}
			f := s.fromBackend(r, 1300+r.IntN(220))
			if f.to.Is4() {
				f.fragment = sometimes(r, uint16(0x4000), 0) // "don't fragment"
			}
			return f
		}},
	}
}

// toNAT is a client's segment to a VIP with full NAT.
func (s scene) toNAT(r *rand.Rand) draft {
	to, vni := "10.99.0.8", sometimes(r, uint32(100), 0xabcdef)
	if r.IntN(8) == 0 {
		to = "10.99.0.9"
	}
	if !s.vip.Is4() {
		to, vni = "fd12::97", 100
	}
	port := sometimes(r, uint16(portPlain), everyPort...)
	from := netip.AddrPortFrom(oracleAddress(r, s.vip), uint16(1024+r.IntN(2)))
	flags := sometimes(r, byte(0x02), 0x10, 0x10, 0x18, 0x11, 0x14, drawFlags(r))
	inner := draftTCP(from, netip.AddrPortFrom(netip.MustParseAddr(to), port), flags, natOptions(r), r.IntN(40), r)
	inner.tos = sometimes(r, byte(2), 0, 1, 3)
	natNumbers(r, &inner)
	f := s.carried(r, vni, inner)
	f.tos = sometimes(r, byte(0), 1, 2, 3)
	return f
}

// natNumbers are few and near each other, so that ends agree now and then.
func natNumbers(r *rand.Rand, f *draft) {
	seq, ack := uint32(r.IntN(3))-1+uint32(r.IntN(2)*30000), uint32(r.IntN(4))
	if r.IntN(16) == 0 {
		seq, ack = r.Uint32(), r.Uint32()
	}
	binary.BigEndian.PutUint32(f.transport[4:], seq)
	binary.BigEndian.PutUint32(f.transport[8:], ack)
}

func natOptions(r *rand.Rand) []byte {
	if r.IntN(3) == 0 {
		return drawOptions(r)
	}
	options := []byte{2, 4, byte(r.IntN(7)), byte(r.Uint32())}
	for range r.IntN(3) {
		options = append([]byte{1}, options...)
	}
	return options
}

// fromBackend is a segment to a NAT address, mostly of a backend.
func (s scene) fromBackend(r *rand.Rand, length int) draft {
	row := uint32(r.IntN(oracleNATSets*16 + 8))
	to, port := natPrefix4.Addr().As16(), uint16(0x8000)
	if s.vip.Is4() {
		to[14], to[15] = byte(row>>8), byte(row)
	} else {
		to = natPrefix6.Addr().As16()
		to[15] |= byte(row & 3)
		port += uint16(row >> 2)
	}
	if r.IntN(16) == 0 {
		port ^= 1 << r.IntN(16)
	}
	from := netip.AddrPortFrom(oracleNATAddress(s.vip.Is4(), r.IntN(oracleNATBackends)), sometimes(r, uint16(8080), portPlain))
	flags := sometimes(r, byte(0x12), 0x10, 0x18, 0x11, 0x14, drawFlags(r))
	f := draftTCP(from, netip.AddrPortFrom(netip.AddrFrom16(to).Unmap(), port), flags, natOptions(r), length, r)
	natNumbers(r, &f)
	return f
}
