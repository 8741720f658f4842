package mux

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// hostRelayCases are packets that a host of a VIP relays to the mux, which a switch brought it.
func hostRelayCases(t *testing.T) []packetCase {
	first4, another := pkt.UDP(client4, vip4, pkt.Fragment(0, true)), pkt.TCP(client4, vip4, pkt.SYN).Frame()
	relayed := relayFrame(t, first4)
	byHost := func(inner []byte, to netip.Addr) func([]byte) []byte {
		return func([]byte) []byte { return relayedByHost(relayed, inner, to) }
	}
	quoting := icmpError(vip4, client4, 60, pkt.Timestamps(1<<13|1, 0))
	named := func(t *testing.T, d *Datapath) {
		e := newEndpoint(vip4, model.TCP, tunnel4)
		e.Cookies, e.Hardware = model.CookiesOn, true
		apply(t, d, e)
	}
	pinged := func(t *testing.T, d *Datapath) {
		e := newEndpoint(vip4, model.TCP, tunnel4)
		e.Ping, e.Hardware = true, true
		apply(t, d, e)
	}
	return []packetCase{
		{name: "relayed by a host", packet: first4, change: both(held(vip4), owned("self")), damage: byHost(first4.Frame(), other4), verdict: "forward_fragment", check: func(t *testing.T, frame, out []byte) {
			inFragment(14, tunnel6)(t, first4.Frame(), out)
		}},
		{name: "relayed by a host, of another mux", packet: first4, change: both(held(vip4), owned("other")), damage: byHost(first4.Frame(), source4), verdict: "relay_fragment", check: func(t *testing.T, frame, out []byte) {
			if !bytes.Equal(out[14:], relayed[14:]) {
				t.Errorf("relayed as %x, want %x", out, relayed)
			}
		}},
		{name: "relayed by a host, of a VIP that has had its packets", packet: first4, change: both(spent(limitPackets, another), owned("self")), damage: byHost(first4.Frame(), other4), verdict: "drop_limit_packets"},
		{name: "relayed by a host, of a VIP that no switch holds", packet: first4, change: both(held(vip6), owned("self")), damage: byHost(first4.Frame(), other4), verdict: "drop_not_a_mux"},
		{name: "relayed by a host of no VIP that switches hold", packet: first4, change: owned("self"), damage: byHost(first4.Frame(), other4), verdict: "drop_not_a_mux"},
		{name: "relayed by a host that was one", packet: first4, change: both(held(vip4), both(held(""), owned("self"))), damage: byHost(first4.Frame(), other4), verdict: "drop_not_a_mux"},
		{name: "relayed by a host, but whole", packet: first4, change: both(held(vip4), owned("self")), damage: byHost(pkt.UDP(client4, vip4).Frame(), other4), verdict: "drop_not_a_mux"},
		{name: "relayed by a host of another VIP", packet: first4, change: both(elsewhere(vip4), owned("self")), damage: byHost(first4.Frame(), other4), verdict: "drop_not_a_mux"},
		{name: "ping relayed by a host", packet: first4, change: both(pinged, owned("self")), damage: byHost(pkt.ICMP("198.51.100.7", "203.0.113.10").Frame(), other4), verdict: "drop_not_a_mux"},
		{name: "error relayed by a host", packet: first4, change: both(named, owned("self")), damage: byHost(quoting, other4), verdict: "forward_icmp", check: func(t *testing.T, frame, out []byte) {
			if got := outerDestination(out[14:]); got != netip.MustParseAddr(tunnel4) || !bytes.HasSuffix(out, quoting[14:]) {
				t.Errorf("sent to %s: %x", got, out)
			}
		}},
		{name: "error about no endpoint, relayed by a host", packet: first4, change: both(named, owned("self")), damage: byHost(icmpError("203.0.113.10:22", client4, 28), other4), verdict: "drop_relay_invalid"},
		{name: "error about no endpoint, relayed by a host to a mux that answers ARP", packet: first4, change: both(both(named, owning(time.Hour)), owned("self")), damage: byHost(icmpError("203.0.113.10:22", client4, 28), other4), verdict: "drop_relay_invalid"},
	}
}

// relayedByHost is what the host behind tunnel4 relays to a mux: as another mux does, but for the source.
func relayedByHost(relayed, inner []byte, to netip.Addr) []byte {
	frame := append(bytes.Clone(relayed[:14+20+8+12]), inner[14:]...)
	binary.BigEndian.PutUint16(frame[14+2:], uint16(len(frame)-14))
	binary.BigEndian.PutUint16(frame[14+20+4:], uint16(len(frame)-14-20))
	copy(frame[14+12:], netip.MustParseAddr(tunnel4).AsSlice())
	copy(frame[14+16:], to.AsSlice())
	return frame
}

// held has switches hold the VIP of an endpoint alone.
func held(vip string) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		for _, e := range world() {
			e.Hardware = vip != "" && e.Key.VIP == netip.MustParseAddrPort(vip).Addr()
			apply(t, d, e)
		}
	}
}

// elsewhere has switches hold all VIPs, of which one has no backend behind tunnel4.
func elsewhere(vip string) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		for _, e := range world() {
			e.Hardware = true
			if e.Key.VIP == netip.MustParseAddrPort(vip).Addr() {
				for i := range e.Backends {
					e.Backends[i].Tunnel = netip.MustParseAddr(tunnel6)
				}
			}
			apply(t, d, e)
		}
	}
}
