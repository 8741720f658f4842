package agent

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/steer"
)

const otherSlot = 200 // of another backend here

// holdByHost has switches hold a VIP by host: a quarter of its buckets are of a far host, and half of one backend here.
func (r *rig) holdByHost(protocol model.Protocol) steering.VIP {
	r.t.Helper()
	e := heldEndpoint(protocol, vip4, native4)
	e.Backends = append(e.Backends[:2:2], steering.Backend{Slot: otherSlot, Tunnel: netip.MustParseAddr(interface4)}, e.Backends[2])
	e.Buckets = slices.Repeat([]model.Slot{farSlot4, otherSlot, backendSlot, backendSlot}, 64)
	first, second := rule(protocol, vip4, native4, native4, native6), rule(protocol, vip4, interface4, interface4, interface6)
	second.Slot = otherSlot
	if err := r.Apply([]model.HostBackend{first, second}, nil); err != nil {
		r.t.Fatal(err)
	}
	vip := held(e)
	vip.ByHost = true
	r.steer(vip)
	return vip
}

// TestSwitchesWithOneTunnelForAHost has a switch bring all packets of a VIP to one tunnel of this host, which has two of its
// backends: the host chooses among these by their shares where the rule says that the packet stays, and for all else goes
// by the rule, as internal/steer has it.
func TestSwitchesWithOneTunnelForAHost(t *testing.T) {
	r := newRig(t)
	vip := r.holdByHost(model.TCP)
	e := vip.Endpoints[0]
	tunnels := map[model.Slot]string{farSlot4: farHost4, otherSlot: interface4, backendSlot: native4}
	locals := e.Locals(func(tunnel netip.Addr) bool { return tunnel.String() != farHost4 })
	seen := map[string]int{}
	for _, confirmed := range []bool{false, true} {
		for _, dip := range []string{native4, interface4} {
			r.setAnswersTimestamps(dip, confirmed)
		}
		for port := range 300 {
			client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(2000+port))
			p := steer.Packet{Protocol: model.TCP, SYN: port%3 > 0, Timestamps: port%5 > 0}
			p.Hash = poolKey().Sum(model.Flow{Protocol: model.TCP, Source: client, Destination: netip.MustParseAddrPort(vip4)})
			in := pkt.TCP(client.String(), vip4, map[bool]pkt.Flags{true: pkt.SYN, false: pkt.ACK}[p.SYN])
			if p.Timestamps {
				p.Cookie = []model.Slot{0, farSlot4, otherSlot, backendSlot}[port%4]
				in = in.With(pkt.NOP(2), pkt.Timestamps(1, 5<<13|uint32(p.Cookie)))
			}
			own := steer.OwnByHost(e, locals, p, backendSlot, false)
			d := steer.Decide(e, p, steer.Arrival{Own: own, TakesNew: true, Timestamps: confirmed})
			want := map[model.Slot]string{otherSlot: "deliver_interface", backendSlot: "deliver_native"}[d.Slot]
			if d.Slot == farSlot4 {
				want = verdictOf(e, d)
			}
			got := r.run("from_uplink", fromSwitch(in, native4, false), nil)
			if got.verdict != want {
				t.Fatalf("verdict is %s, not %s: %+v of %+v", got.verdict, want, d, p)
			}
			if to := netip.AddrFrom4([4]byte(got.frame[ethernetHeader+16:])).String(); to != tunnels[d.Slot] {
				t.Fatalf("goes to %s: %+v", to, d)
			}
			if d.Slot != farSlot4 && binary.BigEndian.Uint16(got.frame[ethernetHeader+22:]) != backendPort {
				t.Fatalf("is not translated: %x", got.frame)
			}
			seen[want+string(d.Reason)]++
		}
	}
	for _, want := range []string{"deliver_nativearrival", "deliver_interfacearrival", "deliver_nativecookie", "deliver_interfacecookie", "deliver_interfacebucket", "steered_bucketbucket", "steered_cookiecookie"} {
		if seen[want] == 0 {
			t.Errorf("nothing was %s: %v", want, seen)
		}
	}
	if n, m := seen["deliver_nativearrival"], seen["deliver_interfacearrival"]; n < m {
		t.Errorf("%d new connections are of the backend with twice the share of the one with %d", n, m)
	}

	// Its own backends are gone: what comes goes by the bucket.
	e.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
	vip.Endpoints[0] = e
	r.steer(vip)
	syn := pkt.TCP(client4, vip4, pkt.SYN)
	r.leavesSteered(fromSwitch(syn, native4, false), "steered_bucket", steered(syn, native4, farHost4, gue{}))
}

// TestByHostAConnectionStaysAtTheBackendThatTheHostChose: a connection without timestamps goes on there when its bucket has
// moved to another host, though the tunnel that it comes to is of another backend.
func TestByHostAConnectionStaysAtTheBackendThatTheHostChose(t *testing.T) {
	r := newRig(t)
	vip := r.holdByHost(model.TCP)
	r.setAnswersTimestamps(interface4, false)
	buckets := func(slots ...model.Slot) {
		vip.Endpoints[0].Buckets = slices.Repeat(slots, 256/len(slots))
		r.steer(vip)
	}
	dip := netip.AddrPortFrom(netip.MustParseAddr(interface4), backendPort).String()
	buckets(otherSlot)
	for port := range 16 {
		client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(2000+port)).String()
		syn, answer := pkt.TCP(client, vip4, pkt.SYN), pkt.TCP(dip, client, pkt.SYN|pkt.ACK)
		if got := r.run("from_uplink", fromSwitch(syn, native4, false), nil); got.verdict != "deliver_interface" {
			t.Fatalf("SYN: verdict is %s", got.verdict)
		}
		if got := r.run("from_workload", answer.Frame(), nil); got.verdict != "reply_uplink" {
			t.Fatalf("answer: verdict is %s", got.verdict)
		}
	}
	buckets(farSlot4, farSlot4, farSlot4, otherSlot)
	for port := range 16 {
		client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(2000+port)).String()
		if got := r.run("from_uplink", fromSwitch(pkt.TCP(client, vip4, pkt.ACK), native4, false), nil); got.verdict != "deliver_interface" {
			t.Fatalf("segment: verdict is %s", got.verdict)
		}
	}
}

// TestByHostTheTunnelDoesNotSayTheBackend: packets come by the tunnel of a backend that has a session of the same ports.
func TestByHostTheTunnelDoesNotSayTheBackend(t *testing.T) {
	for what, c := range map[string]struct {
		protocol model.Protocol
		down     bool       // the backend behind the tunnel
		cookie   model.Slot // of the segment; 0: none
		want     string
	}{
		"UDP":                                {model.UDP, false, 0, "deliver_interface"},
		"UDP, it is down":                    {model.UDP, true, 0, "deliver_native"},
		"TCP, the cookie names another here": {model.TCP, false, backendSlot, "deliver_native"},
		"TCP, the cookie names it":           {model.TCP, false, otherSlot, "deliver_interface"},
		"TCP, the cookie names it, down":     {model.TCP, true, otherSlot, "deliver_native"},
		"TCP, it is down":                    {model.TCP, true, 0, "deliver_native"},
		"TCP, the cookie names a far one":    {model.TCP, false, farSlot4, "steered_cookie"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			vip := r.holdByHost(c.protocol)
			e := &vip.Endpoints[0]
			e.LocalUDP = c.protocol == model.UDP
			e.Buckets = slices.Repeat([]model.Slot{otherSlot}, 256)
			r.steer(vip)
			dip := netip.AddrPortFrom(netip.MustParseAddr(interface4), backendPort).String()
			first, answer, next := pkt.UDP(client4, vip4), pkt.UDP(dip, client4), pkt.UDP(client4, vip4)
			if c.protocol == model.TCP {
				first, answer, next = pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(dip, client4, pkt.SYN|pkt.ACK), pkt.TCP(client4, vip4, pkt.ACK)
			}
			if c.cookie != 0 {
				next = next.With(pkt.NOP(2), pkt.Timestamps(1, 5<<13|uint32(c.cookie)))
			}
			if got := r.run("from_uplink", fromSwitch(first, interface4, false), nil); got.verdict != "deliver_interface" {
				t.Fatalf("the first packet's verdict is %s", got.verdict)
			}
			if got := r.run("from_workload", answer.Frame(), nil); got.verdict != "reply_uplink" {
				t.Fatalf("the answer's verdict is %s", got.verdict)
			}
			e.Buckets = slices.Repeat([]model.Slot{backendSlot}, 256)
			for i := range e.Backends {
				e.Backends[i].Down = c.down && e.Backends[i].Slot == otherSlot
			}
			r.steer(vip)
			got := r.run("from_uplink", fromSwitch(next, interface4, false), nil)
			if got.verdict != c.want {
				t.Errorf("verdict is %s, not %s", got.verdict, c.want)
			}
			p := steer.Packet{Protocol: c.protocol, Timestamps: c.cookie != 0, Cookie: c.cookie}
			own := steer.OwnByHost(*e, []model.Slot{backendSlot}, p, otherSlot, true)
			d := steer.Decide(*e, p, steer.Arrival{Own: own, TakesNew: own == backendSlot, Known: own == otherSlot})
			if model := map[model.Slot]string{backendSlot: "deliver_native", otherSlot: "deliver_interface", farSlot4: "steered_cookie"}[d.Slot]; model != c.want {
				t.Errorf("internal/steer says %+v", d)
			}
		})
	}
}
