package agent

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/pkt"
)

const offsetOfCB = 48 // in struct __sk_buff: five words

// cameFrom is the context of a buffer that came by an interface.
func cameFrom(ifindex uint32) []byte {
	skb := make([]byte, sizeOfSKB)
	binary.NativeEndian.PutUint32(skb[offsetOfIngress:], ifindex)
	return skb
}

// tagged puts tags before what a frame holds, the outermost first.
func tagged(frame []byte, tags ...uint32) []byte {
	out := append([]byte(nil), frame[:12]...)
	for _, tag := range tags {
		out = binary.BigEndian.AppendUint32(out, tag)
	}
	return append(out, frame[12:]...)
}

// A tag of 802.1Q or 802.1ad, of a VLAN; VID 0 is a priority.
const (
	priority8021q, priority8021ad = 0x81000000, 0x88a80000
	urgent                        = 0x8100e000 // priority 7 and VID 0
	vlan5                         = 0x81000005
)

var (
	priorityTags = map[string][]uint32{
		"VID 0":                    {priority8021q},
		"VID 0 with a priority":    {urgent},
		"VID 0 of 802.1ad":         {priority8021ad},
		"two of VID 0":             {priority8021ad, priority8021q},
		"as many of VID 0 as fit":  {priority8021q, priority8021q, priority8021q, priority8021q},
		"a priority without a tag": nil,
	}
	vlanTags = map[string][]uint32{
		"a VLAN":                  {vlan5},
		"a VLAN behind VID 0":     {priority8021q, vlan5},
		"VID 0 behind a VLAN":     {vlan5, priority8021q},
		"more of VID 0 than fit":  {priority8021q, priority8021q, priority8021q, priority8021q, priority8021q},
		"a VLAN of 802.1ad":       {0x88a80005},
		"a VLAN with a priority":  {0x8100e005},
		"the last VLAN there can": {0x81000fff},
	}
)

// What a workload sends with a priority tag is looked at as if it had none; in a VLAN it is refused.
func TestTagsOfWorkloads(t *testing.T) {
	r, ns := sourceRig(t)
	for family, c := range map[string]struct{ own, forged, tunnel, remote string }{
		"v4": {behind4 + ":5000", crawler4 + ":53", mux4, remote4},
		"v6": {own(behind6, 5000), own(crawler6, 53), mux6, remote6},
	} {
		forgedTunnel := pkt.TCP(client4, vip4, pkt.ACK).Inside(fromTo(c.tunnel, dipOf("native", int(family[1]-'0'))))
		for name, tags := range priorityTags {
			for frame, want := range map[string]string{
				string(pkt.UDP(c.own, c.remote).Frame()):                         "pass_no_session",
				string(pkt.UDP(c.forged, c.remote).Frame()):                      "drop_spoofed_source",
				string(forgedTunnel.Frame()):                                     "drop_spoofed_source",
				string(piece(pkt.UDP(c.forged, c.remote), 0, true).Frame()):      "drop_spoofed_source",
				string(piece(pkt.UDP(c.forged, c.remote), 5, false).Frame()):     "drop_spoofed_source",
				string(pkt.TCP(c.forged, c.remote, pkt.SYN, pkt.MSS(9)).Frame()): "drop_spoofed_source",
			} {
				if got := r.in(ns, "from_workload", tagged([]byte(frame), tags...), nil); got.verdict != want {
					t.Errorf("%s with %s: verdict is %s, not %s", family, name, got.verdict, want)
				}
			}
		}
		for name, tags := range vlanTags {
			frame := tagged(pkt.UDP(c.own, c.remote).Frame(), tags...)
			if got := r.in(ns, "from_workload", frame, nil); got.verdict != "drop_tagged" {
				t.Errorf("%s with %s: verdict is %s", family, name, got.verdict)
			}
			r.checkSources(0)
			if got := r.in(ns, "from_workload", frame, nil); got.verdict != "pass_tagged" {
				t.Errorf("%s with %s where sources are not looked at: verdict is %s", family, name, got.verdict)
			}
			r.checkSources(1)
		}
	}
}

// Encapsulated packets with a priority tag are decapsulated.
func TestPriorityTagsOfMuxes(t *testing.T) {
	r := newRig(t)
	for name, tags := range priorityTags {
		in := pkt.TCP(client4, vip4, pkt.ACK).Inside(outer(native4))
		want := delivered(in, native4)
		got := r.run("from_uplink", tagged(in.Frame(), tags...), nil)
		if got.verdict != "deliver_native" {
			t.Errorf("with %s: verdict is %s", name, got.verdict)
			continue
		}
		if diff := differences(want, got.frame); diff != "" {
			t.Errorf("with %s: frame (-want +got):\n%s", name, diff)
		}
	}
	for name, tags := range vlanTags {
		frame := tagged(pkt.TCP(client4, vip4, pkt.ACK).Inside(outer(native4)).Frame(), tags...)
		if got := r.run("from_uplink", frame, nil); got.verdict != "pass_tagged" {
			t.Errorf("with %s: verdict is %s", name, got.verdict)
		}
	}
}

// On a link that floods, or with a promiscuous interface, a packet for another MAC comes by: it is the other host's.
// Nor is a packet in a broadcast for a host's own address.
func TestFramesForOthers(t *testing.T) {
	r := newRig(t)
	for name, mac := range map[string]pkt.MAC{
		"another's": {2, 0, 0, 0, 0, 3}, "a broadcast": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "a multicast": {1, 0, 0x5e, 0, 0, 1},
	} {
		for _, p := range []pkt.Packet{
			pkt.TCP(client4, vip4, pkt.SYN).Inside(outer(native4)), inGUE(pkt.TCP(client6, vip6, pkt.SYN), outer(native6), gue{}),
		} {
			p.Destination = mac
			r.check(name, inbound(p, "pass_other_mac", nil))
		}
	}
}

// The uplink looks at what came from a workload's interface by itself: it needs nothing of what from_workload has seen.
func TestForgedSourcesAtTheUplink(t *testing.T) {
	r, ns := sourceRig(t)
	if err := r.objects.WorkloadLinks.Put(uint32(1), uint8(1)); err != nil {
		t.Fatal(err)
	}
	if err := r.objects.Workloads.Put(bpf.ToAddress(netip.MustParseAddr(host4)), uint32(0)); err != nil {
		t.Fatal(err)
	}
	mapped := asFrame(pkt.UDP("[fd01:9::5]:1", remote6).Frame()[ethernetHeader:])
	copy(mapped[ethernetHeader+8:], netip.MustParseAddr("::ffff:"+guest4).AsSlice())
	short := pkt.UDP(vip4, remote4).Frame()[:ethernetHeader+20]
	arp := with(pkt.UDP(vip4, remote4).Frame(), func(f []byte) { f[12], f[13] = 0x08, 0x06 })
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"its own", pkt.UDP(guest4+":5000", "10.0.0.9:53").Frame(), "pass_snat_exempt"},
		{"its neighbour's", pkt.UDP(behind4+":5000", remote4).Frame(), "pass_no_session"},
		{"its neighbour's, v6", pkt.UDP(own(behind6, 5000), remote6).Frame(), "pass_no_session"},
		{"the host's, by netfilter", pkt.UDP(host4+":5000", remote4).Frame(), "pass_no_session"},
		{"a VIP", pkt.UDP(vip4, remote4).Frame(), "drop_spoofed_source"},
		{"a VIP, v6", pkt.UDP(vip6, remote6).Frame(), "drop_spoofed_source"},
		{"anybody's", pkt.UDP("192.0.2.55:5000", remote4).Frame(), "drop_spoofed_source"},
		{"a mux's, outside", pkt.UDP(client4, vip4).Inside(fromTo(mux4, native4)).Frame(), "drop_spoofed_source"},
		{"a mux's, in GUE", inGUE(pkt.UDP(client4, vip4), fromTo(mux6, native6), gue{}).Frame(), "drop_spoofed_source"},
		{"another workload's", pkt.UDP(interface4+":5000", remote4).Frame(), "drop_spoofed_source"},
		{"one of the link", pkt.UDP("169.254.7.7:5353", remote4).Frame(), "drop_spoofed_source"},
		{"none", pkt.UDP("0.0.0.0:68", remote4).Frame(), "drop_spoofed_source"},
		{"an IPv4 address in IPv6", mapped, "drop_spoofed_source"},
		{"in a ping", asFrame(echo(crawler4, "198.51.100.7", echo4, 1600)), "drop_spoofed_source"},
		{"in a fragment", piece(pkt.UDP(vip4, remote4), 5, false).Frame(), "drop_spoofed_source"},
		{"in what is cut short", short, "drop_spoofed_source"},
		{"in a VLAN", tagged(pkt.UDP(vip4, remote4).Frame(), vlan5), "drop_spoofed_source"},
		{"in a priority tag", tagged(pkt.UDP(vip6, remote6).Frame(), priority8021q), "drop_spoofed_source"},
		{"in two tags", tagged(pkt.UDP(vip4, remote4).Frame(), priority8021ad, vlan5), "drop_spoofed_source"},
		{"its neighbour's in a VLAN", tagged(pkt.UDP(behind4+":5000", remote4).Frame(), vlan5), "pass_tagged"},
		{"behind more tags than we follow", tagged(pkt.UDP(vip4, remote4).Frame(), vlan5, vlan5, vlan5, vlan5, vlan5), "drop_tagged"},
		{"none at all: ARP", arp, "pass_other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			if got := r.in(ns, "to_uplink", c.frame, cameFrom(1)); got.verdict != c.want || got.action != actionOf(c.want) {
				t.Fatalf("verdict is %s with %d, not %s", got.verdict, got.action, c.want)
			}
			if got := r.in(ns, "to_uplink", c.frame, nil); got.verdict == "drop_spoofed_source" && c.name != "its own" {
				t.Errorf("from the host itself: verdict is %s", got.verdict)
			}
		})
	}
}

// What the agent has sent itself is not looked at again: it says so by a secret, for one way out.
func TestDeparturesAreSealed(t *testing.T) {
	r, ns := sourceRig(t)
	for _, err := range []error{
		r.objects.WorkloadLinks.Put(uint32(1), uint8(1)),
		r.objects.HashKey.Set(bpf.AgentFlowhashKey{Words: [10]uint32{4711, 815}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	frame := pkt.UDP(vip4, remote4).Frame()
	sealed := func(words ...uint32) []byte {
		skb := cameFrom(1)
		for i, w := range words {
			binary.NativeEndian.PutUint32(skb[offsetOfCB+4*i:], w)
		}
		return skb
	}
	for want, skb := range map[string][][]byte{
		"pass_ours":           {sealed(4711, 815)},
		"drop_spoofed_source": {sealed(), sealed(4711), sealed(0, 815), sealed(815, 4711)},
	} {
		for _, s := range skb {
			if got := r.in(ns, "to_uplink", frame, s); got.verdict != want {
				t.Errorf("verdict is %s, not %s", got.verdict, want)
			}
		}
	}
}

// A workload does not speak as the agent of its host.
func TestGUEOfWorkloads(t *testing.T) {
	r, ns := sourceRig(t)
	if err := r.objects.Tunnels.Put(bpf.ToAddress(netip.MustParseAddr(behind4)), uint8(1)); err != nil {
		t.Fatal(err)
	}
	handedOn := inGUE(pkt.TCP(client4, vip4, pkt.ACK), fromTo(behind4, "192.0.2.1"), step1(stepFinal, peer4))
	for name, c := range map[string]struct {
		p    pkt.Packet
		want string
	}{
		"handed on":         {handedOn, "drop_own_tunnel"},
		"of no tunnel":      {handedOn.With(from("10.1.9.6:5000")), "pass_no_session"},
		"to another port":   {pkt.UDP(behind4+":5000", "192.0.2.1:6081"), "pass_no_session"},
		"TCP to that port":  {pkt.TCP(behind4+":5000", "192.0.2.1:6080", pkt.SYN), "pass_no_session"},
		"IP-in-IP, its own": {pkt.UDP(client4, vip4).Inside(fromTo(behind4, "192.0.2.1")), "pass_other"},
	} {
		if got := r.in(ns, "from_workload", c.p.Frame(), nil); got.verdict != c.want {
			t.Errorf("%s: verdict is %s, not %s", name, got.verdict, c.want)
		}
	}
	// Hosts of a VIP that switches hold believe IP-in-IP and GRE of each other as well.
	r.hold(vip4, native4)
	inner4, inner6 := pkt.TCP(client4, vip4, pkt.ACK), pkt.TCP(client6, vip6, pkt.ACK)
	for i, inner := range []pkt.Packet{inner4, inner6} {
		for source, want := range map[string]string{behind4: "drop_own_tunnel", "10.1.9.6": "pass_other"} {
			ip := fromTo(source, "192.0.2.1")
			for j, p := range []pkt.Packet{inner.Inside(ip), inGRE(inner.Frame()[ethernetHeader:], ip)} {
				if got := r.in(ns, "from_workload", p.Frame(), nil); got.verdict != want {
					t.Errorf("%d, %d, from %s: verdict is %s, not %s", i, j, source, got.verdict, want)
				}
			}
		}
	}
}
