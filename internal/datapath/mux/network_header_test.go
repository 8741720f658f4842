package mux

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

// headerCases are packets of networks that can't have an FBT among their options.
func headerCases() []packetCase {
	full := pkt.TCP(tenant4, tenantVIP4, pkt.SYN, pkt.NOP(28))
	datagram, datagram6 := pkt.UDP(tenant4, tenantVIP4), pkt.UDP(tenant6, tenantVIP6)
	empty := datagram.With(pkt.Payload(nil))
	fitting := testMTU - 40 - 30 - fbt.Length - 28 // UDP's backend is reached by IPv6
	headed := func(name, verdict string, p pkt.Packet, change func(*pkt.VXLAN)) packetCase {
		c := networkCase(name, verdict, p, change)
		c.check = func(t *testing.T, frame, out []byte) { checkHeader(t, frame, out, p) }
		return c
	}
	refused := func(name, verdict string, p pkt.Packet, change func(*pkt.VXLAN)) packetCase {
		c := headed(name, verdict, p, change)
		c.check = nil
		return c
	}
	return []packetCase{
		headed("no room between options", "forward_syn", full, nil),
		headed("no room between options, by v6", "forward_syn", full, func(v *pkt.VXLAN) { *v = inVXLAN(full, "fd02::1") }),
		headed("UDP in a network", "forward_bucket", datagram, nil),
		headed("UDP in a network, without payload", "forward_bucket", empty, nil),
		headed("UDP in a network, v6", "forward_bucket", datagram6, nil),
		headed("UDP in a network, by v6", "forward_bucket", datagram, func(v *pkt.VXLAN) { *v = inVXLAN(datagram, "fd02::1") }),
		headed("UDP in a network, v6 by v6", "forward_bucket", datagram6, func(v *pkt.VXLAN) { *v = inVXLAN(datagram6, "fd02::1") }),
		headed("UDP in a network, from a host without an agent", "forward_bucket", datagram, func(v *pkt.VXLAN) {
			v.Outer.Source, v.Reserved = netip.MustParseAddr("10.2.0.2"), [4]byte{}
		}),
		headed("UDP that just fits with the header", "forward_bucket", datagram.With(pkt.Payload(make([]byte, fitting))), nil),
		refused("UDP that does not fit with the header", "drop_too_big", datagram.With(pkt.Payload(make([]byte, fitting+1))), nil),
		refused("UDP of a stranger", "drop_not_a_vtep", datagram, func(v *pkt.VXLAN) { v.Outer.Source = netip.MustParseAddr("10.7.7.7") }),
		refused("UDP to another port of a network's VIP", "drop_no_endpoint", pkt.UDP(tenant4, "10.99.0.1:22"), nil),
		headed("first fragment in a network", "forward_fragment", datagram.With(pkt.Fragment(0, true)), nil),
		headed("first fragment in a network, v6", "forward_fragment", datagram6.With(pkt.Fragment(0, true)), nil),
		refused("later fragment before the first one", "drop_fragment_early", datagram.With(pkt.Fragment(80, false)), nil),
		errorCase("error in a network", tenant4, tenantVIP4, "192.168.0.1"),
		errorCase("error in a network, v6", tenant6, tenantVIP6, "fd12::1"),
		refused("header of a client's own", "drop_inner_other", datagram.With(pkt.Protocol(fbt.HeaderProtocol)), nil),
	}
}

// errorCase is an ICMP error of a router in the client's network, about what a server has sent.
func errorCase(name, client, vip, router string) packetCase {
	about := pkt.UDP(vip, client)
	c := networkCase(name, "forward_icmp", about, nil)
	frame := pkt.Error(netip.MustParseAddr(router), about.IP.Source, about, 64)
	c.damage = func([]byte) []byte { return inVXLAN(about, agentHost).Carry(frame) }
	c.check = func(t *testing.T, frame, out []byte) {
		checkHeader(t, frame, out, pkt.UDP(client, vip))
	}
	return c
}

// checkHeader wants what is of the flow of p in VXLAN again, with a bypass header of host 1's key, and nothing else changed.
func checkHeader(t *testing.T, frame, out []byte, p pkt.Packet) {
	t.Helper()
	was, sent, err := pkt.OpenVXLAN(frame)
	if err != nil {
		t.Fatal(err)
	}
	is, got, err := pkt.OpenVXLAN(out)
	if err != nil {
		t.Fatal(err)
	}
	if is.Reserved != ([4]byte{}) || is.VNI != was.VNI || is.Outer.TOS != was.Outer.TOS || is.Source != testHop.Source {
		t.Errorf("sent in %+v", is)
	}
	header, next := [fbt.Length]byte(got[34:]), sent[23]
	if !p.IP.Is4() {
		header, next = [fbt.Length]byte(got[54:]), sent[20]
	}
	_, keys := oracleKeys()
	of := fbt.Segment{
		Outer: is.Outer.Destination, Seq: p.Seq,
		Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	content, err := fbt.CheckHeader(keys[1], 100, of, header)
	want := fbt.Content{VNI: 100, Number: 7}
	if was.Reserved[3] == 0 {
		want = fbt.Content{VNI: 100, Number: 8, Via: true}
	}
	if err != nil || content != want || header[0] != next {
		t.Errorf("the header says %+v (%v) of protocol %d, want %+v of %d", content, err, header[0], want, next)
	}
	if inner := pkt.RemoveHeader(got, next, fbt.Length); !bytes.Equal(inner, sent) {
		t.Errorf("inside is\n%x, was\n%x", inner, sent)
	}
}
