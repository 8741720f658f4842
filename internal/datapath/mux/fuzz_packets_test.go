package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// How many packets TestHostilePackets sends: `go test -run TestHostilePackets ./internal/datapath/mux -packets
// 1000000`.
var hostilePackets = flag.Int("packets", 20000, "random and mutated packets of strangers")

// TestHostilePackets gives the program what strangers may send. Nothing leaves but to a backend of the VIP or a mux of
// the pool, in a valid header and with the packet as it came; or as an answer of the VIP to its sender. What passes is
// not changed, nothing is forwarded that is from no host or not for this mux, and the tables keep their sizes.
func TestHostilePackets(t *testing.T) {
	g := newRig(t, 1)
	tunnels, classes := g.tunnelsByVIP(), oracleClasses()
	random := rand.New(rand.NewPCG(15, uint64(*hostilePackets)))
	sizes := tableSizes(t, g.datapath)
	sent := map[uint32]int{}
	for n := range *hostilePackets {
		frame := classes[random.IntN(len(classes))].draw(random).frame()
		switch random.IntN(8) {
		case 0: // as it is
		case 1:
			frame = append(frame[:14:14], noise(random, 20+random.IntN(200))...)
		default:
			frame = damage(random, frame)
		}
		action, out := run(t, g.datapath, bytes.Clone(frame))
		sent[action]++
		if err := hostileOutcome(action, frame, out, tunnels); err != nil {
			t.Fatalf("packet %d: %v\n in %x\nout %x", n, err, frame, out)
		}
	}
	t.Logf("packets by action: %v", sent)
	if sent[xdpTX] == 0 || sent[xdpDrop] == 0 || sent[xdpPass] == 0 {
		t.Errorf("packets by action are %v: some are missing", sent)
	}
	if after := tableSizes(t, g.datapath); after != sizes {
		t.Errorf("rows of endpoints and sources were %v, are %v", sizes, after)
	}
	wantExact(t, g.datapath)
}

// tunnelsByVIP are the addresses that packets to a VIP may be sent to: of its backends and workloads, and of muxes.
func (g *rig) tunnelsByVIP() map[netip.Addr]map[netip.Addr]bool {
	all := map[netip.Addr]map[netip.Addr]bool{}
	add := func(vip, tunnel netip.Addr) {
		if all[vip] == nil {
			all[vip] = map[netip.Addr]bool{}
			for _, member := range oracleMembers {
				for _, a := range member.Addresses {
					all[vip][a] = a != source4 && a != source6
				}
			}
		}
		all[vip][tunnel] = true
	}
	for _, e := range slices.Concat(g.before, g.after) {
		for _, b := range e.Backends {
			add(e.Key.VIP, b.Tunnel)
		}
	}
	for _, s := range g.ranges {
		add(s.Key.VIP, s.Tunnel)
	}
	return all
}

// tableSizes counts the rows of the tables that have as many as were written.
func tableSizes(t *testing.T, d *Datapath) (rows [2]int) {
	t.Helper()
	for i, table := range []*ebpf.Map{d.tables.Endpoints, d.tables.Sources} {
		key, value := make([]byte, table.KeySize()), make([]byte, table.ValueSize())
		for all := table.Iterate(); all.Next(&key, &value); {
			rows[i]++
		}
	}
	return rows
}

// ipHeader is what an IP header says of the packet.
type ipHeader struct {
	from, to netip.Addr
	protocol byte
	behind   []byte
}

// readIP reads the IP packet behind Ethernet and up to two tags, or nil.
func readIP(frame []byte) []byte {
	at := 14
	for range 2 {
		if len(frame) > at+4 && slices.Contains([]uint16{0x8100, 0x88a8}, binary.BigEndian.Uint16(frame[at-2:])) {
			at += 4
		}
	}
	return frame[min(at, len(frame)):]
}

func readHeader(ip []byte) (h ipHeader, err error) {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		from, to := netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		return ipHeader{from, to, ip[9], ip[min(len(ip), int(ip[0]&15)*4):]}, nil
	case len(ip) >= 40 && ip[0]>>4 == 6:
		from, to := netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		return ipHeader{from, to, ip[6], ip[40:]}, nil
	}
	return h, errors.New("no IP header")
}

// isMartian says whether no host has the address.
func isMartian(a netip.Addr) bool {
	if a.Is4() {
		return a.As4()[0] == 0 || a.As4()[0] == 127 || a.As4()[0] >= 224
	}
	return a.IsMulticast() || a.IsLoopback() || a.IsUnspecified()
}

// hostileOutcome says what is wrong with what became of a frame.
func hostileOutcome(action uint32, frame, out []byte, tunnels map[netip.Addr]map[netip.Addr]bool) error {
	switch action {
	case xdpDrop:
		return nil
	case xdpPass:
		if !bytes.Equal(frame, out) {
			return errors.New("what passes was changed")
		}
		return nil
	case xdpTX:
	default:
		return fmt.Errorf("action %d", action)
	}
	if [6]byte(frame) != testMAC {
		return errors.New("the frame was for another MAC")
	}
	outer, err := readHeader(readIP(out))
	if err != nil {
		return err
	}
	in, err := readHeader(readIP(frame))
	switch {
	case isNAT(outer.from):
		return natted(outer, frame)
	case err == nil && isNAT(in.to):
		return natAnswered(outer, in)
	case outer.from == source4 || outer.from == source6:
		return encapsulated(outer, frame, tunnels)
	}
	if err == nil && len(in.behind) > 50 && in.behind[15]&^3 == 0x58 && (outer.from == overlay4 || outer.from == overlay6) {
		return answered(outer, in)
	}
	if err == nil && (outer.from == overlay4 || outer.from == overlay6) {
		return ponged(outer, in, tunnels)
	}
	if err != nil || outer.from != in.to || outer.to != in.from || tunnels[in.to] == nil || isMartian(in.from) {
		return fmt.Errorf("an answer from %s to %s, to what came from %s to %s", outer.from, outer.to, in.from, in.to)
	}
	return nil
}

// encapsulated says what is wrong with a packet in a tunnel.
func encapsulated(outer ipHeader, frame []byte, tunnels map[netip.Addr]map[netip.Addr]bool) error {
	const protocolV4, protocolV6, gueHead = 4, 41, 8 + 4
	inside := outer.behind
	protocol := outer.protocol
	if protocol == byte(model.UDP) && len(inside) > 30 && binary.BigEndian.Uint16(inside[2:]) == pkt.VXLANPort {
		return bypassed(outer, frame, tunnels)
	}
	if protocol == byte(model.UDP) {
		if len(inside) < gueHead || binary.BigEndian.Uint16(inside[2:]) != 6080 ||
			int(binary.BigEndian.Uint16(inside[4:])) > len(inside) { // Ethernet's padding may follow
			return errors.New("no datagram of GUE")
		}
		protocol = inside[9]
		inside = inside[min(len(inside), gueHead+4*int(inside[8]&31)):]
	}
	if protocol != protocolV4 && protocol != protocolV6 {
		return fmt.Errorf("protocol %d in the tunnel", protocol)
	}
	if !bytes.HasSuffix(frame, inside) {
		return errors.New("the packet was changed")
	}
	inner, err := readHeader(inside)
	if err != nil {
		return err
	}
	if inner.to.Is4() != (protocol == protocolV4) {
		return fmt.Errorf("inside is %s, of protocol %d", inner.to, protocol)
	}
	if isMartian(inner.from) {
		return fmt.Errorf("forwarded from %s", inner.from)
	}
	if !tunnels[inner.to][outer.to] {
		return fmt.Errorf("a packet to %s was sent to %s", inner.to, outer.to)
	}
	return nil
}

// ponged says what is wrong with the answer to a ping in a virtual network: it is of the VIP that was asked, and goes to a
// host of that network's workloads, which asked.
func ponged(out, in ipHeader, tunnels map[netip.Addr]map[netip.Addr]bool) error {
	if len(in.behind) <= 30 || len(out.behind) != len(in.behind) || out.from != in.to || out.to != in.from {
		return fmt.Errorf("an answer in VXLAN from %s to %s, to what came from %s to %s", out.from, out.to, in.from, in.to)
	}
	vni := binary.BigEndian.Uint32(in.behind[12:]) >> 8
	if !slices.ContainsFunc(oracleHosts, func(h overlay.Host) bool { return slices.Contains(h.Addresses, out.to) && slices.Contains(h.VNIs, vni) }) {
		return fmt.Errorf("an answer in network %d to %s", vni, out.to)
	}
	asked, err := readHeader(in.behind[30:])
	if err != nil {
		return err
	}
	answer, err := readHeader(out.behind[30:])
	if err != nil || answer.from != asked.to || answer.to != asked.from || isMartian(asked.from) || len(answer.behind) < 8 {
		return fmt.Errorf("an answer from %s to %s, to what came from %s to %s", answer.from, answer.to, asked.from, asked.to)
	}
	if kind := answer.behind[0]; kind != 0 && kind != 129 {
		return fmt.Errorf("an answer of ICMP type %d", kind)
	}
	for _, a := range oracleAttachments {
		if a.VNI == vni && a.VIP == asked.to && tunnels[a.Service] != nil {
			return nil
		}
	}
	return fmt.Errorf("%s answers in network %d", asked.to, vni)
}

// bypassed says what is wrong with a segment of a virtual network's client.
func bypassed(outer ipHeader, frame []byte, tunnels map[netip.Addr]map[netip.Addr]bool) error {
	vni := binary.BigEndian.Uint32(outer.behind[12:]) >> 8
	inner, err := readHeader(outer.behind[30:])
	if err != nil {
		return err
	}
	_, found := fbt.Find(inner.behind)
	switch {
	case inner.protocol == fbt.HeaderProtocol && len(inner.behind) >= fbt.Length:
		if !bytes.HasSuffix(frame, inner.behind[fbt.Length:]) {
			return fmt.Errorf("something behind the header before protocol %d was changed", inner.behind[0])
		}
	case inner.protocol != byte(model.TCP) || !found:
		return errors.New("no segment with an FBT")
	case !bytes.HasSuffix(frame, fbt.Strip(inner.behind)[20:]):
		return errors.New("options or payload were changed")
	}
	if isMartian(inner.from) {
		return fmt.Errorf("forwarded from %s", inner.from)
	}
	for _, a := range oracleAttachments {
		if a.VNI == vni && a.VIP == inner.to && tunnels[a.Service][outer.to] {
			return nil
		}
	}
	return fmt.Errorf("a packet to %s in network %d was sent to %s", inner.to, vni, outer.to)
}
