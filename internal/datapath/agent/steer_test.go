package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	agentsteer "github.com/weirlb/weir/internal/datapath/agent/steer"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/pkt"
)

// A switch that holds a VIP, another one that holds none here, and another host of the VIP.
const (
	switch4, switch6           = "10.9.0.1", "fd09::1"
	otherSwitch4, otherSwitch6 = "10.9.0.2", "fd09::2"
	farHost4, farHost6         = "10.1.0.60", "fd01::60"
	farSlot4, farSlot6         = 60, 61
	gueSteered                 = 3
	entropyFirst               = 0xc000
)

func poolKey() (key flowhash.Key) {
	for i := range key {
		key[i] = byte(7*i + 1)
	}
	return key
}

// heldEndpoint is an endpoint whose buckets all name the backend of this host behind a tunnel.
func heldEndpoint(protocol model.Protocol, vip, tunnel string) steering.Endpoint {
	at := netip.MustParseAddrPort(vip)
	e := steering.Endpoint{
		Key:     model.EndpointKey{VIP: at.Addr(), Protocol: protocol, Port: at.Port()},
		Buckets: slices.Repeat([]model.Slot{backendSlot}, 256), Cookies: model.CookiesOff,
		Backends: []steering.Backend{
			{Slot: farSlot4, Tunnel: netip.MustParseAddr(farHost4)},
			{Slot: farSlot6, Tunnel: netip.MustParseAddr(farHost6)},
			{Slot: backendSlot, Tunnel: netip.MustParseAddr(tunnel)},
		},
	}
	if protocol == model.TCP {
		e.Cookies = model.CookiesOn
	}
	return e
}

// held is a VIP of such endpoints.
func held(endpoints ...steering.Endpoint) steering.VIP {
	return steering.VIP{
		Address:   endpoints[0].Key.VIP,
		Switches:  []netip.Addr{netip.MustParseAddr(switch4), netip.MustParseAddr(switch6)},
		Peers:     []netip.Addr{netip.MustParseAddr(farHost4), netip.MustParseAddr(farHost6)},
		Endpoints: endpoints,
	}
}

// hold has switches hold a VIP, whose buckets name the backend here.
func (r *rig) hold(vip, tunnel string) {
	r.t.Helper()
	r.steer(held(heldEndpoint(model.TCP, vip, tunnel), heldEndpoint(model.UDP, vip, tunnel)))
}

func (r *rig) steer(vips ...steering.VIP) {
	r.t.Helper()
	r.SetHashKey(poolKey())
	if err := r.Steer(copied(vips)); err != nil {
		r.t.Fatal(err)
	}
}

// copied are VIPs that do not change with those that a test goes on with.
func copied(vips []steering.VIP) []steering.VIP {
	vips = slices.Clone(vips)
	for i := range vips {
		vips[i].Endpoints = slices.Clone(vips[i].Endpoints)
		for j := range vips[i].Endpoints {
			e := &vips[i].Endpoints[j]
			e.Buckets, e.Previous, e.Backends = slices.Clone(e.Buckets), slices.Clone(e.Previous), slices.Clone(e.Backends)
		}
	}
	return vips
}

// fromSwitch is a packet that a switch brings to a tunnel, in IP-in-IP or plain GUE.
func fromSwitch(p pkt.Packet, tunnel string, inGUEHeader bool) []byte {
	source := switch4
	if netip.MustParseAddr(tunnel).Is6() {
		source = switch6
	}
	if inGUEHeader {
		return withoutChecksum(inGUE(p, fromTo(source, tunnel), gue{}))
	}
	return p.Inside(fromTo(source, tunnel)).Frame()
}

// steered is what leaves for another host: from our tunnel address or, if that is of another family, from the host's.
func steered(inner pkt.Packet, own, to string, g gue) pkt.Packet {
	g.weir, g.kind = true, gueSteered
	out := handed(inner, own, to, g.step)
	return inGUE(inner, fromTo(out.IP.Source.String(), to), g)
}

// leavesSteered gives a frame to the program, which must steer it, and compares what leaves. The source port is the flow's.
func (r *rig) leavesSteered(in []byte, verdict string, want pkt.Packet) {
	r.t.Helper()
	got := r.run("from_uplink", in, nil)
	if got.verdict != verdict || got.action != tcxRedirect {
		r.t.Fatalf("verdict is %s with %d, not %s", got.verdict, int32(got.action), verdict)
	}
	decoded, err := pkt.Decode(got.frame)
	if err != nil {
		r.t.Fatal(err)
	}
	if decoded.SourcePort != entropy && decoded.SourcePort < entropyFirst {
		r.t.Errorf("entropy is %d", decoded.SourcePort)
	}
	want.SourcePort = decoded.SourcePort
	if diff := differences(want, got.frame); diff != "" {
		r.t.Fatalf("frame (-want +got):\n%s", diff)
	}
}

// TestSteeredPackets sends every kind of packet on to every kind of tunnel, by all mixtures of families.
func TestSteeredPackets(t *testing.T) {
	for _, own := range []string{native4, native6} {
		for _, far := range []string{farHost4, farHost6} {
			for _, w := range []struct{ client, vip string }{{client4, vip4}, {client6, vip6}} {
				for _, inGUEHeader := range []bool{false, true} {
					t.Run(strings.Join([]string{w.vip, own, far, map[bool]string{false: "IP", true: "GUE"}[inGUEHeader]}, " "), func(t *testing.T) {
						steerOnce(t, w.client, w.vip, own, far, inGUEHeader)
					})
				}
			}
		}
	}
}

func steerOnce(t *testing.T, client, vip, own, far string, inGUEHeader bool) {
	r := newRig(t)
	slot := model.Slot(farSlot4)
	if netip.MustParseAddr(far).Is6() {
		slot = farSlot6
	}
	tcp, udp := heldEndpoint(model.TCP, vip, own), heldEndpoint(model.UDP, vip, own)
	for _, e := range []*steering.Endpoint{&tcp, &udp} {
		e.Buckets = slices.Repeat([]model.Slot{slot}, 256)
	}
	r.steer(held(tcp, udp))
	syn, ack, datagram := pkt.TCP(client, vip, pkt.SYN), pkt.TCP(client, vip, pkt.ACK), pkt.UDP(client, vip)
	for _, p := range []pkt.Packet{syn, ack, datagram} {
		r.leavesSteered(fromSwitch(p, own, inGUEHeader), "steered_bucket", steered(p, own, far, gue{}))
	}
	named := pkt.TCP(client, vip, pkt.ACK, pkt.NOP(2), pkt.Timestamps(1, 5<<13|uint32(slot)))
	r.leavesSteered(fromSwitch(named, own, inGUEHeader), "steered_cookie", steered(named, own, far, gue{}))
	// The bucket moved from another host: the packet names its backend too.
	other := farHost6
	if far == farHost6 {
		other = farHost4
	}
	for _, e := range []*steering.Endpoint{&tcp, &udp} {
		e.Previous = slices.Repeat([]model.Slot{farSlot4 + farSlot6 - slot}, 256)
	}
	r.steer(held(tcp, udp))
	for _, p := range []pkt.Packet{ack, datagram} {
		query := gue{step: stepAsk, other: netip.MustParseAddr(other)}
		r.leavesSteered(fromSwitch(p, own, inGUEHeader), "steered_query", steered(p, own, far, query))
	}
	r.leavesSteered(fromSwitch(syn, own, inGUEHeader), "steered_bucket", steered(syn, own, far, gue{}))
	if n := len(r.rowCounts()); n != 0 {
		t.Errorf("rows were made for what others serve: %v", r.rowCounts())
	}
}

// TestSteeredNowhere drops what no backend is for, and what could not be taken apart again.
func TestSteeredNowhere(t *testing.T) {
	r := newRig(t)
	e := heldEndpoint(model.TCP, vip4, native4)
	e.Buckets = nil
	r.steer(held(e))
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	r.check("no buckets", step{program: "from_uplink", in: fromSwitch(ack, native4, false), verdict: "drop_steer_no_backend"})
	e.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
	r.steer(held(e))
	e.Buckets = slices.Repeat([]model.Slot{farSlot6}, 256)
	r.steer(held(e))
	r.check("merged, to another family", step{program: "from_uplink", in: fromSwitch(ack, native4, false), skb: gso(3, 100), verdict: "drop_steer_merged"})
	r.check("another port", step{program: "from_uplink", in: fromSwitch(pkt.UDP(client4, vip4), native4, false), verdict: "drop_steer_closed"})
	r.steer()
	r.check("no VIP is held", step{program: "from_uplink", in: fromSwitch(ack, native4, false), verdict: "drop_not_a_mux"})
}

// TestSwitchesAreOfTheirVIPs refuses a switch that holds another VIP of the host, and one that says what only muxes do.
func TestSwitchesAreOfTheirVIPs(t *testing.T) {
	r := newRig(t)
	one := held(heldEndpoint(model.TCP, vip4, native4))
	two := held(heldEndpoint(model.TCP, otherVIP4, native4))
	two.Switches = []netip.Addr{netip.MustParseAddr(otherSwitch4), netip.MustParseAddr(otherSwitch6)}
	two.Peers = []netip.Addr{netip.MustParseAddr("10.1.0.61")}
	r.steer(one, two)
	ack, other := pkt.TCP(client4, vip4, pkt.ACK), pkt.TCP(client4, otherVIP4, pkt.ACK)
	ackOut := delivered(ack, native4)
	weir := gue{weir: true, kind: gueSteered}
	r.check("its own", inbound(ack.Inside(fromTo(switch4, native4)), "deliver_native", &ackOut))
	for what, s := range map[string]step{
		"another's":                        inbound(other.Inside(fromTo(switch4, native4)), "drop_not_a_mux", nil),
		"word of a mux":                    carried(ack, fromTo(switch4, native4), step1(stepAsk, peer4), "drop_not_a_mux", nil),
		"steered by a switch":              carried(ack, fromTo(switch4, native4), weir, "drop_not_a_vip_host", nil),
		"steered by a mux":                 carried(ack, fromTo(mux4, native4), weir, "drop_not_a_vip_host", nil),
		"in IP by a host of another VIP":   inbound(ack.Inside(fromTo("10.1.0.61", native4)), "drop_not_a_mux", nil),
		"steered by a host of another VIP": carried(ack, fromTo("10.1.0.61", native4), weir, "drop_not_a_vip_host", nil),
	} {
		r.check(what, s)
	}
	r.check("steered", carried(ack, fromTo(farHost4, native4), weir, "deliver_native", &ackOut))
	// A steered packet is not steered again, whatever the bucket says.
	e := heldEndpoint(model.TCP, vip4, native4)
	e.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
	r.steer(held(e))
	r.check("steered, against the bucket", carried(ack, fromTo(farHost4, native4), weir, "deliver_native", &ackOut))
}

// TestSYNsStayWithProof keeps SYNs with timestamps where they arrive once the workload has answered one by timestamps.
func TestSYNsStayWithProof(t *testing.T) {
	r := newRig(t)
	e := heldEndpoint(model.TCP, vip4, native4)
	e.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
	e.Buckets[0] = backendSlot // takes new connections
	client := ""
	for port := range 100 {
		flow := model.Flow{
			Protocol:    model.TCP,
			Source:      netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(20000+port)),
			Destination: netip.MustParseAddrPort(vip4),
		}
		if poolKey().Sum(flow)%256 != 0 {
			client = flow.Source.String()
			break
		}
	}
	r.steer(held(e))
	syn := func(changes ...func(*pkt.Packet)) []byte {
		return fromSwitch(pkt.TCP(client, vip4, pkt.SYN, changes...), native4, false)
	}
	stamps := pkt.Timestamps(9, 0)
	goes := func(what string, frame []byte, want string) {
		t.Helper()
		if got := r.run("from_uplink", frame, nil); got.verdict != want {
			t.Fatalf("%s: verdict is %s, not %s", what, got.verdict, want)
		}
	}
	answer := func(client string, changes ...func(*pkt.Packet)) {
		t.Helper()
		in := pkt.TCP(client, vip4, pkt.SYN, stamps)
		goes("by a mux", in.Inside(outer(native4)).Frame(), "deliver_native")
		reply := replyTo(delivered(in, native4), pkt.SYN|pkt.ACK, changes...)
		if got := r.run("to_uplink", reply.Frame(), nil); got.verdict != "reply_native" {
			t.Fatalf("verdict of the answer is %s", got.verdict)
		}
	}
	goes("no proof yet", syn(stamps), "steered_bucket")
	answer("198.51.100.8:1000")
	goes("not answered with timestamps", syn(stamps), "steered_bucket")
	answer("198.51.100.8:1001", pkt.Timestamps(7, 9))
	goes("confirmed", syn(stamps), "deliver_native")
	goes("a SYN without", syn(), "steered_bucket")
	e.Cookies = model.CookiesSettling
	r.steer(held(e))
	goes("cookies settle", syn(stamps), "steered_bucket")
	e.Cookies, e.Buckets[0] = model.CookiesOn, farSlot4
	r.steer(held(e))
	goes("the backend takes none", syn(stamps), "steered_bucket")
	e.Buckets[0] = backendSlot
	r.steer(held(e))
	answer("198.51.100.8:1002")
	goes("disproven", syn(stamps), "steered_bucket")
}

// TestSteeredErrors has ICMP errors find the one backend that may have their connection.
func TestSteeredErrors(t *testing.T) {
	for _, w := range []struct {
		client, vip, dip, router, own, far string
		slot                               model.Slot
		kind                               uint8
	}{
		{client4, vip4, native4, "192.0.2.1", native4, farHost4, farSlot4, unreachable4},
		{client6, vip6, native6, "2001:db8:9::1", native6, farHost6, farSlot6, unreachable6},
	} {
		r := newRig(t)
		e := heldEndpoint(model.UDP, w.vip, w.own)
		tcp := heldEndpoint(model.TCP, w.vip, w.own)
		e.Buckets = slices.Repeat([]model.Slot{w.slot}, 256)
		r.steer(held(tcp, e))
		vip := netip.MustParseAddrPort(w.vip).Addr().String()
		carriedBy := func(ip []byte, source string) []byte {
			protocol := byte(4)
			if ip[0]>>4 == 6 {
				protocol = 41
			}
			head := fromTo(source, w.own)
			header := 20
			if head.Source.Is6() {
				header = 40
			}
			frame := pkt.UDP(client4, vip4).Inside(head).Frame()[:ethernetHeader+header]
			setCarried(frame[ethernetHeader:], protocol, len(ip))
			return append(frame, ip...)
		}
		source := switch4
		if netip.MustParseAddr(w.own).Is6() {
			source = switch6
		}
		goes := func(what string, quoted pkt.Packet, want string) {
			t.Helper()
			got := r.run("from_uplink", carriedBy(message(w.router, vip, w.kind, quote(quoted, 80)), source), nil)
			if got.verdict != want {
				t.Errorf("%s: verdict is %s, not %s", what, got.verdict, want)
			}
			if strings.HasPrefix(want, "steered_") {
				at := ethernetHeader + 16
				if netip.MustParseAddr(w.far).Is6() {
					at = ethernetHeader + 24
				}
				if to := got.frame[at : at+len(netip.MustParseAddr(w.far).AsSlice())]; !slices.Equal(to, netip.MustParseAddr(w.far).AsSlice()) {
					t.Errorf("%s: goes to %x", what, to)
				}
			}
		}
		datagram, segment := pkt.UDP(w.client, w.vip), pkt.TCP(w.client, w.vip, pkt.ACK)
		goes("of a flow elsewhere", replyTo(datagram, 0), "steered_error")
		goes("of a connection whose cookie is elsewhere", replyTo(segment, pkt.ACK, pkt.Timestamps(3<<13|uint32(w.slot), 1)), "steered_error")
		goes("of one that may be anywhere", replyTo(segment, pkt.ACK), "relay_error")
		goes("of a closed port", replyTo(datagram, 0, func(p *pkt.Packet) { p.SourcePort = 9 }), "drop_steer_closed")
		if got := r.run("from_uplink", datagram.Inside(outer(w.own)).Frame(), nil); got.verdict != "deliver_native" {
			t.Fatal(got.verdict)
		}
		goes("of a flow here", replyTo(datagram, 0), "deliver_native")
	}
}

// TestSteeredPacketsAreChained has a packet of a bucket that moved arrive at a third host: it ends where it is known, or
// else at the backend that has the bucket.
func TestSteeredPacketsAreChained(t *testing.T) {
	tunnels := [3]string{"10.1.0.5", "10.1.0.50", "10.1.0.60"}
	now := newSide(t, tunnels[0], "10.1.0.1", "fd01::1", "10.1.0.5", "fd01::5", tunnels[1])
	before := newSide(t, tunnels[1], "10.1.9.1", "fd01:9::1", "10.1.0.50", "fd01::50", tunnels[0])
	third := newSide(t, tunnels[2], "10.1.8.1", "fd01:8::1", "10.1.0.60", "fd01::60", tunnels[0])
	sides := map[netip.Addr]*side{}
	e := heldEndpoint(model.UDP, vip4, tunnels[0])
	e.Backends = nil
	for i, s := range []*side{now, before, third} {
		sides[netip.MustParseAddr(s.tunnel)] = s
		e.Backends = append(e.Backends, steering.Backend{Slot: model.Slot(i + 1), Tunnel: netip.MustParseAddr(s.tunnel)})
	}
	e.Buckets, e.Previous = slices.Repeat([]model.Slot{1}, 256), slices.Repeat([]model.Slot{2}, 256)
	for _, s := range sides {
		vip := held(e)
		vip.Peers = slices.Collect(maps.Keys(sides))
		s.steer(vip)
	}
	flow, merged := pkt.UDP(client4, vip4), gso(3, 4)
	for name, c := range map[string]struct {
		knows, ends *side
		skb         []byte
		ways        []string
	}{
		"nobody knows it":                   {nil, now, nil, []string{"steered_query", "chain_on", "chain_back", "deliver_interface"}},
		"the one before knows it":           {before, before, nil, []string{"steered_query", "chain_on", "deliver_interface"}},
		"the bucket's one knows it":         {now, now, nil, []string{"steered_query", "deliver_interface"}},
		"it is known where it is":           {third, third, nil, []string{"deliver_interface"}},
		"merged, nobody knows it":           {nil, before, merged, []string{"steered_query", "chain_on", "deliver_interface"}},
		"merged, the one before knows it":   {before, before, merged, []string{"steered_query", "chain_on", "deliver_interface"}},
		"merged, the bucket's one knows it": {now, now, merged, []string{"steered_query", "deliver_interface"}},
	} {
		for _, s := range sides {
			s.forget(t)
		}
		if c.knows != nil {
			c.knows.learn(t, flow)
		}
		at, frame := third, fromSwitch(flow, third.tunnel, false)
		for i, way := range c.ways {
			skb := c.skb
			if way == "deliver_interface" {
				skb = nil // a test run can't take a merged one out
			}
			got := at.run("from_uplink", frame, skb)
			if got.verdict != way {
				t.Fatalf("%s: hop %d: verdict is %s, not %s", name, i, got.verdict, way)
			}
			if frame = got.frame; way != "deliver_interface" {
				to, _ := netip.AddrFromSlice(frame[ethernetHeader+16 : ethernetHeader+20])
				at = sides[to]
			}
		}
		if at != c.ends {
			t.Errorf("%s: ends at %s", name, at.tunnel)
		}
	}
}

// TestSteeringIsRefusedWhole leaves tables as they are if what is told does not fit.
func TestSteeringIsRefusedWhole(t *testing.T) {
	r := newRig(t)
	r.hold(vip4, native4)
	var many []steering.Endpoint
	for port := range 4097 {
		e := heldEndpoint(model.TCP, vip4, native4)
		e.Key.Port, e.Buckets = uint16(port+1), []model.Slot{backendSlot}
		many = append(many, e)
	}
	if err := r.Steer([]steering.VIP{held(many...)}); err == nil || !strings.Contains(err.Error(), "endpoints") {
		t.Fatalf("too many endpoints: %v", err)
	}
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	out := delivered(ack, native4)
	r.check("as before", inbound(ack.Inside(fromTo(switch4, native4)), "deliver_native", &out))
}

// TestSteeringOutlivesTheAgent has another process find the endpoints by their numbers.
func TestSteeringOutlivesTheAgent(t *testing.T) {
	r := newRig(t)
	first, second := heldEndpoint(model.TCP, vip4, native4), heldEndpoint(model.UDP, vip4, native4)
	r.steer(held(first))
	numbers := func() map[bpf.AgentSteerKey]bpf.AgentSteerEndpoint {
		rows, err := abi.ReadTable[bpf.AgentSteerKey, bpf.AgentSteerEndpoint](r.objects.SteerEndpoints)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := numbers()
	r.Steering = agentsteer.New(&r.objects, &r.mu)
	if err := r.Steering.Read(); err != nil {
		t.Fatal(err)
	}
	r.steer(held(second, first))
	after := numbers()
	if len(after) != 3 { // and the VIP's own row
		t.Fatalf("has %v", after)
	}
	for key, row := range before {
		if after[key] != row {
			t.Errorf("%v was %v, and is %v", key, row, after[key])
		}
	}
	r.steer()
	for name, table := range map[string]*ebpf.Map{
		"endpoints": r.objects.SteerEndpoints, "buckets": r.objects.SteerBuckets, "backends": r.objects.SteerBackends, "sources": r.objects.SteerSources,
	} {
		var key, row []byte
		if table.Iterate().Next(&key, &row) {
			t.Errorf("%s are left", name)
		}
	}
}
