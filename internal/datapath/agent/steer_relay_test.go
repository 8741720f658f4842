package agent

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

const gueRelay = 2

// relayed is what leaves for the mux of a tunnel's family.
func relayed(inner pkt.Packet, own string) pkt.Packet {
	mux := mux4
	if netip.MustParseAddr(own).Is6() {
		mux = mux6
	}
	return inGUE(inner, fromTo(own, mux), gue{weir: true, kind: gueRelay})
}

// setRelayTokens fills the token buckets of what hosts relay, or empties them.
func (r *rig) setRelayTokens(full bool) {
	r.t.Helper()
	var tat [2]uint64 // of fragments and of errors
	if !full {
		tat = [2]uint64{math.MaxInt64, math.MaxInt64}
	}
	if err := r.objects.RelayTat.Set(tat); err != nil {
		r.t.Fatal(err)
	}
}

// TestFragmentsOfSwitchesGoToAMux relays every fragment that a switch brings, as it is, within a rate.
func TestFragmentsOfSwitchesGoToAMux(t *testing.T) {
	for _, own := range []string{native4, native6} {
		for _, w := range []struct{ client, vip string }{{client4, vip4}, {client6, vip6}} {
			r := newRig(t)
			r.hold(w.vip, own)
			r.setRelayTokens(true)
			udp, tcp := pkt.UDP(w.client, w.vip), pkt.TCP(w.client, w.vip, pkt.ACK)
			for _, p := range []pkt.Packet{piece(udp, 0, true), piece(udp, 5, false), piece(tcp, 0, true), piece(tcp, 9, true)} {
				want := relayed(p, own)
				for _, in := range [][]byte{fromSwitch(p, own, false), fromSwitch(p, own, true), bySwitch(own).Frame(p), byGRE(p, own)} {
					r.leavesSteered(in, "relay_fragment", want)
				}
			}
			first := fromSwitch(piece(udp, 0, true), own, false)
			r.setRelayTokens(false)
			r.check("too many", step{program: "from_uplink", in: first, verdict: "drop_relay_limited"})
			r.setRelayTokens(true)
			if err := r.SetMuxes([]netip.Prefix{netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("fd02::/64")}); err != nil {
				t.Fatal(err)
			}
			r.check("no mux has an address", step{program: "from_uplink", in: first, verdict: "drop_relay_no_mux"})
		}
	}
}

// TestFragmentsOfAPairGoToOneMux has as many muxes as there is room for, and all fragments between two addresses meet.
func TestFragmentsOfAPairGoToOneMux(t *testing.T) {
	r := newRig(t)
	r.hold(vip4, native4)
	r.setRelayTokens(true)
	var muxes []netip.Prefix
	for i := range 70 {
		muxes = append(muxes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 3, 0, byte(i)}), 32))
	}
	if err := r.SetMuxes(muxes); err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Addr]bool{}
	for client := range 100 {
		to := map[netip.Addr]bool{}
		p := pkt.UDP(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(client)}), 7).String(), vip4)
		for i, p := range []pkt.Packet{piece(p, 0, true), piece(p, 5, true), piece(p, 9, false)} {
			got := r.run("from_uplink", fromSwitch(p, native4, i == 1), nil)
			if got.verdict != "relay_fragment" {
				t.Fatalf("verdict is %s", got.verdict)
			}
			to[netip.AddrFrom4([4]byte(got.frame[ethernetHeader+16:]))] = true
		}
		for mux := range to {
			seen[mux] = true
			if len(to) > 1 || !slices.Contains(muxes[:64], netip.PrefixFrom(mux, 32)) {
				t.Fatalf("fragments of one client go to %v", to)
			}
		}
	}
	if len(seen) < 32 {
		t.Errorf("100 clients go to %d of 64 muxes", len(seen))
	}
}

// TestErrorsThatHostsCantDecide relays ICMP errors about connections that may be at any backend.
func TestErrorsThatHostsCantDecide(t *testing.T) {
	r := newRig(t)
	tcp, udp := heldEndpoint(model.TCP, vip4, native4), heldEndpoint(model.UDP, vip4, native4)
	tcp.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
	udp.Buckets = tcp.Buckets
	tcp.Backends[1].Down = true
	r.steer(held(tcp, udp))
	r.setRelayTokens(true)
	vip := netip.MustParseAddrPort(vip4).Addr().String()
	segment, datagram := replyTo(pkt.TCP(client4, vip4, pkt.ACK), pkt.ACK), replyTo(pkt.UDP(client4, vip4), 0)
	goes := func(what string, quoted pkt.Packet, want string, to string) {
		t.Helper()
		ip := message("192.0.2.1", vip, unreachable4, quote(quoted, 80))
		got := r.run("from_uplink", carriedBySwitch(ip, native4), nil)
		if got.verdict != want {
			t.Fatalf("%s: verdict is %s, not %s", what, got.verdict, want)
		}
		if at := netip.AddrFrom4([4]byte(got.frame[ethernetHeader+16:])).String(); at != to {
			t.Errorf("%s: goes to %s, not %s", what, at, to)
		}
		if !slices.Equal(got.frame[len(got.frame)-len(ip):], ip) {
			t.Errorf("%s: the error was changed", what)
		}
	}
	goes("a cookie names a backend", segment.With(pkt.Timestamps(3<<13|farSlot4, 1)), "steered_error", farHost4)
	goes("a cookie names one that is down", segment.With(pkt.Timestamps(3<<13|farSlot6, 1)), "relay_error", mux4)
	goes("no cookie", segment, "relay_error", mux4)
	goes("a flow of UDP", datagram, "steered_error", farHost4)
	udp.LocalUDP = true
	r.steer(held(tcp, udp))
	goes("a flow of UDP that may be anywhere", datagram, "relay_error", mux4)
	r.setRelayTokens(false)
	goes("no cookie, too many", segment, "steered_error", farHost4)
	tcp.Cookies = model.CookiesOff
	r.setRelayTokens(true)
	r.steer(held(tcp, udp))
	goes("no cookies", segment, "steered_error", farHost4)
}
