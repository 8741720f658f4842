package mux

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// rareCases are what the step mux_rare is for, and fragments of endpoints that change.
func rareCases() []packetCase {
	cases := append(jumboCases(), extensionCases()...)
	return append(cases, movedFragmentCases()...)
}

const jumboMTU = 9000

// jumboPool makes room for frames that the test run, as a driver does, gives in several buffers.
func jumboPool(t *testing.T, d *Datapath) {
	p := testSettings()
	p.MTU = jumboMTU
	if err := d.SetSettings(p); err != nil {
		t.Fatal(err)
	}
}

func jumboCases() []packetCase {
	long := func(n int) func(*pkt.Packet) { return pkt.Payload(bytes.Repeat([]byte("jumbo"), n)[:n]) }
	fits4, fits6 := pkt.TCP(client4, vip4, pkt.SYN, long(jumboMTU-60)), pkt.TCP(client6, vip6, pkt.SYN, long(jumboMTU-100))
	above := pkt.TCP(client4, vip4, pkt.SYN, long(jumboMTU-59), dontFragment)
	above6 := pkt.TCP(client6, vip6, pkt.SYN, long(jumboMTU-99))
	cut := func(frame []byte) []byte { return frame[:len(frame)-1] }
	cases := []packetCase{
		{name: "jumbo, 4 in 4", packet: fits4, verdict: "forward_syn", tunnel: tunnel4},
		{name: "jumbo, 6 in 6", packet: fits6, verdict: "forward_syn", tunnel: tunnel6},
		{name: "jumbo, 4 in 6", packet: pkt.UDP(client4, vip4, long(8000)), verdict: "forward_bucket", tunnel: tunnel6},
		{name: "jumbo in two VLANs, padded", packet: fits4.With(pkt.VLANs(5, 6), pkt.Padding(30)), verdict: "forward_syn", tunnel: tunnel4},
		{name: "jumbo, a byte too short", packet: fits4, damage: cut, verdict: "pass_malformed"},
		{name: "jumbo, a byte too big", packet: above, verdict: "reply_too_big", check: checkTooBig(above, jumboMTU-56)},
		{name: "jumbo, a byte too big, 6 in 6", packet: above6, verdict: "reply_too_big", check: checkTooBig(above6, jumboMTU-76)},
		{name: "jumbo, a byte too big, may be fragmented", packet: pkt.TCP(client4, vip4, pkt.SYN, long(jumboMTU-59)), verdict: "punt_split"},
		{name: "jumbo fragment", packet: pkt.UDP(client4, vip4, long(8000), pkt.Fragment(0, true)), verdict: "forward_fragment", check: inFragment(14, tunnel6)},
	}
	for i := range cases {
		cases[i].change = jumboPool
	}
	return cases
}

// behindExtensions puts IPv6 extension headers in front of the transport header.
func behindExtensions(headers ...extensionOf) func([]byte) []byte {
	return func(frame []byte) []byte {
		const next, payload, at = 14 + 6, 14 + 4, 14 + 40
		var chain []byte
		last := frame[next]
		for _, h := range slices.Backward(headers) {
			header := make([]byte, h.bytes, h.bytes+len(chain))
			header[0], header[1], header[3] = last, byte(h.bytes/8-1), h.left
			chain, last = append(header, chain...), h.protocol
		}
		out := append(bytes.Clone(frame[:at]), append(chain, frame[at:]...)...)
		length := len(out) - at
		out[next] = last
		out[payload], out[payload+1] = byte(length>>8), byte(length)
		return out
	}
}

type extensionOf struct {
	protocol byte
	bytes    int
	left     byte // segments, of a routing header
}

func extensionCases() []packetCase {
	const hopByHop, routing, destination = 0, 43, 60
	hop := func(n int) extensionOf { return extensionOf{protocol: hopByHop, bytes: n} }
	route := func(n int) extensionOf { return extensionOf{protocol: routing, bytes: n} }
	options := func(n int) extensionOf { return extensionOf{protocol: destination, bytes: n} }
	syn, udp := pkt.TCP(client6, vip6, pkt.SYN), pkt.UDP(client6, vip6)
	whole := func(tunnel string) func(*testing.T, []byte, []byte) {
		return func(t *testing.T, frame, out []byte) {
			t.Helper()
			checkEncapsulation(t, frame, out)
			if got := outerDestination(out[14:]); got != netip.MustParseAddr(tunnel) {
				t.Errorf("sent to %s, want %s", got, tunnel)
			}
		}
	}
	return []packetCase{
		{name: "hop-by-hop, destination, routing", packet: syn, damage: behindExtensions(hop(8), options(24), route(24)), verdict: "forward_syn", check: whole(tunnel6)},
		{name: "the same with UDP", packet: udp, damage: behindExtensions(hop(8), options(24), route(24)), verdict: "forward_bucket", check: whole(tunnel4)},
		{name: "four headers of 128 bytes", packet: syn, damage: behindExtensions(hop(8), options(24), route(48), options(48)), verdict: "forward_syn", check: whole(tunnel6)},
		{name: "one header of 128 bytes", packet: syn, damage: behindExtensions(options(128)), verdict: "forward_syn", check: whole(tunnel6)},
		{name: "headers of 136 bytes", packet: syn, damage: behindExtensions(hop(8), options(24), route(48), options(56)), verdict: "pass_other_protocol"},
		{name: "five headers", packet: syn, damage: behindExtensions(hop(8), options(8), route(8), options(8), options(8)), verdict: "pass_other_protocol"},
		{name: "on its way elsewhere", packet: syn, damage: behindExtensions(hop(8), extensionOf{routing, 24, 1}), verdict: "pass_other_protocol"},
		{name: "header beyond the packet", packet: udp.With(pkt.Payload(nil)), damage: func(frame []byte) []byte {
			frame = behindExtensions(options(8))(frame)
			frame[14+40+1] = 2 // 24 bytes: 8 more than there are
			return frame
		}, verdict: "pass_malformed"},
	}
}

// movedFragmentCases are of an endpoint whose buckets moved from the second backend to the first.
func movedFragmentCases() []packetCase {
	first, later := pkt.UDP(client4, vip4, pkt.Fragment(0, true)), pkt.UDP(client4, vip4, pkt.Fragment(9, false))
	change := func(edit func(*model.MuxEndpoint)) func(*testing.T, *Datapath) {
		return alteredOf(newEndpoint(vip4, model.UDP, tunnel4, second), edit)
	}
	// The first fragment comes while buckets move, then the endpoint changes.
	then := func(edit func(*model.MuxEndpoint)) func(*testing.T, *Datapath) {
		return func(t *testing.T, d *Datapath) {
			change(movedFrom2)(t, d)
			run(t, d, first.Frame())
			change(edit)(t, d)
		}
	}
	asks := askFragment(tunnel4, second)
	return []packetCase{
		{name: "first, bucket moved", packet: first, change: change(movedFrom2), verdict: "forward_fragment", check: asks},
		{name: "later, bucket moved", packet: later, change: then(movedFrom2), verdict: "forward_fragment", check: asks},
		{name: "later, the move is over", packet: later, change: then(func(e *model.MuxEndpoint) { allTo(e, 1) }), verdict: "forward_fragment", check: asks},
		{name: "later, all moved back", packet: later, change: then(func(e *model.MuxEndpoint) { allTo(e, 2) }), verdict: "forward_fragment", check: asks},
		{name: "first, previous is down", packet: first, change: change(func(e *model.MuxEndpoint) { movedFrom2(e); e.Backends[1].Down = true }), verdict: "forward_fragment", check: inFragment(14, tunnel4)},
		{name: "later, previous is down now", packet: later, change: then(func(e *model.MuxEndpoint) { movedFrom2(e); e.Backends[1].Down = true }), verdict: "forward_fragment", check: inFragment(14, tunnel4)},
		{name: "later, previous is gone now", packet: later, change: then(func(e *model.MuxEndpoint) { movedFrom2(e); e.Backends = e.Backends[:1] }), verdict: "forward_fragment", check: inFragment(14, tunnel4)},
		{name: "later, its own backend is gone", packet: later, change: then(func(e *model.MuxEndpoint) { allTo(e, 2); e.Backends = e.Backends[1:] }), verdict: "drop_no_backend"},
	}
}

// askFragment wants frame in GUE for the tunnel, with its datagram's ports, and who else to ask.
func askFragment(tunnel, other string) func(*testing.T, []byte, []byte) {
	return func(t *testing.T, frame, out []byte) {
		t.Helper()
		if got := outerDestination(out[14:]); got != netip.MustParseAddr(tunnel) {
			t.Errorf("sent to %s, want %s", got, tunnel)
		}
		if !bytes.HasSuffix(out, frame[14:]) {
			t.Error("the fragment was changed")
		}
		want := append([]byte{1, 1, 1, 0, 40000 >> 8, 40000 & 0xff, 0, 80}, netip.MustParseAddr(other).AsSlice()...)
		if got := out[14+20+8+4 : len(out)-len(frame[14:])]; !bytes.Equal(got, want) {
			t.Errorf("Weir's header is %x, want %x", got, want)
		}
	}
}
