package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// TestBlocksAreTranslated in every place and number, with timestamps before and behind them.
func TestBlocksAreTranslated(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	for name, place := range timestampPlaces() {
		r.forget()
		b := beginNow(newHandshake(4, "interface", aligned), everything)
		for i, s := range b.opened() {
			r.check(fmt.Sprintf("%s: step %d", name, i), s)
		}
		shape := b.ack(func(p *pkt.Packet) { p.Options = nil }).With(place(pkt.Timestamps(clientTSval, b.tsval))...)
		in, out := translated(shape, b.cookie), translated(shape, workloadISN)
		_, _, dip := b.ends()
		want := delivered(out, dip, func(p *pkt.Packet) {
			for i := range p.Options {
				if o := &p.Options[i]; o.OptionType == layers.TCPOptionKindTimestamps {
					o.OptionData = binary.BigEndian.AppendUint32(slices.Clone(o.OptionData[:4]), tsval0)
				}
			}
		}).With(noNOP)
		r.check(name, inbound(in, "deliver_interface", &want))
	}
}

// translated fills a segment's acknowledgement and blocks with numbers after a first one.
func translated(p pkt.Packet, first uint32) pkt.Packet {
	return p.With(func(p *pkt.Packet) {
		p.Ack = first + 1
		for i := range p.Options {
			if p.Options[i].OptionType != layers.TCPOptionKindSACK {
				continue
			}
			var data []byte
			for at := uint32(0); int(at) < len(p.Options[i].OptionData); at += 4 {
				data = binary.BigEndian.AppendUint32(data, first+0x7fffff00+at)
			}
			p.Options[i].OptionData = data
		}
	})
}

// TestWindowsAreTranslated scales the workload's windows as the mux has announced them.
func TestWindowsAreTranslated(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	for _, c := range []struct {
		scale        byte // of the workload
		window, want uint16
	}{{7, 65535, 65535 >> 2}, {7, 3, 0}, {9, 12345, 12345}, {14, 10, 10 << 5}, {14, 65535, 65535}, {15, 10, 10 << 5}} {
		r.forget()
		b := beginNow(newHandshake(4, "interface", aligned), everything)
		steps := b.opened()
		r.check("cookie", steps[0])
		answer := b.answer(pkt.SYN|pkt.ACK, workloadISN, clientISN+1, pkt.Timestamps(tsval0, clientTSval), pkt.TCPOptions(layers.TCPOption{
			OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{c.scale},
		}))
		for range 2 { // the second on another CPU, that has not seen what the first one learnt
			if got := r.run("from_workload", answer.Frame(), nil); got.verdict != "syncookie_answer" {
				t.Fatalf("SYN/ACK: %s", got.verdict)
			}
			r.setEvents(func(e bpf.AgentSessionEvent) bpf.AgentSessionEvent { return e &^ bpf.AgentSessionEventSESSION_REPLAYED })
		}
		r.setEvents(func(e bpf.AgentSessionEvent) bpf.AgentSessionEvent { return e | bpf.AgentSessionEventSESSION_REPLAYED })
		data := b.answer(pkt.ACK, workloadISN+1, clientISN+1)
		const window = 14
		frame := data.Frame()
		at := data.L4() + window
		setWindow(frame, at, c.window)
		got := binary.BigEndian.Uint16(r.run("from_workload", frame, nil).frame[at:])
		if got != c.want {
			t.Errorf("a window of %d, scaled by %d, becomes %d, not %d", c.window, c.scale, got, c.want)
		}
	}
}

// setEvents changes what has been seen of the new sessions.
func (r *rig) setEvents(change func(bpf.AgentSessionEvent) bpf.AgentSessionEvent) {
	r.t.Helper()
	rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.NewSessions)
	for key, row := range rows {
		row.Events = change(row.Events)
		err = errors.Join(err, r.objects.NewSessions.Put(key, row))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// setWindow changes a segment's window, and its checksum behind that.
func setWindow(frame []byte, at int, window uint16) {
	sum := uint32(^binary.BigEndian.Uint16(frame[at+2:])) + uint32(^binary.BigEndian.Uint16(frame[at:])) + uint32(window)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[at:], window)
	binary.BigEndian.PutUint16(frame[at+2:], ^uint16(sum))
}

// TestErrorsQuoteTheWorkloadsNumbers brings errors of the network about what the client was sent: in them
// the workload finds what it sent itself.
func TestErrorsQuoteTheWorkloadsNumbers(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	for _, family := range []int{4, 6} {
		b := beginNow(newHandshake(family, "interface", aligned), everything)
		for i, s := range b.opened() {
			r.check(fmt.Sprintf("step %d", i), s)
		}
		_, vip, dip := b.ends()
		router, kind, least := "192.0.2.1", uint8(unreachable4), 28
		if family == 6 {
			router, kind, least = "2001:db8:9::1", tooBig6, 48
		}
		sent := b.answer(pkt.ACK, workloadISN+101, clientISN+1)
		told := sent.With(from(vip), numbers(b.cookie+101, clientISN+1))
		for _, bytes := range []int{least, 1000} {
			quoted := quote(told, bytes)
			want := quotes(quoted, true, netip.AddrPortFrom(netip.MustParseAddr(dip), backendPort).String())
			binary.BigEndian.PutUint32(want[least-4:], workloadISN+101)
			address := netip.MustParseAddrPort(vip).Addr().String()
			r.check(fmt.Sprintf("%d bytes, v%d", bytes, family), carriedRaw(message(router, address, kind, quoted), outer(dipOf("interface", 4)),
				"deliver_interface", decodedFrame(message(router, dip, kind, want))))
		}
	}
}

// TestClocksWithoutCookies translates the clocks of endpoints whose timestamps carry no slot: TSval must
// go on from that of the mux. Muxes do not go by what stands below it, so a session report does not either.
func TestClocksWithoutCookies(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	var all []model.HostBackend
	for _, rule := range r.All() {
		rule.Cookies = false
		all = append(all, rule)
	}
	if err := r.Apply(all, nil); err != nil {
		t.Fatal(err)
	}
	b := beginNow(newHandshake(4, "interface", aligned), everything)
	r.goThrough("a slot", b)
	r.forget()
	b.tsval &^= 1<<13 - 1
	later := tsval0 + uint32(16)
	told := (b.tsval>>13+(later-tsval0)>>3)<<13 | 1
	steps := append(b.opened(),
		b.fromClient(clientISN+1, 1, clientTSval+1, b.tsval, 0), // means none
		b.fromWorkload(pkt.ACK|pkt.PSH, 1, clientISN+1, later, told),
		b.fromClient(clientISN+1, 101, clientTSval+2, told, later))
	for i, s := range steps {
		r.check(fmt.Sprintf("no slot: step %d", i), s)
	}
	rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.Sessions)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d sessions (%v)", len(rows), err)
	}
	for _, row := range rows {
		if session.CarriesCookie(row) {
			t.Errorf("muxes are said to find a session by its timestamps: %+v", row)
		}
	}
}
