package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
	"github.com/weirlb/weir/internal/testkit/oracle"
)

// verify looks at what each class's packet becomes before anything is timed: of the mux, every byte.
func (w *world) verify(of family) error {
	h, err := w.load(of, 1, true)
	if err != nil {
		return err
	}
	defer h.Close()
	m := w.oracle()
	for _, k := range classes(of) {
		if err := h.prepare(&k, w.datapath); err != nil {
			return err
		}
		m.GUE, m.SNAT = k.gue, nil
		if k.snat {
			m.SNAT = workloads()
		}
		if err := k.verify(of, m); err != nil {
			return fmt.Errorf("verify %s: %w", k.name, err)
		}
	}
	return nil
}

func (w *world) oracle() *oracle.Mux {
	pool := poolOf()
	m := &oracle.Mux{
		HashKey: pool.HashKey, Source4: pool.Source4, Source6: pool.Source6, MTU: pool.MTU, MAC: pool.MAC,
		Hops: map[netip.Addr]model.NextHop{}, Network: oracleNetwork(w.datapath),
	}
	for _, e := range tables(w.listed) {
		m.Set(e)
		for _, b := range e.Backends {
			m.Hops[b.Tunnel] = testHop
		}
	}
	for _, b := range fullNATSlots() {
		m.Hops[b.Address.Addr()] = testHop
	}
	return m
}

func (k *class) verify(of family, m *oracle.Mux) error {
	if err := k.set(true); err != nil {
		return err
	}
	defer func() { _ = k.set(false) }()
	if k.opens != nil {
		if err := k.openFirst(m); err != nil {
			return err
		}
	}
	if err := k.restore(); err != nil {
		return err
	}
	frame := k.frame()
	if !k.writes() {
		frame = k.restored(of)
	}
	options := &ebpf.RunOptions{Data: bytes.Clone(frame), DataOut: make([]byte, len(frame)+256)}
	action, err := k.run.Run(options)
	if err != nil || action != k.action {
		return fmt.Errorf("action %d, want %d: %w", action, k.action, err)
	}
	if k.program == benchProgBenchFloor || k.program == benchProgBenchSynFloor {
		growth := map[family]int{v4: 20, v6: 40}[of]
		if out := options.DataOut; len(out) != len(frame)+growth || !bytes.Equal(out[14+growth:], frame[14:]) {
			return fmt.Errorf("got %x of %x", out, frame)
		}
	}
	if k.program == benchProgBenchSyn {
		return k.verifyAnswer(options.DataOut)
	}
	if k.program != "" && k.program != benchProgBenchVxlan && k.program != benchProgBenchTagged {
		return nil
	}
	want := m.Handle(frame)
	if want.Frame == nil {
		want.Frame = frame
	}
	if !bytes.Equal(want.Frame, options.DataOut) {
		return fmt.Errorf("%s: got %x, want %x", want.Verdict, options.DataOut, want.Frame)
	}
	return nil
}

// restored is the class's packet as the harness hands it to the program: of flow 0.
func (k *class) restored(of family) []byte {
	frame := k.packet.Frame()
	copy(frame[6:], []byte{2, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a})
	source := frame[k.packet.L3()+12:][:4]
	if of == v6 {
		source = frame[k.packet.L3()+20:][:4]
	}
	binary.BigEndian.PutUint32(source, binary.BigEndian.Uint32(source)&0xff000000)
	frame[cmp.Or(k.cookieAt, bodyAt)] = 1
	return frame
}

// verifyAnswer wants the SYN-ACK with the cookie, as the twin in Go makes it.
func (k *class) verifyAnswer(out []byte) error {
	got, err := pkt.Decode(out)
	if err != nil {
		return err
	}
	syn := k.packet
	flow := syncookie.Flow{
		Client: netip.AddrPortFrom(syn.IP.Source, syn.SourcePort), VIP: netip.AddrPortFrom(syn.IP.Destination, syn.DestinationPort), ISN: syn.Seq,
	}
	offer := syncookie.Offer{MSS: 1460, Timestamps: true, Scale: 7, SACK: true}
	mss, err := syncookie.Check(synSecrets(), flow, got.Seq, offer, time.Now())
	if err != nil || mss != offer.MSS {
		return fmt.Errorf("cookie %#x: MSS %d: %w", got.Seq, mss, err)
	}
	if got.Flags != pkt.SYN|pkt.ACK || got.Ack != syn.Seq+1 || got.IP.Destination != syn.IP.Source || got.DestinationPort != syn.SourcePort {
		return fmt.Errorf("no answer: %+v", got)
	}
	return nil
}
