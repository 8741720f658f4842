package mux

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
)

// answeringNetworks has the endpoints of virtual networks answer their SYNs.
func answeringNetworks(t *testing.T, d *Datapath) {
	t.Helper()
	if err := d.SetSYNSecrets(synSecrets(1)); err != nil {
		t.Fatal(err)
	}
	withNetworks(func(e *model.MuxEndpoint) { e.SYNCookies = model.SYNCookiesAlways })(t, d)
}

// networkSYNCases are SYNs of virtual networks that the mux answers, in every combination of families, and does not.
func networkSYNCases() []packetCase {
	options := []func(*pkt.Packet){pkt.MSS(1394), pkt.Timestamps(7, 0), pkt.NOP(2)}
	syn, syn6 := pkt.TCP(tenant4, tenantVIP4, pkt.SYN, options...), pkt.TCP(tenant6, tenantVIP6, pkt.SYN, pkt.Payload(nil))
	by6 := func(p pkt.Packet) func(*pkt.VXLAN) { return func(v *pkt.VXLAN) { *v = inVXLAN(p, "fd02::1") } }
	bare := func(v *pkt.VXLAN) { v.Outer.Source, v.Reserved = netip.MustParseAddr("10.2.0.2"), [4]byte{} }
	answered := func(name string, p pkt.Packet, change func(*pkt.VXLAN)) packetCase {
		c := networkCase(name, "reply_syn", p, change)
		c.check = checkNetworkSYNACK
		return c
	}
	damaged := networkCase("wrong checksum in a network", "drop_syn", syn, nil)
	damaged.damage = func([]byte) []byte {
		frame := inVXLAN(syn, agentHost).Frame(syn)
		frame[len(frame)-1]++
		return frame
	}
	cases := []packetCase{
		answered("SYN of a network", syn, nil),
		answered("SYN of a network, v6", syn6, nil),
		answered("SYN of a network, by v6", syn, by6(syn)),
		answered("SYN of a network, v6 by v6", syn6, by6(syn6)),
		answered("SYN of a network, from a host without an agent", syn, bare),
		damaged,
		networkCase("SYN and FIN of a network", "drop_syn", pkt.TCP(tenant4, tenantVIP4, pkt.SYN|pkt.FIN), nil),
		networkCase("SYN of a network from a stranger", "drop_not_a_vtep", syn, func(v *pkt.VXLAN) { v.Outer.Source = netip.MustParseAddr("10.7.7.7") }),
		networkCase("ACK of a network while SYNs are answered", "forward_bucket", pkt.TCP(tenant4, tenantVIP4, pkt.ACK), nil),
	}
	cases[len(cases)-1].check = checkBypass
	for i := range cases {
		cases[i].change = answeringNetworks
	}
	return cases
}

// checkNetworkSYNACK wants the answer to a SYN in VXLAN: from the address that all muxes have, without the route flag,
// with a cookie of the network and no option but the MSS.
func checkNetworkSYNACK(t *testing.T, frame, out []byte) {
	t.Helper()
	was, syn, err := pkt.DecodeVXLAN(frame)
	if err != nil {
		t.Fatal(err)
	}
	is, got, err := pkt.DecodeVXLAN(out)
	if err != nil {
		t.Fatal(err)
	}
	outer := was
	outer.Source, outer.Destination, outer.Reserved = was.Destination, was.Source, [4]byte{}
	outer.Outer.Source, outer.Outer.Destination, outer.Outer.TOS = was.Outer.Destination, was.Outer.Source, 0
	equal := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}
	if diff := cmp.Diff(outer, is, equal...); diff != "" {
		t.Errorf("the answer's VXLAN (-want +got):\n%s", diff)
	}
	own := uint16(testMTU - 40 - 30 - 16 - 40)
	if syn.IP.Source.Is6() {
		own -= 20
	}
	want := syn.With(pkt.Payload(nil), pkt.TOS(0))
	want.Source, want.Destination = syn.Destination, syn.Source
	want.IP = pkt.IP{Source: syn.IP.Destination, Destination: syn.IP.Source, TTL: 64, DontFragment: syn.IP.Is4()}
	want.SourcePort, want.DestinationPort = syn.DestinationPort, syn.SourcePort
	want.Flags, want.Ack, want.Seq, want.Options = pkt.SYN|pkt.ACK, syn.Seq+1, got.Seq, nil
	want = want.With(pkt.MSS(own))
	if diff := cmp.Diff(want, got, equal...); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	if window := binary.BigEndian.Uint16(out[len(out)-24+14:]); window != syncookie.Window {
		t.Errorf("window %d, want %d", window, syncookie.Window)
	}
	if got, err := networkCookie(syn, got.Seq, was.VNI); err != nil || got != classOf(syn) {
		t.Errorf("the cookie is for an MSS of %d, %v, want %d", got, err, classOf(syn))
	}
	if _, err := networkCookie(syn, got.Seq, 0); err == nil {
		t.Error("the cookie is right outside of the network")
	}
}

// classOf is the MSS that a cookie keeps of a SYN.
func classOf(syn pkt.Packet) uint16 {
	_, mss := syncookie.Class(synOffer(syn).MSS)
	return mss
}

// networkCookie checks a cookie as a host does, in a network.
func networkCookie(syn pkt.Packet, cookie, vni uint32) (uint16, error) {
	flow := syncookie.Flow{
		Client: netip.AddrPortFrom(syn.IP.Source, syn.SourcePort), VIP: netip.AddrPortFrom(syn.IP.Destination, syn.DestinationPort),
		ISN: syn.Seq, VNI: vni,
	}
	return syncookie.Check(synSecrets(1), flow, cookie, syncookie.Offer{Scale: syncookie.NoScale}, time.Now())
}

// synACK is what the mux answers to a SYN of a network; false: nothing.
func synACK(t *testing.T, d *Datapath, syn pkt.Packet, vni uint32) (pkt.Packet, bool) {
	t.Helper()
	v := inVXLAN(syn, agentHost)
	v.VNI = vni
	_, out := run(t, d, v.Frame(syn))
	_, answer, err := pkt.DecodeVXLAN(out)
	return answer, err == nil && answer.Flags == pkt.SYN|pkt.ACK
}

// Tenants with equal five-tuples and numbers get cookies that are right in their own network alone.
func TestCookiesAreOfOneNetwork(t *testing.T) {
	d := newFilled(t)
	answeringNetworks(t, d)
	for _, ends := range [][2]string{{tenant4, tenantVIP4}, {tenant6, tenantVIP6}} {
		syn := pkt.TCP(ends[0], ends[1], pkt.SYN)
		one, _ := synACK(t, d, syn, 100)
		other, _ := synACK(t, d, syn, 0xabcdef)
		for cookie, of := range map[uint32]uint32{one.Seq: 100, other.Seq: 0xabcdef} {
			for _, vni := range []uint32{100, 0xabcdef} {
				if _, err := networkCookie(syn, cookie, vni); (err == nil) != (vni == of) {
					t.Errorf("the cookie of network %d, in network %d: %v", of, vni, err)
				}
			}
		}
	}
}

// A handshake of a network is sampled only while its SYN is answered: the ACK of another one passes no mux. It is
// completed by the network's own cookie.
func TestHandshakesOfNetworksAreFollowed(t *testing.T) {
	for name, state := range map[string]endpoint.SYNState{
		"answered": {Answers: true, Watches: true}, "tried": {Watches: true, Tries: true}, "forwarded": {Watches: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFilled(t)
			if err := d.SetSYNSecrets(synSecrets(1)); err != nil {
				t.Fatal(err)
			}
			withNetworks(func(e *model.MuxEndpoint) { e.SYNCookies = model.SYNCookiesAuto })(t, d)
			key := newEndpoint(vip4, model.TCP).Key
			if err := d.SetSYNState(key, state); err != nil {
				t.Fatal(err)
			}
			const connections = 800
			answered := uint64(0)
			for i := range uint16(connections) {
				syn := pkt.TCP(tenant4, tenantVIP4, pkt.SYN)
				syn.SourcePort = 1024 + i
				answer, ok := synACK(t, d, syn, 100)
				if ok {
					answered++
				}
				ack := syn.With(func(p *pkt.Packet) { p.Flags, p.Seq, p.Ack = pkt.ACK, syn.Seq+1, answer.Seq+1 })
				v := inVXLAN(ack, agentHost)
				if i%2 == 1 { // another tenant brings the cookie
					v.VNI = 0xabcdef
				}
				run(t, d, v.Frame(ack))
			}
			counters, err := d.SYNCounters()
			if err != nil {
				t.Fatal(err)
			}
			c := counters[key]
			switch {
			case c.SYNs != connections || c.Answered != answered:
				t.Errorf("%+v, want %d SYNs and %d answers", c, connections, answered)
			case name == "forwarded" && (c.Tried != 0 || c.Completed != 0 || answered != 0):
				t.Errorf("%+v, want no handshake to be sampled", c)
			case name != "forwarded" && (c.Tried < connections/14 || c.Completed*3 < c.Tried || c.Completed*3 > c.Tried*2):
				t.Errorf("%+v, want an eighth to be sampled and half of that completed", c)
			case name == "tried" && answered != c.Tried, name == "answered" && answered != connections:
				t.Errorf("%d answers, %+v", answered, c)
			}
		})
	}
}
