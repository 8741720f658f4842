package mux

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
)

// synSecrets are three that follow each other, the middle one of which makes cookies.
func synSecrets(first uint32) []model.SYNSecret {
	var all []model.SYNSecret
	for id := first; id < first+model.SYNSecrets; id++ {
		all = append(all, model.SYNSecret{ID: id, Secret: [16]byte{byte(id), 8: byte(id >> 8), 15: 1}})
	}
	return all
}

// inMode has the SYNs of an endpoint answered always, or never, or as the mux says.
func inMode(e model.MuxEndpoint, mode model.SYNCookies) model.MuxEndpoint {
	e.SYNCookies = mode
	return e
}

// answering has the endpoints of TCP answer their SYNs.
func answering(t *testing.T, d *Datapath) {
	t.Helper()
	if err := d.SetSYNSecrets(synSecrets(1)); err != nil {
		t.Fatal(err)
	}
	err := d.Apply([]model.MuxEndpoint{
		inMode(newEndpoint(vip4, model.TCP, tunnel4, tunnel6, "10.0.0.3"), model.SYNCookiesAlways),
		inMode(newEndpoint(vip6, model.TCP, tunnel6, tunnel4), model.SYNCookiesAlways),
		inMode(newEndpoint("203.0.113.11:80", model.TCP), model.SYNCookiesAlways),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
}

func synCases() []packetCase {
	syn4, syn6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(client6, vip6, pkt.SYN)
	noMSS := pkt.TCP(client6, vip6, pkt.SYN, pkt.Payload(nil), pkt.MSS(0), pkt.TCPOptions( // where Linux writes its own
		layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
	), pkt.Timestamps(1, 0), pkt.NOP(1), pkt.TCPOptions(
		layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
	))
	oddMSS := pkt.TCP(client4, vip4, pkt.SYN, pkt.TCPOptions(
		layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionLength: 3, OptionData: []byte{40}},
	), pkt.NOP(1))
	unknown := pkt.TCP(client4, vip4, pkt.SYN, pkt.TCPOptions(
		layers.TCPOption{OptionType: 254, OptionLength: 4, OptionData: []byte{1, 2}},
	))
	cases := []packetCase{
		{name: "4", packet: syn4, verdict: "reply_syn", check: checkSYNACK(syn4)},
		{name: "6", packet: syn6, verdict: "reply_syn", check: checkSYNACK(syn6)},
		{name: "with an MSS of 0", packet: noMSS, verdict: "reply_syn", check: checkSYNACK(noMSS)},
		{name: "with an MSS of another size", packet: oddMSS, verdict: "reply_syn", check: checkSYNACK(oddMSS)},
		{name: "with an option beyond its header", packet: unknown, verdict: "drop_syn", damage: lengthenOption},
		{name: "and FIN", packet: pkt.TCP(client4, vip4, pkt.SYN|pkt.FIN), verdict: "drop_syn"},
		{name: "and RST", packet: pkt.TCP(client6, vip6, pkt.SYN|pkt.RST), verdict: "drop_syn"},
		{name: "from port 0", packet: pkt.TCP("198.51.100.7:0", vip4, pkt.SYN), verdict: "drop_syn"},
		{name: "to no backend", packet: pkt.TCP(client4, "203.0.113.11:80", pkt.SYN), verdict: "drop_no_backend"},
		{name: "wrong checksum", packet: syn4, verdict: "drop_syn", damage: func(f []byte) []byte { f[14+20+16]++; return f }},
		{name: "wrong data", packet: syn6, verdict: "drop_syn", damage: func(f []byte) []byte { f[len(f)-1]++; return f }},
	}
	for i := range cases {
		cases[i].change = answering
	}
	return cases
}

// lengthenOption has the first option reach beyond the header, and the checksum right.
func lengthenOption(frame []byte) []byte {
	tcp := frame[14+20:]
	tcp[21]++
	sum := uint32(^binary.BigEndian.Uint16(tcp[16:])) + 1
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum+sum>>16))
	return frame
}

// checkSYNACK wants the answer to a SYN.
func checkSYNACK(syn pkt.Packet) func(t *testing.T, frame, out []byte) {
	return func(t *testing.T, _, out []byte) {
		t.Helper()
		if diff := differsFromSYNACK(syn, synOffer(syn), synSecrets(1), nil, out, time.Now()); diff != "" {
			t.Error(diff)
		}
	}
}

// synOffer is what a SYN offers, by RFC 9293 and RFC 7323, as its last option of a kind says it.
func synOffer(syn pkt.Packet) syncookie.Offer {
	o := syncookie.Offer{MSS: 536, Scale: syncookie.NoScale}
	if syn.IP.Source.Is6() {
		o.MSS = 1220
	}
	for _, option := range syn.Options {
		switch option.OptionType {
		case layers.TCPOptionKindMSS:
			if len(option.OptionData) != 2 {
				continue // none of another size is one
			}
			if said := binary.BigEndian.Uint16(option.OptionData); said != 0 {
				o.MSS = said
			}
		case layers.TCPOptionKindWindowScale:
			o.Scale = min(int(option.OptionData[0]), 14)
		case layers.TCPOptionKindSACKPermitted:
			o.SACK = true
		case layers.TCPOptionKindTimestamps:
			o.Timestamps = true
		}
	}
	if !o.Timestamps {
		o.Scale, o.SACK = syncookie.NoScale, false
	}
	return o
}

// answerLag is how long ago an answer may have been made: the program's clock lags by some jiffies, and a busy
// machine takes its time until the answer is looked at.
const answerLag = 30 * time.Second

// differsFromSYNACK says how out is not the answer to syn that an endpoint with the buckets gives, if it
// does; they are none where the slot does not matter.
func differsFromSYNACK(syn pkt.Packet, offer syncookie.Offer, secrets []model.SYNSecret, buckets []model.Slot, out []byte, now time.Time) string {
	got, err := pkt.Decode(out)
	if err != nil {
		return err.Error()
	}
	want := syn.With(pkt.Payload(nil), pkt.Padding(0), pkt.TOS(0))
	want.Source, want.Destination = syn.Destination, syn.Source
	want.IP = pkt.IP{Source: syn.IP.Destination, Destination: syn.IP.Source, TTL: 64, DontFragment: syn.IP.Is4()}
	want.SourcePort, want.DestinationPort = syn.DestinationPort, syn.SourcePort
	want.Flags, want.Ack, want.Seq = pkt.SYN|pkt.ACK, syn.Seq+1, got.Seq
	own := uint16(1370) // of TestFor of package mss, for testMTU
	if syn.IP.Source.Is6() {
		own = 1364
	}
	want.Options = nil
	want = want.With(pkt.MSS(own))
	slot := model.Slot(0)
	if len(buckets) > 0 {
		sum := testSettings().HashKey.Sum(model.Flow{
			Protocol: model.TCP, Source: netip.AddrPortFrom(syn.IP.Source, syn.SourcePort),
			Destination: netip.AddrPortFrom(syn.IP.Destination, syn.DestinationPort),
		})
		slot = buckets[sum&uint32(len(buckets)-1)]
	}
	if offer.Timestamps {
		want = withSYNACKOptions(want, got, syn, offer, slot)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		return "the answer (-want +got):\n" + diff
	}
	if window := binary.BigEndian.Uint16(out[want.L4()+14:]); window != syncookie.Window {
		return "another window"
	}
	flow := syncookie.Flow{
		Client: netip.AddrPortFrom(syn.IP.Source, syn.SourcePort), VIP: netip.AddrPortFrom(syn.IP.Destination, syn.DestinationPort), ISN: syn.Seq,
	}
	for _, at := range []time.Time{now, now.Add(-answerLag)} { // less than a tick apart
		if got.Seq == syncookie.Make(model.MakesSYNCookies(secrets), flow, offer, at) {
			return ""
		}
	}
	return "the cookie is another one"
}

// withSYNACKOptions adds the options for a client with timestamps. TSval's clock is taken from got.
func withSYNACKOptions(want, got, syn pkt.Packet, offer syncookie.Offer, slot model.Slot) pkt.Packet {
	if offer.SACK {
		want = want.With(pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2}))
	}
	echo := uint32(0)
	for _, option := range syn.Options {
		if option.OptionType == layers.TCPOptionKindTimestamps {
			echo = binary.BigEndian.Uint32(option.OptionData)
		}
	}
	value := syncookie.TSval(offer, slot, time.Now())
	for _, option := range got.Options {
		if option.OptionType == layers.TCPOptionKindTimestamps {
			said := binary.BigEndian.Uint32(option.OptionData)
			if late := int32(value-said) >> 18; late >= 0 && late <= int32(answerLag>>28) {
				value = said&^0x3ffff | value&0x3ffff
			}
			if slot == 0 {
				value = value&^0x1fff | said&0x1fff
			}
		}
	}
	want = want.With(pkt.Timestamps(value, echo))
	if offer.Scale >= 0 {
		want = want.With(pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{syncookie.WindowScale}}))
	}
	return want
}

// drawSYN draws a SYN, and whether it may be answered.
func drawSYN(t *rapid.T) (syn pkt.Packet, frame []byte, answered bool) {
	v4 := rapid.Bool().Draw(t, "v4")
	syn = pkt.TCP(client6, vip6, pkt.SYN)
	if v4 {
		syn = pkt.TCP(client4, vip4, pkt.SYN)
	}
	syn.SourcePort = rapid.Uint16Min(1).Draw(t, "port")
	syn.Seq = rapid.Uint32().Draw(t, "seq")
	syn.Flags |= rapid.SampledFrom([]pkt.Flags{0, pkt.ECE | pkt.CWR, pkt.PSH, pkt.URG}).Draw(t, "flags")
	syn = syn.With(pkt.Payload(make([]byte, rapid.SampledFrom([]int{0, 0, 1, 7, 64, 1000, 1280 - 60}).Draw(t, "data"))),
		pkt.TOS(rapid.Byte().Draw(t, "tos")), pkt.Padding(rapid.SampledFrom([]int{0, 6}).Draw(t, "padding")))
	if v4 {
		syn = syn.With(pkt.IPOptions(4 * rapid.SampledFrom([]int{0, 0, 1, 10}).Draw(t, "options of IP")))
	}
	syn = syn.With(pkt.TCPOptions(drawSYNOptions(t)...))
	tags := rapid.IntRange(0, 2).Draw(t, "tags")
	syn = syn.With(pkt.VLANs([]uint16{5, 6}[:tags]...))
	frame = syn.Frame()
	if !v4 && tags == 0 && syn.Padding == 0 && rapid.Bool().Draw(t, "extensions") {
		frame = behindExtensions(extensionOf{protocol: 0, bytes: 8}, extensionOf{protocol: 60, bytes: 16})(frame)
	}
	if rapid.IntRange(0, 3).Draw(t, "damage") == 0 {
		from := len(frame) - syn.Padding - len(syn.Payload) - 20
		at := rapid.IntRange(from, len(frame)-syn.Padding-1).Draw(t, "at")
		bit := byte(1) << rapid.IntRange(0, 7).Draw(t, "bit")
		return syn, frame, wrongly(frame, at, bit)
	}
	return syn, frame, true
}

// wrongly turns a bit over: the checksum is wrong then.
func wrongly(frame []byte, at int, bit byte) bool {
	frame[at] ^= bit
	return false
}

// drawSYNOptions draws options that fit, each kind once, in any order.
func drawSYNOptions(t *rapid.T) []layers.TCPOption {
	all := []layers.TCPOption{
		pkt.Packet{}.With(pkt.MSS(rapid.Uint16().Draw(t, "mss"))).Options[0],
		{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
		pkt.Packet{}.With(pkt.Timestamps(rapid.Uint32().Draw(t, "tsval"), 0)).Options[0],
		{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{rapid.ByteRange(0, 20).Draw(t, "scale")}},
		{OptionType: 254, OptionLength: 6, OptionData: []byte{8, 10, 3, 3}},
		{OptionType: layers.TCPOptionKindNop, OptionLength: 1},
	}
	if rapid.Bool().Draw(t, "as Linux") {
		return []layers.TCPOption{all[0], all[1], all[2], all[5], all[3]}
	}
	kept := rapid.SliceOfDistinct(rapid.IntRange(0, len(all)-1), rapid.ID).Draw(t, "kinds")
	var options []layers.TCPOption
	for _, i := range kept {
		options = append(options, all[i])
	}
	return options
}

// What is answered, and with what, as the RFCs say and the twin in Go counts. Whatever is not well formed gets no
// answer.
func TestSYNsAreAnswered(t *testing.T) {
	d := newFilled(t, world()...)
	answering(t, d)
	buckets := map[bool][]model.Slot{
		true:  newEndpoint(vip4, model.TCP, tunnel4, tunnel6, "10.0.0.3").Buckets,
		false: newEndpoint(vip6, model.TCP, tunnel6, tunnel4).Buckets,
	}
	otherwise := false // some were damaged so that they are no SYNs, and are remembered as what they are
	rapid.Check(t, func(r *rapid.T) {
		syn, frame, answered := drawSYN(r)
		before := verdicts(t, d)
		action, out := run(t, d, frame)
		moved := difference(before, verdicts(t, d))
		if !answered {
			for verdict := range moved {
				otherwise = otherwise || strings.HasPrefix(verdict, "forward_") && verdict != "forward_syn"
			}
			if action == xdpTX && moved["reply_syn"] != 0 {
				r.Fatalf("a damaged SYN is answered: %v", moved)
			}
			return
		}
		if action != xdpTX || moved["reply_syn"] != 1 {
			r.Fatalf("action %d, verdicts %v", action, moved)
		}
		if diff := differsFromSYNACK(syn, synOffer(syn), synSecrets(1), buckets[syn.IP.Is4()], out, time.Now()); diff != "" {
			r.Fatal(diff)
		}
	})
	usage, err := d.Usage()
	remembers := slices.ContainsFunc(usage.VIPs, func(v VIPUsage) bool { return v.Flows != flow.Usage{} })
	if err != nil || remembers && !otherwise {
		t.Errorf("flows are remembered of SYNs: %+v, %v", usage.VIPs, err)
	}
}

// The clock that answers tell goes on, on a CPU that has asked it before.
func TestSYNAnswersTellTheTime(t *testing.T) {
	d := newFilled(t, world()...)
	answering(t, d)
	runtime.LockOSThread() // for good: the thread ends with the test
	var one unix.CPUSet
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	frame := pkt.TCP(client4, vip4, pkt.SYN, pkt.Timestamps(1, 0)).Frame()
	clock := func() uint32 { // of 14 bits
		t.Helper()
		_, out := run(t, d, frame)
		got, err := pkt.Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, option := range got.Options {
			if option.OptionType == layers.TCPOptionKindTimestamps {
				return binary.BigEndian.Uint32(option.OptionData) >> 18
			}
		}
		t.Fatal("an answer without timestamps")
		return 0
	}
	first := clock()
	since := func() uint32 { return (clock() - first) & 0x3fff }
	for end := time.Now().Add(10 * time.Second); since() < 2; {
		if time.Now().After(end) {
			t.Fatalf("the clock has said %d for 10 s", first)
		}
	}
	if steps := since(); steps > uint32(answerLag>>28) {
		t.Errorf("the clock went on from %d by %d at once", first, steps)
	}
}

// An endpoint that leaves it to the mux answers while it is told to, through changes of its tables, and not
// without secrets.
func TestTheMuxDecidesWhatIsAnswered(t *testing.T) {
	auto := inMode(newEndpoint(vip4, model.TCP, tunnel4), model.SYNCookiesAuto)
	d := newFilled(t, auto)
	frame := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	expect := func(when, verdict string) {
		t.Helper()
		before := verdicts(t, d)
		run(t, d, frame)
		if diff := cmp.Diff(map[string]uint64{verdict: 1}, difference(before, verdicts(t, d))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	set := func(state endpoint.SYNState) {
		t.Helper()
		if err := d.SetSYNState(auto.Key, state); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(e model.MuxEndpoint) {
		t.Helper()
		if err := d.Apply([]model.MuxEndpoint{e}, nil); err != nil {
			t.Fatal(err)
		}
		resolve(t, d)
	}
	expect("at first", "forward_syn")
	set(endpoint.SYNState{Answers: true})
	expect("without secrets", "forward_syn")
	if err := d.SetSYNSecrets(synSecrets(1)); err != nil {
		t.Fatal(err)
	}
	set(endpoint.SYNState{Answers: true, Watches: true})
	expect("when told to", "reply_syn")
	wider := inMode(newEndpoint(vip4, model.TCP, tunnel4, tunnel6), model.SYNCookiesAuto)
	apply(wider)
	expect("with another backend", "reply_syn")
	apply(inMode(wider, model.SYNCookiesNever))
	expect("never", "forward_syn")
	set(endpoint.SYNState{Answers: true})
	expect("never, whatever the mux says", "forward_syn")
	apply(inMode(wider, model.SYNCookiesAlways))
	expect("always", "reply_syn")
	apply(inMode(wider, model.SYNCookiesAuto))
	expect("at last", "forward_syn")
}

// While secrets are replaced each answer is right by one of the secrets that all know.
func TestSecretsRotateUnderLoad(t *testing.T) {
	d := newFilled(t, world()...)
	answering(t, d)
	syn := pkt.TCP(client4, vip4, pkt.SYN, pkt.MSS(1460), pkt.Timestamps(5, 0))
	frame := syn.Frame()
	for first := uint32(1); first < 200; first++ {
		known := synSecrets(first)
		if err := d.SetSYNSecrets(known); err != nil {
			t.Fatal(err)
		}
		_, out := run(t, d, frame)
		answer, err := pkt.Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		flow := syncookie.Flow{Client: netip.MustParseAddrPort(client4), VIP: netip.MustParseAddrPort(vip4), ISN: syn.Seq}
		// A host that has the secrets before, or after, knows it as well.
		for _, knows := range [][]model.SYNSecret{known, synSecrets(first + 1), synSecrets(max(first, 2) - 1)} {
			if mss, err := syncookie.Check(knows, flow, answer.Seq, synOffer(syn), time.Now()); err != nil || mss != 1460 {
				t.Fatalf("secrets from %d on, a host with %v: %d, %v", first, knows, mss, err)
			}
		}
	}
}
