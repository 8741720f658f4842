package agent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	rules "github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/wire"
)

// rowsOfMultipath are the rows that packets have made.
func (r *rig) rowsOfMultipath() (own, names, joined, unconfirmed int) {
	r.t.Helper()
	report, err := r.SweepMultipath()
	if err != nil {
		r.t.Fatal(err)
	}
	return report.Tokens, report.Names, report.Joined, report.Unconfirmed
}

// sessionsOpen is how many sessions there are.
func (r *rig) sessionsOpen() int {
	r.t.Helper()
	report, err := r.Sweep(session.Now(), session.DefaultTimeouts())
	if err != nil {
		r.t.Fatal(err)
	}
	return report.Live
}

// TestJoinsThatNobodyKnows has a flood of random tokens be delivered nowhere and stored nowhere, by whatever step it comes.
func TestJoinsThatNobodyKnows(t *testing.T) {
	r := newRig(t)
	random := rand.New(rand.NewPCG(20, 8684))
	for _, w := range multipathWorlds {
		r.setMultipath(w.vip, peer4, peer6)
		peer := peer4
		if netip.MustParseAddr(w.tunnel).Is6() {
			peer = peer6
		}
		for i := range 200 {
			token := rules.Token(random.Uint32())
			if i == 0 {
				token = 0 // that no connection has, for the programs
			}
			syn := joins(w.client, w.vip, token)
			syn.SourcePort = uint16(1024 + i)
			homes := rules.HomesOf([]netip.Addr{netip.MustParseAddr(peer4), netip.MustParseAddr(peer6)})[token.Cell()]
			for step, want := range map[uint8]string{0: "join_home", stepHome: "join_home", stepHomeNext: "drop_join_unknown"} {
				in := syn.Inside(outer(w.tunnel)).Frame()
				if step != 0 {
					in = withoutChecksum(inGUE(syn, fromTo(peer, w.tunnel), step1(step, peer4)))
				}
				got := r.run("from_uplink", in, nil)
				if got.verdict != want {
					t.Fatalf("token %08x by step %d: %s, not %s", token, step, got.verdict, want)
				}
				if want != "join_home" {
					continue
				}
				to, next, other := homes[0].String(), uint8(stepHome), w.tunnel
				if step != 0 {
					to, next, other = homes[1].String(), stepHomeNext, peer4
				}
				if wrong := differs(got.frame, inGUE(syn, fromTo(sourceFor(w.tunnel, to), to), step1(next, other)).Frame()); wrong != "" {
					t.Fatalf("token %08x by step %d: %s", token, step, wrong)
				}
			}
		}
	}
	if own, names, joined, unconfirmed := r.rowsOfMultipath(); own+names+joined+unconfirmed+r.sessionsOpen() != 0 {
		t.Errorf("left are %d, %d, %d, %d rows", own, names, joined, unconfirmed)
	}
}

// mptcp is an option of Multipath TCP that says what length it has.
func mptcp(length uint8, subtype byte, rest ...byte) layers.TCPOption {
	return layers.TCPOption{OptionType: 30, OptionLength: length, OptionData: append([]byte{subtype << 4}, rest...)}
}

// TestJoinsInEveryPlace has no SYN delivered that a workload may take for a join: wherever the option stands, whatever is before
// and behind it. What no workload takes for one is a SYN like any other.
func TestJoinsInEveryPlace(t *testing.T) {
	token := binary.BigEndian.AppendUint32([]byte{9}, 0xabad1dea) // behind the address' number
	join := mptcp(12, 1, append(token, 1, 2, 3, 4)...)
	nop, end := layers.TCPOption{OptionType: layers.TCPOptionKindNop}, layers.TCPOption{OptionType: layers.TCPOptionKindEndList}
	timestamps := layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}
	unknown := layers.TCPOption{OptionType: 254, OptionLength: 6, OptionData: make([]byte, 4)}
	cases := map[string]struct {
		options []layers.TCPOption
		joins   bool
	}{
		"alone":                             {[]layers.TCPOption{join}, true},
		"last of 40 bytes":                  {[]layers.TCPOption{timestamps, unknown, unknown, unknown, join}, true},
		"unaligned":                         {[]layers.TCPOption{nop, join}, true},
		"behind NOPs":                       {[]layers.TCPOption{nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, join}, true},
		"behind a capable":                  {[]layers.TCPOption{mptcp(4, 0, 1), join}, true},
		"behind a capable of 12 bytes":      {[]layers.TCPOption{mptcp(12, 0, make([]byte, 9)...), join}, true},
		"behind another length":             {[]layers.TCPOption{mptcp(8, 1, make([]byte, 5)...), join}, true},
		"behind an option of 3 bytes":       {[]layers.TCPOption{mptcp(3, 3), join}, true},
		"twice":                             {[]layers.TCPOption{join, join}, true},
		"behind the end":                    {[]layers.TCPOption{end, join}, false},
		"of 11 bytes":                       {[]layers.TCPOption{mptcp(11, 1, make([]byte, 8)...)}, false},
		"of 16 bytes, a SYN/ACK's":          {[]layers.TCPOption{mptcp(16, 1, make([]byte, 13)...)}, false},
		"of 24 bytes, an ACK's":             {[]layers.TCPOption{mptcp(24, 1, make([]byte, 21)...)}, false},
		"longer than the header":            {[]layers.TCPOption{mptcp(13, 1, make([]byte, 9)...)}, false},
		"behind one longer than the header": {[]layers.TCPOption{{OptionType: 254, OptionLength: 40, OptionData: make([]byte, 4)}, join}, false},
		"behind a length of 0":              {[]layers.TCPOption{{OptionType: 254, OptionLength: 0, OptionData: []byte{}}, join}, false},
		"another subtype":                   {[]layers.TCPOption{mptcp(12, 2, make([]byte, 9)...)}, false},
		"another kind":                      {[]layers.TCPOption{{OptionType: 253, OptionLength: 12, OptionData: make([]byte, 10)}}, false},
	}
	for family, w := range multipathWorlds {
		r := newRig(t)
		r.setMultipath(w.vip, peer4, peer6)
		for name, c := range cases {
			in := withOptions(t, pkt.TCP(w.client, w.vip, pkt.SYN), outer(w.tunnel), c.options)
			want := w.deliver
			if c.joins {
				want = "join_home"
			}
			if got := r.run("from_uplink", in, nil); got.verdict != want {
				t.Errorf("%s, %s: %s, not %s", name, family, got.verdict, want)
			}
		}
	}
}

// withOptions is the frame of a SYN with options of the lengths that they say, whatever they are.
func withOptions(t *testing.T, syn pkt.Packet, outer pkt.IP, options []layers.TCPOption) []byte {
	t.Helper()
	var raw []byte
	for _, o := range options {
		raw = append(raw, byte(o.OptionType))
		if o.OptionType > layers.TCPOptionKindNop {
			raw = append(append(raw, o.OptionLength), o.OptionData...)
		}
	}
	room := (len(raw) + 3) / 4 * 4
	frame := syn.With(pkt.NOP(room)).Inside(outer).Frame()
	at := bytes.Index(frame, bytes.Repeat([]byte{byte(layers.TCPOptionKindNop)}, room))
	if at < 0 || room > 40 {
		t.Fatalf("no room for %d bytes of options", room)
	}
	copy(frame[at:], raw)
	return frame
}

// TestForgedRegistrations has nothing noted of what is not for its sender to tell, and each counted.
func TestForgedRegistrations(t *testing.T) {
	w := multipathWorlds["v4 native"]
	const foreignPeer = "10.1.0.77" // of an endpoint of another tenant
	name := w.name(0x5eed)
	foreign := name
	foreign.Endpoint.VIP = netip.MustParseAddrPort(otherVIP4).Addr()
	client := netip.MustParseAddrPort(w.client)
	joined := func(from, other string, step uint8) []byte {
		say := step1(step, other)
		say.kind = kindJoined
		return withoutChecksum(inGUE(joins(w.client, w.vip, name.Token), fromTo(from, native4), say))
	}
	told := func(name rules.Name, from, holder string, step rules.Step) []byte {
		return says(rules.Tell(name, netip.MustParseAddr(holder), client, step), from, native4)
	}
	r := newRig(t)
	own := multipathRules(w.vip, []netip.Addr{netip.MustParseAddr(peer4), netip.MustParseAddr(peer6)})
	other := rule(model.TCP, otherVIP4, native4, native4, native6)
	other.Tenant, other.ChainPeers = "other", []netip.Addr{netip.MustParseAddr(foreignPeer)}
	other.Homes = other.ChainPeers
	if err := r.Replace(append(own, other)); err != nil {
		t.Fatal(err)
	}
	for sender, from := range map[string]string{"mux": mux4, "stranger": strange4, "foreign tenant's host": foreignPeer, "foreign host": farHost4} {
		for what, in := range map[string][]byte{
			"token":             told(name, from, peer4, rules.StepHome),
			"token, next":       told(name, from, peer4, rules.StepHomeNext),
			"token, asked":      told(name, from, from, rules.StepHolder),
			"asked for a peer":  told(name, from, peer4, rules.StepHolder),
			"token as its own":  told(name, from, from, rules.StepHome),
			"joined":            joined(from, peer4, stepHolder),
			"joined as its own": joined(from, from, stepHolder),
		} {
			if got := r.run("from_uplink", in, nil); got.verdict != "drop_not_chain_peer" {
				t.Errorf("%s of a %s: %s", what, sender, got.verdict)
			}
		}
	}
	for what, c := range map[string]struct {
		in   []byte
		want string
	}{
		"a peer for a stranger":        {told(name, peer4, strange4, rules.StepHome), "drop_not_chain_peer"},
		"a peer for a mux":             {joined(peer4, mux4, stepHolder), "drop_not_chain_peer"},
		"a peer for a foreign tenant":  {told(foreign, peer4, peer4, rules.StepHome), "drop_not_chain_peer"},
		"a peer asks for a stranger":   {told(name, peer4, strange4, rules.StepHolder), "drop_not_chain_peer"},
		"a peer asks, nobody has it":   {told(name, peer4, peer6, rules.StepHolder), "drop_join_stale"},
		"a token without a step":       {told(name, peer4, peer4, rules.StepNone), "drop_gue_unknown"},
		"a subflow with a home's step": {joined(peer4, peer4, stepHome), "drop_gue_unknown"},
		"a subflow without a step":     {joined(peer4, peer4, 0), "drop_gue_unknown"},
	} {
		if got := r.run("from_uplink", c.in, nil); got.verdict != c.want {
			t.Errorf("%s: %s, not %s", what, got.verdict, c.want)
		}
	}
	if own, names, joined, unconfirmed := r.rowsOfMultipath(); own+names+joined+unconfirmed+r.sessionsOpen() != 0 {
		t.Errorf("left are %d, %d, %d, %d rows", own, names, joined, unconfirmed)
	}
}

// TestEqualTokensAtTwoServers has the joins of the first one go on to it, and those of the second too, and never elsewhere: which
// server is meant nobody can know, and it checks their HMAC. The second is counted.
func TestEqualTokensAtTwoServers(t *testing.T) {
	for family, w := range multipathWorlds {
		r := newRig(t)
		r.setMultipath(w.vip, peer4, peer6)
		name := w.name(0xfeedface)
		for i, c := range []struct{ from, holder, want string }{
			{peer4, peer4, "join_noted"}, {peer4, peer6, "drop_join_conflict"}, {peer4, peer6, "drop_join_conflict"}, {peer4, peer4, "join_noted"},
		} {
			if got := r.run("from_uplink", tells(name, c.from, native4, c.holder), nil); got.verdict != c.want {
				t.Errorf("%s, %d: %s, not %s", family, i, got.verdict, c.want)
			}
		}
		syn := joins(w.client, w.vip, name.Token)
		got := r.run("from_uplink", syn.Inside(outer(w.tunnel)).Frame(), nil)
		want := inGUE(syn, fromTo(sourceFor(w.tunnel, peer4), peer4), step1(stepHolder, w.tunnel))
		if wrong := differs(got.frame, want.Frame()); got.verdict != "join_on" || wrong != "" {
			t.Errorf("%s: %s, %s", family, got.verdict, wrong)
		}
		if _, names, _, _ := r.rowsOfMultipath(); names != 1 {
			t.Errorf("%s: %d rows", family, names)
		}
	}
}

// TestATokenMovesWithItsWorkload has a home ask for a token that nobody refreshes, and the host that the workload moved to take
// it, once it has a session of the connection: not otherwise.
func TestATokenMovesWithItsWorkload(t *testing.T) {
	for family, w := range multipathWorlds {
		t.Run(family, func(t *testing.T) {
			r := newRig(t)
			r.setMultipath(w.vip, peer4, peer6)
			from := peer4
			if netip.MustParseAddr(w.tunnel).Is6() {
				from = peer6
			}
			name := w.name(0x70ce)
			asks := func(client string, name rules.Name) []byte {
				return says(rules.Tell(name, netip.MustParseAddr(peer4), netip.MustParseAddrPort(client), rules.StepHolder), from, w.tunnel)
			}
			asked := func(what string, in []byte, want string) {
				t.Helper()
				if got := r.run("from_uplink", in, nil); got.verdict != want {
					t.Errorf("%s: %s, not %s", what, got.verdict, want)
				}
			}
			asked("before the client has sent anything", asks(w.client, name), "drop_join_stale")
			// The client's segment brings the connection, the workload's answer confirms it.
			ack := pkt.TCP(w.client, w.vip, pkt.ACK, pkt.NOP(2), pkt.Timestamps(2, 5<<13|backendSlot))
			if got := r.verdict("from_uplink", ack.Inside(outer(w.tunnel))); got != w.deliver {
				t.Fatalf("segment: %s", got)
			}
			asked("before the workload has answered", asks(w.client, name), "drop_join_stale")
			if got := r.verdict(w.program, replyTo(delivered(ack, w.dip), pkt.ACK)); got != w.reply {
				t.Fatalf("answer: %s", got)
			}
			asked("of another client", asks(from6or4(w.client), name), "drop_join_stale")
			if own, err := r.OwnTokens(); err != nil || len(own) != 0 {
				t.Fatalf("tokens: %v, %v", own, err)
			}
			asked("of this one", asks(w.client, name), "join_noted")
			asked("again", asks(w.client, name), "join_noted")
			second := name
			second.Token++
			asked("of another token of the same connection", asks(w.client, second), "drop_join_stale")
			own, err := r.OwnTokens()
			if err != nil || len(own) != 1 || own[0].Name != name || own[0].Tunnel != netip.MustParseAddr(w.tunnel) || own[0].Client != netip.MustParseAddrPort(w.client) {
				t.Fatalf("tokens: %v, %v", own, err)
			}
			if got := r.verdict("from_uplink", joins(from6or4(w.client), w.vip, name.Token).Inside(outer(w.tunnel))); got != w.deliver {
				t.Errorf("join: %s", got)
			}
		})
	}
}

// TestLostTokensComeBack has the sweep put back a token whose row is gone, once its client has proven that it is there.
func TestLostTokensComeBack(t *testing.T) {
	for family, w := range multipathWorlds {
		r := newRig(t)
		r.setMultipath(w.vip, peer4, peer6)
		token := rules.TokenOf(testKey)
		ack := w.shake(r, t)
		if own, _, _, _ := r.rowsOfMultipath(); own != 0 {
			t.Errorf("%s: %d rows before the client has proven anything", family, own)
		}
		if got := r.verdict("from_uplink", ack.Inside(outer(w.tunnel))); got != w.deliver {
			t.Fatalf("%s: third segment: %s", family, got)
		}
		if err := abi.WriteTable(r.objects.MptcpTokens, map[bpf.AgentMultipathName]bpf.AgentMultipathHolder{}); err != nil {
			t.Fatal(err)
		}
		r.rowsOfMultipath()
		own, err := r.OwnTokens()
		if err != nil || len(own) != 1 || own[0].Name != w.name(token) || own[0].Client != netip.MustParseAddrPort(w.client) {
			t.Fatalf("%s: tokens: %v, %v", family, own, err)
		}
		tunnels := []string{native4, native6} // of the same backend
		if w.deliver == "deliver_interface" {
			tunnels = []string{interface4, interface6}
		}
		if !slices.Contains(tunnels, own[0].Tunnel.String()) {
			t.Errorf("%s: by tunnel %s", family, own[0].Tunnel)
		}
	}
}

// TestNoTokenIsGrafted has no host take a token for a connection that began here: its SYN/ACK has said that it has none.
func TestNoTokenIsGrafted(t *testing.T) {
	for family, w := range multipathWorlds {
		r := newRig(t)
		r.setMultipath(w.vip, peer4, peer6)
		syn, ack := pkt.TCP(w.client, w.vip, pkt.SYN), pkt.TCP(w.client, w.vip, pkt.ACK)
		answer := replyTo(delivered(syn, w.dip), pkt.SYN|pkt.ACK)
		ack.Ack = answer.Seq + 1
		if got := []string{r.verdict("from_uplink", syn.Inside(outer(w.tunnel))), r.verdict(w.program, answer), r.verdict("from_uplink", ack.Inside(outer(w.tunnel)))}; got[0] != w.deliver || got[1] != w.reply || got[2] != w.deliver {
			t.Fatalf("%s: %v", family, got)
		}
		from := peer4
		if netip.MustParseAddr(w.tunnel).Is6() {
			from = peer6
		}
		in := says(rules.Tell(w.name(0x6afd), netip.MustParseAddr(peer4), netip.MustParseAddrPort(w.client), rules.StepHolder), from, w.tunnel)
		if got := r.run("from_uplink", in, nil); got.verdict != "drop_join_stale" {
			t.Errorf("%s: %s", family, got.verdict)
		}
	}
}

// TestTokensThatNobodyRefreshes are asked about, and others not.
func TestTokensThatNobodyRefreshes(t *testing.T) {
	r := newRig(t)
	w := multipathWorlds["v4 native"]
	r.setMultipath(w.vip, peer4, peer6)
	name := w.name(0x01d)
	if got := r.run("from_uplink", tells(name, peer4, native4, peer6), nil); got.verdict != "join_noted" {
		t.Fatal(got.verdict)
	}
	if stale, err := r.StaleTokens(); err != nil || len(stale) != 0 {
		t.Errorf("fresh: %v, %v", stale, err)
	}
	r.ageNames(rules.AskAfter + rules.RefreshFirst)
	stale, err := r.StaleTokens()
	if err != nil || len(stale) != 1 || stale[0].Name != name || stale[0].Tunnel != netip.MustParseAddr(peer6) || stale[0].Client != netip.MustParseAddrPort(w.client) {
		t.Errorf("old: %v, %v", stale, err)
	}
	if at := stale[0].From; at != netip.MustParseAddr(native4) && at != netip.MustParseAddr(native6) && at != netip.MustParseAddr(interface4) && at != netip.MustParseAddr(interface6) {
		t.Errorf("it is asked from %s", at)
	}
	r.ageNames(rules.NameLife)
	if stale, err := r.StaleTokens(); err != nil || len(stale) != 0 {
		t.Errorf("ended: %v, %v", stale, err)
	}
}

// TestSubflowsCountWhereTheyCome has subflows without a cookie of another host count for the draining buckets of the host that
// they come to, and not at the one that has them.
func TestSubflowsCountWhereTheyCome(t *testing.T) {
	const buckets, subflows = 16, 100
	key := flowhash.Key{1: 7, 5: 9, 17: 3, 33: 200}
	r := newRig(t)
	r.SetHashKey(key)
	b := rule(model.TCP, vip4, native4, native4, native6)
	b.Buckets, b.Draining = buckets, []uint32{2, 3, 11}
	b.Homes = []netip.Addr{netip.MustParseAddr(peer4), netip.MustParseAddr(peer6)}
	if err := r.Replace([]model.HostBackend{b}); err != nil {
		t.Fatal(err)
	}
	want := model.BackendSessions{Key: b.Key()}
	for i := range subflows {
		client := fmt.Sprintf("198.51.100.%d:%d", i%20+1, 20000+i)
		say := step1(stepHolder, peer4)
		say.kind = kindJoined
		r.check("told", carried(joins(client, vip4, 77), fromTo(peer4, native4), say, "join_noted", nil))
		if i%2 == 0 {
			continue // it has sent nothing yet
		}
		r.check("told again", carried(pkt.TCP(client, vip4, pkt.ACK), fromTo(peer4, native4), say, "join_noted", nil))
		if got := r.verdict("from_uplink", pkt.TCP(client, vip4, pkt.ACK).Inside(outer(native4))); got != "join_on" {
			t.Fatal(got)
		}
		bucket := key.Sum(model.Flow{Protocol: model.TCP, Source: netip.MustParseAddrPort(client), Destination: netip.MustParseAddrPort(vip4)}) % buckets
		if bucket == 2 || bucket == 3 || bucket == 11 {
			want.Sessions++
			want.WithoutCookie++
			want.Draining++
		}
	}
	report, err := r.Sweep(session.Now(), session.DefaultTimeouts())
	for _, s := range report.Backends { // the manager refuses all of a report for one count that can't be
		if read, err := wire.BackendSessionsFromProto(wire.BackendSessionsToProto(s)); err != nil || read != s {
			t.Errorf("manager reads %+v, %v", read, err)
		}
	}
	if err != nil || len(report.Backends) != 1 || report.Backends[0] != want || want.Draining == 0 || want.Draining == subflows/2 {
		t.Errorf("at the host that they come to: %+v, %v, not %+v", report.Backends, err, want)
	}
}

// TestSubflowsThatOthersHandOn has those not count for buckets of this host's that has them, unlike a later connection of the ports.
func TestSubflowsThatOthersHandOn(t *testing.T) {
	const subflows = 10
	r := newRig(t)
	b := rule(model.TCP, vip4, native4, native4, native6)
	b.Homes = []netip.Addr{netip.MustParseAddr(peer4), netip.MustParseAddr(peer6)}
	if err := r.Replace([]model.HostBackend{b}); err != nil {
		t.Fatal(err)
	}
	for i := range subflows {
		client := fmt.Sprintf("198.51.100.%d:%d", i%20+1, 20000+i)
		if got := r.run("from_uplink", withoutChecksum(inGUE(joins(client, vip4, 77), fromTo(peer4, native4), step1(stepHolder, peer4))), nil); got.verdict != "deliver_native" {
			t.Fatal(got.verdict)
		}
		answer := replyTo(delivered(joins(client, vip4, 77), native4), pkt.SYN|pkt.ACK, mptcpAnswer)
		if got := r.verdict("to_uplink", answer); got != "reply_native" {
			t.Fatal(got)
		}
	}
	report, err := r.Sweep(session.Now(), session.DefaultTimeouts())
	want := model.BackendSessions{Key: b.Key(), Sessions: subflows}
	if err != nil || len(report.Backends) != 1 || report.Backends[0] != want {
		t.Errorf("at the host that has them: %+v, %v, not %+v", report.Backends, err, want)
	}
	// A connection of the same ports that is none of theirs comes by this host's buckets.
	plain := pkt.TCP("198.51.100.1:20000", vip4, pkt.SYN)
	if got := r.verdict("from_uplink", plain.Inside(outer(native4))); got != "deliver_native" {
		t.Fatal(got)
	}
	if got := r.verdict("to_uplink", replyTo(delivered(plain, native4), pkt.SYN|pkt.ACK)); got != "reply_native" {
		t.Fatal(got)
	}
	report, err = r.Sweep(session.Now(), session.DefaultTimeouts())
	if err != nil || len(report.Backends) != 1 || report.Backends[0].Sessions != subflows || report.Backends[0].WithoutCookie != 1 {
		t.Errorf("with another connection of the ports: %+v, %v", report.Backends, err)
	}
}

// mptcpAnswer is the option of a SYN/ACK to a join.
func mptcpAnswer(p *pkt.Packet) { multipathOption(append([]byte{1 << 4}, make([]byte, 13)...)...)(p) }
