package answer

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// VIP is an address of a virtual network.
type VIP struct {
	VNI     uint32
	Address netip.Addr
}

// Mode is which answers of a VIP go by muxes.
type Mode struct {
	Gateway [6]byte // from where the network's frames come
	FullNAT bool    // all
	Relay   bool    // those to clients whose host has no agent
}

// Host is one of clients.
type Host struct {
	Number uint32
	VNIs   []uint32 // of the networks that it has clients of
}

// Mux is what a mux is told.
type Mux struct {
	Addresses []netip.Addr // that VXLAN comes to, one of each family
	Modes     map[VIP]Mode
	Servers   map[netip.Addr]uint32 // numbers of hosts with servers
	Keys      map[uint32][]fbt.Key  // by those
	Hosts     map[netip.Addr]Host
}

// IsVia says whether the answers to a client go by a mux; agent: its host has one.
func (m *Mux) IsVia(vni uint32, vip netip.Addr, agent bool) bool {
	mode := m.Modes[VIP{vni, vip}]
	return mode.FullNAT || mode.Relay && !agent
}

const flag, keyBits, ttl = 0x58, 3, 64

// Is says whether a VXLAN header is that of an answer.
func Is(vxlan []byte) bool { return vxlan[7]&^keyBits == flag }

// Forward sends an answer on to the client's host, in the frame that it came in, whose IP header is at l3 and UDP's at l4.
// Both have been looked at.
func (m *Mux) Forward(frame []byte, l3, l4, length, mtu int) (verdict string, out []byte) {
	udp := frame[l4:][:binary.BigEndian.Uint16(frame[l4+4:])]
	v4 := frame[l3]>>4 == 4
	says, protocol, ok := m.read(udp)
	if l4-l3 != inet.FixedHeader(v4) || !ok {
		return "drop_vxlan", nil
	}
	from := netip.AddrFrom4([4]byte(frame[l3+12:]))
	if !v4 {
		from = netip.AddrFrom16([16]byte(frame[l3+8:]))
	}
	sender, known := m.Servers[from]
	if !known {
		return "drop_not_a_vtep", nil
	}
	made := slices.IndexFunc(m.Keys[sender], func(k fbt.Key) bool { return byte(k.ID)&keyBits == udp[15]&keyBits })
	if made < 0 {
		return "drop_no_host_key", nil
	}
	mode, attached := m.Modes[VIP{says.VNI, says.VIP.Addr()}]
	to := m.hostOf(says.Host, says.VNI, v4)
	switch {
	case says.MAC(m.Keys[sender][made]) != [6]byte(udp[22:]):
		return "drop_answer_forged", nil
	case !attached:
		return "drop_no_attachment", nil
	case !to.IsValid():
		return "drop_answer_host", nil
	case length > mtu:
		return "drop_merged", nil
	}
	out = bytes.Clone(frame)
	copy(out, frame[6:12])
	copy(out[6:], frame[:6])
	sent := out[l4:][:len(udp)]
	copy(sent[6:], []byte{0, 0, 8, 0, 0, 0})
	sent[15] = 0
	copy(sent[22:], mode.Gateway[:])
	m.readdress(out[l3:], sent, to, protocol)
	return "relay_answer", out
}

// read is what a packet says, from UDP's header on: TCP or UDP in one piece, without options of IP, as long as what holds it.
func (m *Mux) read(udp []byte) (a fbt.Answer, protocol byte, ok bool) {
	a = fbt.Answer{
		Host: binary.BigEndian.Uint32(udp[8:]) & 0xffffff, VNI: binary.BigEndian.Uint32(udp[12:]) >> 8, ClientMAC: [6]byte(udp[16:]),
	}
	ip := udp[30:]
	length, header := 0, 40
	var from, to netip.Addr
	switch ethertype := binary.BigEndian.Uint16(udp[28:]); {
	case ethertype == 0x0800 && len(ip) >= 20 && ip[0] == 0x45 && binary.BigEndian.Uint16(ip[6:])&0xbfff == 0:
		length, header, protocol = int(binary.BigEndian.Uint16(ip[2:])), 20, ip[9]
		from, to = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	case ethertype == 0x86dd && len(ip) >= 40 && ip[0]>>4 == 6:
		length, protocol = 40+int(binary.BigEndian.Uint16(ip[4:])), ip[6]
		from, to = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	}
	least := map[byte]int{6: 20, 17: 8}[protocol]
	if least == 0 || length != len(ip) || length < header+least || from.Is4In6() || to.Is4In6() {
		return a, 0, false
	}
	ports := ip[header:]
	a.VIP = netip.AddrPortFrom(from, binary.BigEndian.Uint16(ports))
	a.Client = netip.AddrPortFrom(to, binary.BigEndian.Uint16(ports[2:]))
	a.UDP = protocol == 17
	return a, protocol, true
}

// readdress writes the outer addresses. Over IPv6 UDP's checksum is right if that inside is; if there is none inside, it is
// none either.
func (m *Mux) readdress(ip, udp []byte, to netip.Addr, protocol byte) {
	from := m.Addresses[slices.IndexFunc(m.Addresses, func(a netip.Addr) bool { return a.Is4() == to.Is4() })]
	if to.Is4() {
		ip[8], ip[10], ip[11] = ttl, 0, 0
		copy(ip[12:], from.AsSlice())
		copy(ip[16:], to.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], inet.Checksum(ip[:20]))
		return
	}
	ip[7] = ttl
	copy(ip[8:], from.AsSlice())
	copy(ip[24:], to.AsSlice())
	inside := bytes.Clone(udp)
	header := inside[30:][:inet.FixedHeader(inside[30]>>4 == 4)]
	segment := inside[30+len(header):]
	at := map[byte]int{6: 16, 17: 6}[protocol]
	if protocol == 17 && segment[at]|segment[at+1] == 0 {
		return
	}
	segment[at], segment[at+1] = 0, 0
	pseudo := append(bytes.Clone(header[12:]), 0, 0, 0, protocol)
	if len(header) == 40 {
		pseudo = append(bytes.Clone(header[8:]), 0, 0, 0, protocol)
	}
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(segment)))
	binary.BigEndian.PutUint16(segment[at:], inet.Checksum(pseudo, segment))
	sum := inet.Checksum(inet.PseudoUDP(from, to, len(udp)), inside)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
}

// hostOf is the address of a family of a host that has clients of a network.
func (m *Mux) hostOf(number, vni uint32, v4 bool) (address netip.Addr) {
	for a, h := range m.Hosts {
		if h.Number == number && number != 0 && a.Is4() == v4 && slices.Contains(h.VNIs, vni) {
			return a
		}
	}
	return netip.Addr{}
}

// Way is from where and to where answers to a client's host go that a mux is to send on: over IPv4, if the server's host,
// the muxes and the client's host have it, else over IPv6. What is not valid is not there.
func Way(own, muxes, client []netip.Addr) (from, to netip.Addr, ok bool) {
	of := func(all []netip.Addr, v4 bool) netip.Addr {
		if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.IsValid() && a.Is4() == v4 }); i >= 0 {
			return all[i]
		}
		return netip.Addr{}
	}
	for _, v4 := range []bool{true, false} {
		if from, to = of(own, v4), of(muxes, v4); from.IsValid() && to.IsValid() && of(client, v4).IsValid() {
			return from, to, true
		}
	}
	return netip.Addr{}, netip.Addr{}, false
}

// Sign makes a packet in VXLAN, from its IP header on, an answer.
func Sign(sent []byte, keys []fbt.Key, a fbt.Answer) {
	udp := sent[inet.FixedHeader(sent[0]>>4 == 4):]
	key := fbt.MakesOf(keys)
	copy(udp[8:], a.VXLAN(key))
	mac := a.MAC(key)
	copy(udp[22:], mac[:])
}
