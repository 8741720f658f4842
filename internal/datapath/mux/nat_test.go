package mux

import (
	"bytes"
	"maps"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	resets "github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// A VIP of network 100 with full NAT, and the backend of its only slot.
const (
	natVIP4, natVIP6         = "10.99.0.8:80", "[fd12::97]:80"
	natBackend4, natBackend6 = "10.77.0.1:80", "[fd77::1]:80"
)

// withNAT has the VIPs of world() be in networks with full NAT, and says what else is different.
func withNAT(more ...func(*testing.T, *Datapath)) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		withNetworks(nil)(t, d)
		hops := map[netip.Addr]model.NextHop{}
		for _, tunnel := range d.Tunnels() {
			hops[tunnel] = testHop
		}
		if err := d.SetNextHops(hops); err != nil {
			t.Fatal(err)
		}
		for _, change := range more {
			change(t, d)
		}
	}
}

// uncongested is a client's segment in VXLAN that met no congestion, from a host with an agent.
func uncongested(p pkt.Packet) []byte {
	v := inVXLAN(p, agentHost)
	v.Outer.TOS = 0
	return v.Frame(p)
}

// opened has a client's SYN make a session, and gives its NAT address and port.
func opened(t *testing.T, d *Datapath, syn pkt.Packet) string {
	t.Helper()
	action, out := run(t, d, uncongested(syn))
	checkAction(t, action, xdpTX)
	sent, err := pkt.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(sent.IP.Source, sent.SourcePort).String()
}

// quota is what each tenant may have.
func quota(most, halfOpen uint32) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		for tenant := range uint32(3) {
			if err := d.SetNATTenant(tenant, most, most, halfOpen); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// natCases are packets of full NAT. Sessions are made by the change before.
func natCases() []packetCase {
	syn, syn6 := pkt.TCP(tenant4, natVIP4, pkt.SYN, pkt.MSS(1460)), pkt.TCP(tenant6, natVIP6, pkt.SYN, pkt.MSS(1460))
	other := pkt.TCP("192.168.0.6:40000", natVIP4, pkt.SYN)
	known := func(p pkt.Packet) func(*testing.T, *Datapath) {
		return func(t *testing.T, d *Datapath) { t.Helper(); opened(t, d, p) }
	}
	client := func(name, verdict string, p pkt.Packet, before ...func(*testing.T, *Datapath)) packetCase {
		c := networkCase(name, verdict, p, func(v *pkt.VXLAN) {
			if verdict != "drop_ecn" {
				v.Outer.TOS = 0
			}
		})
		c.change = withNAT(before...)
		return c
	}
	forwarded := func(name string, p pkt.Packet, before ...func(*testing.T, *Datapath)) packetCase {
		c := client(name, "forward_nat", p, before...)
		c.check = checkNATForward
		return c
	}
	synACK := func(p *pkt.Packet) { p.Flags = pkt.SYN | pkt.ACK }
	from := func(address string) pkt.Packet { return pkt.TCP(address, "10.66.0.0:32768", pkt.ACK, pkt.MSS(1460)) }
	from6 := func(address string) pkt.Packet { return pkt.TCP(address, "[fd66::40]:32768", pkt.ACK) }
	return []packetCase{
		forwarded("full NAT", syn),
		forwarded("full NAT, v6", syn6),
		forwarded("full NAT, in a session", syn.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }), known(syn)),
		client("no place for half-open sessions", "drop_half_open", other, quota(8, 1), known(syn)),
		client("no place for sessions", "drop_quota", other, quota(0, 8)),
		client("all rows taken", "drop_session_full", syn, fillSessions),
		client("another CPU makes it", "drop_session_pending", syn, known(syn), haltSessions),
		client("congestion that can't be told", "drop_ecn", syn.With(pkt.TOS(0))),
		client("client that is elsewhere", "drop_other_host", pkt.TCP(tenant4, natVIP4, pkt.ACK, func(p *pkt.Packet) { p.Seq = syn.Seq + 1<<20 }), moved(syn)),
		client("no NAT address", "drop_no_source", syn, func(t *testing.T, d *Datapath) {
			if err := d.SetNATPrefixes(netip.Prefix{}, natPrefix6); err != nil {
				t.Fatal(err)
			}
		}),
		natAnswer("answer of full NAT", "reply_nat", syn, from(natBackend4).With(synACK)),
		natAnswer("answer of full NAT, v6", "reply_nat", syn6, from6(natBackend6).With(synACK)),
		natAnswer("other backend", "drop_nat_source", syn, from("10.77.0.2:80")),
		natAnswer("other port of the backend", "drop_nat_source", syn, from("10.77.0.1:81")),
		natAnswer("other protocol to a NAT address", "drop_nat_other", syn, pkt.UDP(natBackend4, "10.66.0.0:32768")),
		natAnswer("ping of a NAT address", "drop_nat_other", syn, pkt.ICMP("10.77.0.1", "10.66.0.0")),
		natAnswer("fragment to a NAT address", "drop_nat_other", syn, from(natBackend4).With(pkt.Fragment(0, true))),
		{name: "NAT address without a session", verdict: "drop_no_session", packet: from(natBackend4), change: withNAT()},
	}
}

// natAnswer is a packet to the NAT address and port of the session that a SYN has made.
func natAnswer(name, verdict string, syn, p pkt.Packet) packetCase {
	frame := make([]byte, 0, 2048)
	c := packetCase{name: name, verdict: verdict, packet: p, check: checkNATReply}
	c.change = func(t *testing.T, d *Datapath) {
		withNAT()(t, d)
		at := netip.MustParseAddrPort(opened(t, d, syn))
		p.IP.Destination, p.DestinationPort = at.Addr(), at.Port()
		frame = append(frame[:0], p.Frame()...)
	}
	c.damage = func([]byte) []byte { return bytes.Clone(frame) }
	return c
}

// moved has the session's client send from host 8 what host 7 sends next.
func moved(syn pkt.Packet) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		v := inVXLAN(syn, "10.2.0.2")
		v.Outer.TOS = 0
		run(t, d, v.Frame(syn))
	}
}

// fillSessions has sessions in all rows.
func fillSessions(t *testing.T, d *Datapath) {
	t.Helper()
	eachSet(t, d, func(set *bpf.MuxOverlaySet) {
		for way := range set.Tags {
			set.Tags[way] = 1<<8 | uint32(bpf.MuxOverlayLayoutOVERLAY_LIVE)
			set.Rows[way].Events = uint16(bpf.MuxOverlayEventOVERLAY_CLIENT_ACK)
			set.Rows[way].Seen = nat.Now()
		}
	})
}

// haltSessions leaves sessions as they are while a CPU makes them.
func haltSessions(t *testing.T, d *Datapath) {
	t.Helper()
	eachSet(t, d, func(set *bpf.MuxOverlaySet) {
		for way, tag := range set.Tags {
			if tag != 0 {
				set.Tags[way] = tag ^ uint32(bpf.MuxOverlayLayoutOVERLAY_STATE_MASK)
			}
		}
	})
}

func eachSet(t *testing.T, d *Datapath, change func(*bpf.MuxOverlaySet)) {
	t.Helper()
	for i := range d.tables.NATSessions.MaxEntries() {
		var set bpf.MuxOverlaySet
		if err := d.tables.NATSessions.Lookup(i, &set); err != nil {
			t.Fatal(err)
		}
		if change(&set); set != (bpf.MuxOverlaySet{}) {
			if err := d.tables.NATSessions.Put(i, set); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkNATForward wants the client's segment from a NAT address to the backend, and but for the MSS nothing else changed.
func checkNATForward(t *testing.T, frame, out []byte) {
	t.Helper()
	_, sent, err := pkt.DecodeVXLAN(frame)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pkt.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	backend, prefix := netip.MustParseAddrPort(natBackend4), natPrefix4
	if got.IP.Source.Is6() {
		backend, prefix = netip.MustParseAddrPort(natBackend6), natPrefix6
	}
	if !prefix.Contains(got.IP.Source) || got.SourcePort < 1<<15 || netip.AddrPortFrom(got.IP.Destination, got.DestinationPort) != backend {
		t.Errorf("sent from %s:%d to %s:%d", got.IP.Source, got.SourcePort, got.IP.Destination, got.DestinationPort)
	}
	want := sent.With(func(p *pkt.Packet) {
		p.IP.Source, p.IP.Destination, p.IP.TOS = got.IP.Source, got.IP.Destination, got.IP.TOS
		p.SourcePort, p.DestinationPort, p.Source, p.Destination = got.SourcePort, got.DestinationPort, testHop.Source, testHop.Destination
	})
	checkClamped(t, want, out)
}

// checkNATReply wants the backend's segment in VXLAN to the client's host.
func checkNATReply(t *testing.T, frame, out []byte) {
	t.Helper()
	sent, err := pkt.Decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	v, got, err := pkt.DecodeVXLAN(out)
	if err != nil {
		t.Fatal(err)
	}
	client, vip := netip.MustParseAddrPort(tenant4), netip.MustParseAddrPort(natVIP4)
	if got.IP.Source.Is6() {
		client, vip = netip.MustParseAddrPort(tenant6), netip.MustParseAddrPort(natVIP6)
	}
	if v.VNI != 100 || v.Reserved != ([4]byte{}) || v.Outer.Source != overlay4 || v.Outer.Destination != netip.MustParseAddr(agentHost) {
		t.Errorf("sent in %+v", v)
	}
	of := pkt.TCP(tenant4, natVIP4, pkt.SYN)
	want := sent.With(func(p *pkt.Packet) {
		p.IP.Source, p.SourcePort, p.IP.Destination, p.DestinationPort = vip.Addr(), vip.Port(), client.Addr(), client.Port()
		p.Source, p.Destination = oracleGateway, of.Source
	})
	checkClamped(t, want, got.Frame())
}

// checkClamped wants the packet, with an MSS that fits.
func checkClamped(t *testing.T, want pkt.Packet, frame []byte) {
	t.Helper()
	most := uint16(testMTU - 50 - 40)
	if want.IP.Source.Is6() {
		most -= 20
	}
	if len(want.Options) > 0 && want.Flags&pkt.SYN != 0 {
		want = want.With(func(p *pkt.Packet) { p.Options = nil }, pkt.MSS(most))
	}
	if wanted := want.Frame(); !bytes.Equal(wanted, frame) {
		t.Errorf("sent\n%x, want\n%x", frame, wanted)
	}
}

// A session is the tenant's until its row is freed, and what is idle for too long rests as if it were reset.
func TestFullNATSessionsEnd(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	withNAT(quota(8, 8))(t, d)
	syn := pkt.TCP(tenant4, natVIP4, pkt.SYN)
	local := netip.MustParseAddrPort(opened(t, d, syn))
	half := pkt.TCP("192.168.0.9:1", natVIP4, pkt.SYN)
	opened(t, d, half)
	wantUsage := func(rows, halfOpen int) {
		t.Helper()
		got, err := d.NATUsage(1)
		if err != nil || got.Rows != rows || got.HalfOpen != halfOpen {
			t.Errorf("tenant 1 has %+v, %v, want %d rows, %d half-open", got, err, rows, halfOpen)
		}
	}
	wantUsage(2, 2)
	answer := pkt.TCP(natBackend4, local.String(), pkt.SYN|pkt.ACK)
	run(t, d, answer.Frame())
	ack := syn.With(func(p *pkt.Packet) { p.Flags, p.Seq, p.Ack = pkt.ACK, syn.Seq+1, answer.Seq+1 })
	run(t, d, uncongested(ack))
	wantUsage(2, 1)
	var ended []resets.Pair
	sweep := func(ticks uint32, want nat.Swept) {
		t.Helper()
		got, err := d.SweepNAT(nat.Now()+ticks, func(r resets.Pair) error {
			ended = append(ended, r)
			return nil
		})
		if err != nil || got != want {
			t.Errorf("sweep found %+v, %v, want %+v", got, err, want)
		}
	}
	sweep(0, nat.Swept{Open: 1, HalfOpen: 1})
	sweep(2000, nat.Swept{Open: 1, Freed: 1})
	wantUsage(1, 0)
	slots := oracleNATSlots()
	for slot, b := range slots {
		b.IdleTimeout = 100 * nat.Tick
		slots[slot] = b
	}
	if err := d.SetNATBackends(slots); err != nil {
		t.Fatal(err)
	}
	sweep(150, nat.Swept{Idle: 1})
	checkResets(t, ended, syn, local, answer.Ack, answer.Seq+1)
	sweep(200, nat.Swept{Over: 1})
	sweep(150+700, nat.Swept{Freed: 1})
	wantUsage(0, 0)
}

// Who knows a backend's address can write it into a packet, but does not know the connection's numbers: only a reset with the
// number that the client expects next ends the session.
func TestForgedResetsEndNoSession(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	withNAT()(t, d)
	syn := pkt.TCP(tenant4, natVIP4, pkt.SYN)
	local := opened(t, d, syn)
	state := func() (is nat.State) {
		for s := range natSessions(t, d) {
			is = s.State
		}
		return is
	}
	reset := func(seq, ack uint32) nat.State {
		run(t, d, pkt.TCP(natBackend4, local, pkt.RST|pkt.ACK).With(func(p *pkt.Packet) { p.Seq, p.Ack = seq, ack }).Frame())
		return state()
	}
	if got := reset(0, syn.Seq); got != nat.HalfOpen {
		t.Errorf("%s after a reset that acknowledges another SYN", got)
	}
	answer := pkt.TCP(natBackend4, local, pkt.SYN|pkt.ACK).With(func(p *pkt.Packet) { p.Ack = syn.Seq + 1 })
	run(t, d, answer.Frame())
	run(t, d, uncongested(syn.With(func(p *pkt.Packet) { p.Flags, p.Seq, p.Ack = pkt.ACK, syn.Seq+1, answer.Seq+1 })))
	for _, seq := range []uint32{answer.Seq, answer.Seq - 1<<20, answer.Seq + 1<<31, answer.Seq + 1<<24} {
		if got := reset(seq, syn.Seq+1); got != nat.Open {
			t.Errorf("%s after a reset with %d, where %d is expected", got, seq, answer.Seq+1)
		}
	}
	if got := reset(answer.Seq+1, syn.Seq+1); got != nat.Reset {
		t.Errorf("%s after the backend's reset", got)
	}
}

// checkResets wants one pair of resets: from the NAT address to the backend, and from the VIP to the client in VXLAN from the
// address that all muxes have, each with the number that its end expects.
func checkResets(t *testing.T, all []resets.Pair, syn pkt.Packet, local netip.AddrPort, toServer, toClient uint32) {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%d sessions were reset", len(all))
	}
	r, backend := all[0], netip.MustParseAddrPort(natBackend4)
	server := resets.Packet(local, backend, toServer)
	if !bytes.Equal(r.ToServer, server) || r.Server != backend.Addr() {
		t.Errorf("to the backend %s goes\n%x, want\n%x", r.Server, r.ToServer, server)
	}
	from, to := netip.MustParseAddrPort(natVIP4), netip.MustParseAddrPort(tenant4)
	client := append(resets.VXLAN(100, syn.Source, oracleGateway, true), resets.Packet(from, to, toClient)...)
	if !bytes.Equal(r.ToClient, client) || r.Tunnel != overlay4 || r.Host != netip.MustParseAddr(agentHost) {
		t.Errorf("to %s goes from %s\n%x, want\n%x", r.Host, r.Tunnel, r.ToClient, client)
	}
}

// A backend's number is nobody else's while a session has it; sessions of a VIP that is detached end.
func TestFullNATKeepsWhatSessionsHave(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	withNAT()(t, d)
	local := opened(t, d, pkt.TCP(tenant4, natVIP4, pkt.SYN))
	if err := d.SetNATBackends(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SweepNAT(nat.Now(), nil); err != nil {
		t.Fatal(err)
	}
	answer := pkt.TCP(natBackend4, local, pkt.SYN|pkt.ACK).Frame()
	action, _ := run(t, d, answer)
	checkAction(t, action, xdpTX)
	attachments := map[uint32]bool{}
	for s := range natSessions(t, d) {
		attachments[s.Attachment] = true
	}
	if !attachments[8] || len(attachments) != 1 {
		t.Errorf("sessions of attachments %v, want of 8", attachments)
	}
	if err := d.SetAttachments(nil); err != nil {
		t.Fatal(err)
	}
	if action, _ = run(t, d, answer); action != xdpDrop {
		t.Errorf("action %d for a session of a VIP that is detached", action)
	}
	for s := range natSessions(t, d) {
		t.Errorf("session %+v lives on", s)
	}
}

func natSessions(t *testing.T, d *Datapath) func(func(nat.Session) bool) {
	t.Helper()
	all, err := d.NATSessions()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// An attachment that has full NAT no more keeps the sessions that it has; its new connections are bypassed.
func TestSessionsOutliveFullNAT(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	withNAT()(t, d)
	syn := pkt.TCP(tenant4, natVIP4, pkt.SYN)
	opened(t, d, syn)
	attachments := maps.Clone(oracleAttachments)
	for number, a := range oracleAttachments {
		a.NAT = false
		attachments[number] = a
	}
	if err := d.SetAttachments(attachments); err != nil {
		t.Fatal(err)
	}
	before := verdicts(t, d)
	ack, other := syn.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }), pkt.TCP("192.168.0.6:9", natVIP4, pkt.SYN)
	run(t, d, uncongested(ack))
	run(t, d, uncongested(other))
	if got := difference(before, verdicts(t, d)); got["forward_nat"] != 1 || got["forward_syn"] != 1 {
		t.Errorf("verdicts %v, want the session's and a bypassed SYN", got)
	}
}

func TestFullNATRefuses(t *testing.T) {
	sizes := testSizes
	sizes.NATSets = 4096
	d := newUnattached(t, sizes)
	for name, p := range map[string][2]string{
		"other family": {"fd66::/112", ""}, "too large": {"10.0.0.0/9", ""}, "too small": {"10.66.0.1/32", ""}, "host bits": {"10.66.0.1/16", ""},
		"v6 too large": {"", "fd66::/96"}, "v4 for v6": {"", "10.66.0.0/16"},
	} {
		var v4, v6 netip.Prefix
		if p[0] != "" {
			v4 = netip.MustParsePrefix(p[0])
		}
		if p[1] != "" {
			v6 = netip.MustParsePrefix(p[1])
		}
		if err := d.SetNATPrefixes(v4, v6); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	slot := nat.Slot{Service: netip.MustParseAddr("203.0.113.1"), Port: 80, Slot: 1}
	if err := d.SetNATBackends(map[nat.Slot]nat.Backend{slot: {Address: netip.MustParseAddrPort("[fd00::1]:80")}}); err == nil {
		t.Error("a backend of the other family is accepted")
	}
	if err := d.SetNATHosts([]nat.Host{{Number: 1 << 30}}); err == nil {
		t.Error("a host beyond the table is accepted")
	}
	if err := d.SetNATPrefixes(natPrefix4, natPrefix6); err != nil {
		t.Fatal(err)
	}
	if v4, v6, err := d.NATPrefixes(); err != nil || v4 != natPrefix4 || v6 != natPrefix6 {
		t.Errorf("prefixes %s and %s, %v", v4, v6, err)
	}
}
