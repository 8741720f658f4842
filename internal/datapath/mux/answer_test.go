package mux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

// answerCase is an answer of host 1 to a client of network 100 on host 7, by the muxes. What is changed of v is not under
// the MAC, which is of a.
func answerCase(name, verdict string, p pkt.Packet, change func(v *pkt.VXLAN, a *fbt.Answer)) packetCase {
	_, keys := oracleKeys()
	key := keys[1][1]
	a := fbt.Answer{
		VNI: 100, Host: 7, ClientMAC: p.Destination,
		Client: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort), VIP: netip.AddrPortFrom(p.IP.Source, p.SourcePort),
		UDP: p.Protocol == layers.IPProtocolUDP,
	}
	v := pkt.VXLAN{
		Source: testHop.Destination, Destination: testMAC, VNI: a.VNI, SourcePort: 50000, Reserved: [4]byte{0, 0, 7, 0x58 | byte(key.ID)%4},
		Outer: pkt.IP{Source: netip.MustParseAddr("10.3.0.1"), Destination: overlay4, TTL: 60, TOS: 3},
	}
	if change != nil {
		change(&v, &a)
	}
	p.Source = a.MAC(key)
	c := packetCase{name: name, verdict: verdict, packet: p, change: withNetworks(nil), damage: func([]byte) []byte { return v.Frame(p) }}
	if verdict == "relay_answer" {
		c.check = checkAnswer
	}
	return c
}

func answerCases() []packetCase {
	answer, answer6 := pkt.TCP(tenantVIP4, tenant4, pkt.ACK), pkt.TCP(tenantVIP6, tenant6, pkt.SYN|pkt.ACK, pkt.MSS(1354))
	by6 := func(v *pkt.VXLAN, _ *fbt.Answer) {
		v.Outer.Source, v.Outer.Destination = netip.MustParseAddr("fd03::1"), overlay6
	}
	from := func(address string) func(*pkt.VXLAN, *fbt.Answer) {
		return func(v *pkt.VXLAN, _ *fbt.Answer) { v.Outer.Source = netip.MustParseAddr(address) }
	}
	to := func(host byte) func(*pkt.VXLAN, *fbt.Answer) {
		return func(v *pkt.VXLAN, a *fbt.Answer) { v.Reserved[2], a.Host = host, uint32(host) }
	}
	return []packetCase{
		answerCase("answer by a mux", "relay_answer", answer, nil),
		answerCase("answer by a mux, v6", "relay_answer", answer6, nil),
		answerCase("answer by a mux, by v6", "relay_answer", answer, by6),
		answerCase("answer by a mux, v6 by v6", "relay_answer", answer6, by6),
		answerCase("answer to a host without an agent", "relay_answer", answer, to(8)),
		answerCase("answer from a stranger", "drop_not_a_vtep", answer, from("10.7.7.7")),
		answerCase("answer from a host of clients", "drop_not_a_vtep", answer, from("10.2.0.1")),
		answerCase("answer from another server's host", "drop_answer_forged", answer, from("10.3.0.2")),
		answerCase("answer from a host without a key", "drop_no_host_key", answer, from("10.3.0.4")),
		answerCase("answer to another host", "drop_answer_forged", answer, func(v *pkt.VXLAN, _ *fbt.Answer) { v.Reserved[2] = 8 }),
		answerCase("answer in another network", "drop_answer_forged", answer, func(v *pkt.VXLAN, _ *fbt.Answer) { v.VNI = 0xabcdef }),
		answerCase("answer to another port", "drop_answer_forged", answer, func(_ *pkt.VXLAN, a *fbt.Answer) {
			a.Client = netip.AddrPortFrom(a.Client.Addr(), a.Client.Port()+1)
		}),
		answerCase("answer to another MAC", "drop_answer_forged", answer, func(_ *pkt.VXLAN, a *fbt.Answer) { a.ClientMAC[5]++ }),
		answerCase("answer under another key", "drop_answer_forged", answer, func(v *pkt.VXLAN, _ *fbt.Answer) { v.Reserved[3] = 0x58 | 5%4 }),
		answerCase("answer under no key", "drop_no_host_key", answer, func(v *pkt.VXLAN, _ *fbt.Answer) { v.Reserved[3] = 0x58 | 3 }),
		answerCase("answer to a host that there is not", "drop_answer_host", answer, to(77)),
		answerCase("answer to a host that has no clients", "drop_answer_host", answer, to(2)),
		answerCase("answer to a host of another network", "drop_answer_host", answer, func(v *pkt.VXLAN, a *fbt.Answer) {
			to(9)(v, a)
			v.VNI, a.VNI = 0xabcdef, 0xabcdef
		}),
		answerCase("answer from no VIP", "drop_no_attachment", pkt.TCP("10.99.0.77:80", tenant4, pkt.ACK), nil),
		answerCase("answer of UDP", "relay_answer", pkt.UDP(tenantVIP4, tenant4), nil),
		answerCase("answer of UDP, v6 by v6", "relay_answer", pkt.UDP(tenantVIP6, tenant6), by6),
		answerCase("answer of another protocol", "drop_answer_forged", answer, func(_ *pkt.VXLAN, a *fbt.Answer) { a.UDP = true }),
		answerCase("answer of ICMP", "drop_vxlan", pkt.ICMP("10.99.0.1", "192.168.0.5"), nil),
		answerCase("answer that was merged", "drop_merged", pkt.TCP(tenantVIP4, tenant4, pkt.ACK, pkt.Payload(make([]byte, testMTU))), nil),
	}
}

// checkAnswer wants the answer on its way to the client's host, and nothing else changed.
func checkAnswer(t *testing.T, frame, out []byte) {
	t.Helper()
	was, sent, err := pkt.DecodeVXLAN(frame)
	if err != nil {
		t.Fatal(err)
	}
	is, got, err := pkt.DecodeVXLAN(out)
	if err != nil {
		t.Fatal(err)
	}
	want := was
	want.Source, want.Destination, want.Reserved = was.Destination, was.Source, [4]byte{}
	want.Outer.Source, want.Outer.TTL = overlay4, 64
	host := oracleHosts[was.Reserved[2]-7]
	if want.Outer.Destination = host.Addresses[0]; was.Outer.Source.Is6() {
		want.Outer.Source, want.Outer.Destination = overlay6, host.Addresses[1]
	}
	if !reflect.DeepEqual(is, want) {
		t.Errorf("sent in %+v, want %+v", is, want)
	}
	sent.Source = oracleGateway
	if !bytes.Equal(got.Frame(), sent.Frame()) {
		t.Errorf("inside is %+v, want %+v", got, sent)
	}
}

// answered says what is wrong with a server's answer that was sent on: it is under a right MAC, from a VIP of the network to
// a host of its clients, and nothing inside is changed.
func answered(out, in ipHeader) error {
	vni, host := binary.BigEndian.Uint32(in.behind[12:])>>8, binary.BigEndian.Uint32(in.behind[8:])&0xffffff
	inner, err := readHeader(in.behind[30:])
	if err != nil || len(inner.behind) < 8 {
		return fmt.Errorf("an answer of %d bytes: %w", len(in.behind), err)
	}
	if len(out.behind) != len(in.behind) || !bytes.Equal(in.behind[30:], out.behind[30:]) || !bytes.Equal(in.behind[16:22], out.behind[16:22]) {
		return fmt.Errorf("an answer from %s was changed", inner.from)
	}
	if !slices.ContainsFunc(networkVIPs(vni), func(vip netip.Addr) bool { return vip == inner.from }) {
		return fmt.Errorf("an answer in network %d from %s", vni, inner.from)
	}
	if !slices.ContainsFunc(slices.Concat(oracleHosts, oracleServers), func(h overlay.Host) bool {
		return h.Number == host && slices.Contains(h.Addresses, out.to) && slices.Contains(h.VNIs, vni)
	}) {
		return fmt.Errorf("an answer in network %d to %s", vni, out.to)
	}
	a := fbt.Answer{
		VNI: vni, Host: host, ClientMAC: [6]byte(in.behind[16:]),
		VIP:    netip.AddrPortFrom(inner.from, binary.BigEndian.Uint16(inner.behind)),
		Client: netip.AddrPortFrom(inner.to, binary.BigEndian.Uint16(inner.behind[2:])), UDP: inner.protocol == 17,
	}
	_, keys := oracleKeys()
	for _, h := range oracleServers {
		for _, key := range keys[h.Number] {
			if slices.Contains(h.Addresses, in.from) && a.MAC(key) == [6]byte(in.behind[22:]) {
				return nil
			}
		}
	}
	return fmt.Errorf("an answer from %s that no host made", in.from)
}

// networkVIPs are the addresses of a network's VIPs.
func networkVIPs(vni uint32) (vips []netip.Addr) {
	for _, a := range oracleAttachments {
		if a.VNI == vni {
			vips = append(vips, a.VIP)
		}
	}
	return vips
}
