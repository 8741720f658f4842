package agent

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// The workload's clock in these tests, what a client is told of it, and the client's own clock.
const (
	tsval0      = 0xfffff123 // wraps soon
	clientTSval = 0x01020304
)

// told is the TSval that the client gets for the workload's.
func told(tsval uint32) uint32 { return tsval>>3<<13 | backendSlot }

// sack is the option with n blocks.
func sack(n int) func(*pkt.Packet) {
	return pkt.TCPOptions(layers.TCPOption{
		OptionType: layers.TCPOptionKindSACK, OptionLength: uint8(2 + 8*n), OptionData: make([]byte, 8*n),
	})
}

func sackPermitted() func(*pkt.Packet) {
	return pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2})
}

func windowScale() func(*pkt.Packet) {
	return pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}})
}

// noNOP takes away what decoding leaves out.
func noNOP(p *pkt.Packet) {
	var kept []layers.TCPOption
	for _, o := range p.Options {
		if o.OptionType != layers.TCPOptionKindNop {
			kept = append(kept, o)
		}
	}
	p.Options = kept
}

// timestampPlaces are segments' options with the timestamps in various places.
func timestampPlaces() map[string]func(ts func(*pkt.Packet)) []func(*pkt.Packet) {
	type change = func(*pkt.Packet)
	return map[string]func(change) []change{
		"alone and aligned":   func(ts change) []change { return []change{pkt.NOP(2), ts} },
		"before a SACK block": func(ts change) []change { return []change{pkt.NOP(2), ts, pkt.NOP(2), sack(1)} },
		"before three blocks": func(ts change) []change { return []change{pkt.NOP(2), ts, pkt.NOP(2), sack(3)} },
		"first":               func(ts change) []change { return []change{ts, pkt.NOP(2)} },
		"at an odd offset":    func(ts change) []change { return []change{pkt.NOP(1), ts, pkt.NOP(1)} },
		"behind a SACK block": func(ts change) []change { return []change{sack(1), ts} },
		"last, and odd":       func(ts change) []change { return []change{pkt.NOP(27), ts, pkt.NOP(3)} },
		"last of forty bytes": func(ts change) []change { return []change{pkt.NOP(2), sack(3), pkt.NOP(2), ts} },
		"as of a Linux SYN/ACK": func(ts change) []change {
			return []change{pkt.MSS(536), sackPermitted(), ts, pkt.NOP(1), windowScale()}
		},
	}
}

// cookieCases have a connection's timestamps in every place, for both kinds of workload.
func cookieCases() []packetCase {
	var all []packetCase
	for name, place := range timestampPlaces() {
		for _, family := range []int{4, 6} {
			for _, kind := range []string{"native", "interface"} {
				all = append(all, cookieCase(fmt.Sprintf("cookie v%d %s, timestamps %s", family, kind, name), family, kind, place))
			}
		}
	}
	return append(all, plainTimestampCases()...)
}

func cookieCase(name string, family int, kind string, place func(func(*pkt.Packet)) []func(*pkt.Packet)) packetCase {
	h := newHandshake(family, kind, place)
	return packetCase{name, []step{
		h.in(pkt.SYN, clientTSval, 0, 0),
		h.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), clientTSval),
		h.in(pkt.ACK, clientTSval+1, told(tsval0), tsval0),
		h.out(pkt.ACK, tsval0+2, told(tsval0+2), clientTSval+1),
		h.out(pkt.ACK|pkt.PSH, tsval0+4, told(tsval0+4), clientTSval+1),
		h.out(pkt.ACK|pkt.PSH, tsval0+90, told(tsval0+90), clientTSval+1),
		h.in(pkt.ACK, clientTSval+3, told(tsval0), tsval0+4), // the last of its tick
		h.in(pkt.ACK, clientTSval+4, told(tsval0+90), tsval0+90),
		h.in(pkt.ACK, clientTSval+4, told(tsval0+40), tsval0+40|7), // its tick sent nothing that is known
		h.in(pkt.ACK, clientTSval+4, told(tsval0+90)^1, 0),         // no cookie of ours
		h.in(pkt.ACK, clientTSval+4, told(tsval0+1000), tsval0+90), // never sent
		h.out(pkt.FIN|pkt.ACK, tsval0+91, told(tsval0+91), clientTSval+4),
		h.in(pkt.FIN|pkt.ACK, clientTSval+6, told(tsval0+91), tsval0+91),
		h.in(pkt.RST, clientTSval+7, 77, 77), // without ACK there is no echo to restore
	}}
}

// handshake makes the steps of one connection.
type handshake struct {
	family int
	kind   string
	place  func(func(*pkt.Packet)) []func(*pkt.Packet)
}

func newHandshake(family int, kind string, place func(func(*pkt.Packet)) []func(*pkt.Packet)) handshake {
	return handshake{family, kind, place}
}

func (h handshake) ends() (client, vip, dip string) {
	if h.family == 6 {
		return client6, vip6, dipOf(h.kind, 6)
	}
	return client4, vip4, dipOf(h.kind, 4)
}

// in has the client send timestamps of which the workload gets the same TSval and another TSecr.
func (h handshake) in(flags pkt.Flags, tsval, tsecr, want uint32) step {
	client, vip, dip := h.ends()
	p := pkt.TCP(client, vip, flags).Inside(outer(dipOf(h.kind, 4)))
	out := delivered(p, dip, h.place(pkt.Timestamps(tsval, want))...).With(noNOP)
	return inbound(p.With(h.place(pkt.Timestamps(tsval, tsecr))...), "deliver_"+h.kind, &out)
}

// out has the workload send timestamps of which the client gets another TSval.
func (h handshake) out(flags pkt.Flags, tsval, want, tsecr uint32) step {
	client, vip, dip := h.ends()
	program, verdict := "to_uplink", "reply_native"
	if h.kind == "interface" {
		program, verdict = "from_workload", "reply_uplink"
	}
	p := replyTo(delivered(pkt.TCP(client, vip, flags), dip), flags)
	direct := p.With(h.place(pkt.Timestamps(want, tsecr))...).With(from(vip), noNOP)
	return outbound(program, p.With(h.place(pkt.Timestamps(tsval, tsecr))...), verdict, &direct)
}

func aligned(ts func(*pkt.Packet)) []func(*pkt.Packet) {
	return []func(*pkt.Packet){pkt.NOP(2), ts}
}

func noTimestamps(func(*pkt.Packet)) []func(*pkt.Packet) { return nil }

// plainTimestampCases are connections that carry no cookie, and such whose session was lost.
func plainTimestampCases() []packetCase {
	with, without := newHandshake(4, "native", aligned), newHandshake(4, "native", noTimestamps)
	const own = uint32(0x5555) // of a workload, by chance not the slot
	return []packetCase{
		{"client without timestamps", []step{
			without.in(pkt.SYN, 0, 0, 0), without.out(pkt.SYN|pkt.ACK, 0, 0, 0), without.in(pkt.ACK, 0, 0, 0),
			with.out(pkt.ACK, own, own, 1), with.in(pkt.ACK, 1, own, own),
		}},
		{"workload without timestamps", []step{
			with.in(pkt.SYN, 1, 0, 0), without.out(pkt.SYN|pkt.ACK, 0, 0, 0), without.in(pkt.ACK, 0, 0, 0),
			with.out(pkt.ACK, own, own, 1), with.in(pkt.ACK, 1, own, own),
		}},
		{"connection from before cookies", []step{
			with.in(pkt.ACK, 1, own, own), with.out(pkt.ACK, own+1, own+1, 1), with.in(pkt.ACK, 1, own+1, own+1),
		}},
		{"session was lost", []step{
			with.in(pkt.ACK, 1, told(tsval0), 0), // means none
			with.out(pkt.ACK, tsval0+16, told(tsval0+16), 1),
			with.in(pkt.ACK, 2, told(tsval0), tsval0|7), with.in(pkt.ACK, 2, told(tsval0+16), tsval0+16),
		}},
		{"session was lost, and a forged reset came first", []step{
			without.in(pkt.RST, 0, 0, 0), with.in(pkt.ACK, 1, told(tsval0), 0), with.out(pkt.ACK, tsval0+16, told(tsval0+16), 1),
		}},
		{"forged reset and SYN in a live connection", []step{
			with.in(pkt.SYN, 1, 0, 0), with.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), 1), with.in(pkt.ACK, 1, told(tsval0), tsval0),
			without.in(pkt.RST, 0, 0, 0), without.in(pkt.SYN, 0, 0, 0),
			with.out(pkt.ACK, tsval0+16, told(tsval0+16), 1), with.in(pkt.ACK, 2, told(tsval0+16), tsval0+16),
		}},
		{"connection anew, the old one's end unseen", []step{
			with.in(pkt.SYN, 1, 0, 0), with.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), 1), with.in(pkt.ACK, 1, told(tsval0), tsval0),
			with.in(pkt.SYN, 0x90000000, 0, 0), with.out(pkt.SYN|pkt.ACK, own, told(own), 1), with.in(pkt.ACK, 1, told(own), own),
		}},
		{"anew without timestamps, and with them again", []step{
			with.in(pkt.SYN, 1, 0, 0), with.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), 1),
			without.in(pkt.SYN, 0, 0, 0), without.out(pkt.SYN|pkt.ACK, 0, 0, 0), with.out(pkt.ACK, own, own, 1),
			with.in(pkt.SYN, 1, 0, 0), with.out(pkt.SYN|pkt.ACK, own, told(own), 1), with.in(pkt.ACK, 1, told(own), own),
		}},
	}
}

// TestRulesWithoutCookies leaves timestamps alone; but what has a cookie keeps it.
func TestRulesWithoutCookies(t *testing.T) {
	r := newRig(t)
	h := newHandshake(4, "native", aligned)
	off := rule(model.TCP, vip4, native4, native4, native6)
	off.Cookies = false
	r.check("SYN", h.in(pkt.SYN, 1, 0, 0))
	r.check("SYN/ACK", h.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), 1))
	if err := r.Apply([]model.HostBackend{off}, nil); err != nil {
		t.Fatal(err)
	}
	r.check("ACK", h.in(pkt.ACK, 1, told(tsval0), tsval0))
	r.check("data", h.out(pkt.ACK, tsval0+8, told(tsval0+8), 1))
	r.check("SYN without", h.in(pkt.SYN, 1, 0, 0))
	r.check("SYN/ACK without", h.out(pkt.SYN|pkt.ACK, tsval0, tsval0, 1))
	r.check("ACK without", h.in(pkt.ACK, 1, told(tsval0), told(tsval0)))
}

// TestEchoesAreRestored draws the workload's TSvals and echoes any of them: what the workload gets
// is the last TSval of the same tick while the agent can know it, and never more than it has sent.
func TestEchoesAreRestored(t *testing.T) {
	r := newRig(t)
	h := newHandshake(4, "native", aligned)
	random := rand.New(rand.NewPCG(1, 2))
	r.check("SYN", h.in(pkt.SYN, clientTSval, 0, 0))
	sent := []uint32{tsval0}
	r.check("SYN/ACK", h.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), clientTSval))

	in, out := h.in(pkt.ACK, 1, 0, 0).in, h.out(pkt.ACK, 0, 0, 1).in
	inAt, outAt := len(in)-len("weir spreads a river")-4, len(out)-len("weir spreads a river")-8
	for range 20_000 {
		last := sent[len(sent)-1]
		if random.IntN(2) == 0 {
			next := last + []uint32{0, 1, random.Uint32N(4), random.Uint32N(50), random.Uint32N(1 << 20)}[random.IntN(5)]
			binary.BigEndian.PutUint32(out[outAt:], next)
			if got := binary.BigEndian.Uint32(r.quick("to_uplink", out)[outAt:]); got != told(next) {
				t.Fatalf("the client is told %#x of %#x, not %#x", got, next, told(next))
			}
			sent = append(sent, next)
			continue
		}
		echoed := sent[len(sent)-1-random.IntN(min(len(sent), 40))]
		if (last-echoed)>>3 >= 1<<18 {
			continue // beyond the bound
		}
		binary.BigEndian.PutUint32(in[inAt:], told(echoed))
		got := binary.BigEndian.Uint32(r.quick("from_uplink", in)[inAt-20:])
		if want := restored(sent, echoed); got != want {
			t.Fatalf("the echo of %#x is restored to %#x, not %#x; last was %#x", echoed, got, want, last)
		}
	}
}

// restored is what the echo of a TSval must become, by all that was ever sent.
func restored(sent []uint32, echoed uint32) uint32 {
	last, ticks := sent[len(sent)-1], map[uint32]uint32{}
	for _, s := range sent {
		ticks[s>>3%16] = s
	}
	value := ticks[echoed>>3%16]
	if value>>3 != echoed>>3 { // another tick took its place
		value = echoed | 7
	}
	if int32(value-last) > 0 {
		return last
	}
	return value
}

// quick runs a program without looking at verdicts. Checksums don't matter to it.
func (r *rig) quick(program string, frame []byte) []byte {
	r.t.Helper()
	options := &ebpf.RunOptions{Data: toUs(frame), DataOut: make([]byte, len(frame)+256)}
	if _, err := r.program(program).Run(options); err != nil {
		r.t.Fatal(err)
	}
	return options.DataOut
}

// TestCookiesAreCounted follows what a session report takes a session for. A SYN that the workload does not
// answer with another changes nothing.
func TestCookiesAreCounted(t *testing.T) {
	r := newRig(t)
	with, without := newHandshake(4, "native", aligned), newHandshake(4, "native", noTimestamps)
	counts := func(when string, want bool) {
		t.Helper()
		rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.NewSessions)
		if err != nil || len(rows) != 1 {
			t.Fatalf("%d sessions (%v)", len(rows), err)
		}
		for _, row := range rows {
			if got := session.CarriesCookie(row); got != want {
				t.Errorf("%s it carries a cookie: %t, want %t", when, got, want)
			}
		}
	}
	r.check("SYN", with.in(pkt.SYN, 1, 0, 0))
	counts("after the SYN", true)
	r.check("SYN/ACK", without.out(pkt.SYN|pkt.ACK, 0, 0, 0))
	counts("after a SYN/ACK without timestamps", false)
	r.check("SYN again", with.in(pkt.SYN, 1, 0, 0))
	r.check("challenge", without.out(pkt.ACK, 0, 0, 0))
	counts("after a SYN that was not taken", false)
	r.check("SYN/ACK with", with.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), 1))
	counts("after one with timestamps", true)
}
