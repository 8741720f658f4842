package overlay

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/pkt"
)

// SYN-ACKs with a server's spoofed address and numbers at random: none is learnt.
func TestForgedAnswersAreNotLearnt(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		const isn = 1000
		r.send(r.sent(pkt.SYN, isn, 0, pkt.Payload(nil)), "send_mux")
		v := pkt.VXLAN{VNI: testVNI, SourcePort: 50000, Outer: pkt.IP{
			Source: netip.MustParseAddr(r.tunnel), Destination: netip.MustParseAddr(r.host), TTL: 64,
		}}
		frame := v.Frame(r.answer(pkt.SYN|pkt.ACK, 5000, 0, pkt.Payload(nil)))
		tcp, rng := r.l4(frame), rand.New(rand.NewPCG(3, 3))
		for n := range *forgeries / len(families()) {
			ack := rng.Uint32()
			if n%2 == 0 { // near the right one
				ack = isn + uint32(rng.IntN(1<<16))
			}
			if ack == isn+1 {
				continue
			}
			binary.BigEndian.PutUint32(frame[tcp+4:], rng.Uint32())
			binary.BigEndian.PutUint32(frame[tcp+8:], ack)
			if got, err := r.objects.FromUnderlay.Run(&ebpf.RunOptions{Data: frame}); err != nil || got != drop {
				t.Fatalf("forged SYN-ACK of %d: action %d, %v", ack, got, err)
			}
		}
		if f := r.flow(); f.State != FlowHalfOpen || f.Host.IsValid() {
			t.Errorf("learnt %+v", f)
		}
		verdicts, err := r.Verdicts()
		r.must(err)
		if verdicts["drop_not_acked"].Packets == 0 {
			t.Errorf("none counted: %v", verdicts)
		}
	})
}

// change rewrites the rows of flows.
func (r clientRig) change(how func(*overlayBypassFlow)) {
	r.t.Helper()
	rows, err := abi.ReadTable[overlayBypassFlowKey, overlayBypassFlow](r.objects.BypassFlows)
	r.must(err)
	for key, row := range rows {
		how(&row)
		r.must(r.objects.BypassFlows.Put(key, row))
	}
}

// A host that does not answer for a while is taken for lost: the muxes know another.
func TestAHostThatDoesNotAnswerIsLost(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		r.learn()
		r.send(r.sent(pkt.ACK, 1001, 5001), "send_direct")
		r.change(func(row *overlayBypassFlow) {
			if row.Waiting == 0 {
				t.Error("no answer is waited for")
			}
		})
		r.arrive(r.answer(pkt.ACK, 5001, 1021), r.tunnel, "deliver_client", forward)
		r.change(func(row *overlayBypassFlow) {
			if row.Waiting != 0 {
				t.Error("an answer is waited for that has come")
			}
		})
		r.send(r.sent(pkt.ACK, 1021, 5021, pkt.Payload(nil)), "send_direct") // wants no answer
		r.send(r.sent(pkt.ACK, 1021, 5021), "send_direct")
		r.change(func(row *overlayBypassFlow) { row.Waiting -= uint32(overlayBypassTimeoutBYPASS_VAIN_TICKS) + 2 })
		v, _ := r.send(r.sent(pkt.ACK, 1021, 5021), "send_mux")
		if f := r.flow(); f.State != FlowLost || f.ClientNext != 1041 || f.ServerNext != 5021 || v.Reserved[3] != pkt.Route {
			t.Errorf("flow %+v", f)
		}
		r.arrive(r.answer(pkt.ACK, 5021, 1041), r.other, "deliver_client", forward)
		v, _ = r.send(r.sent(pkt.ACK, 1041, 5021), "send_direct")
		if v.Outer.Destination.String() != r.other {
			t.Errorf("goes to %s", v.Outer.Destination)
		}
		traffic, err := r.ClientTraffic(1)
		r.must(err)
		if traffic.Lost != 1 || traffic.Relearnt != 1 || traffic.Learnt != 1 {
			t.Errorf("traffic %+v", traffic)
		}
	})
}

// A port has so many flows; connections beyond stay with the muxes, and come back by servers' hosts.
func TestFlowsOfAPortAreBounded(t *testing.T) {
	r := newClientRig(t, families()["v4 over v4"])
	from := func(port uint16) func(*pkt.Packet) { return func(p *pkt.Packet) { p.SourcePort = port } }
	for n := range uint16(20) {
		r.send(r.sent(pkt.SYN, 1000, 0, from(n)), "send_mux")
	}
	if n, err := r.SweepFlows(0); err != nil || n != 10 {
		t.Errorf("%d flows, %v", n, err)
	}
	r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, 1001, func(p *pkt.Packet) { p.DestinationPort = 19 }), r.tunnel, "deliver_client", forward)
	r.send(r.sent(pkt.ACK, 1001, 5001, from(19)), "send_mux")
	// Those that are over make room.
	for n := range uint16(5) {
		r.arrive(r.answer(pkt.RST|pkt.ACK, 0, 1001, func(p *pkt.Packet) { p.DestinationPort = n }), r.tunnel, "deliver_client", forward)
	}
	all, err := r.Flows()
	r.must(err)
	now, rest := all[0].Seen, uint32(ResetQuarantine/Tick)
	for _, step := range []struct {
		at   uint32
		left int
	}{{now, 10}, {now + rest + 100, 5}} {
		if n, err := r.SweepFlows(step.at); err != nil || n != step.left {
			t.Errorf("%d flows, not %d, %v", n, step.left, err)
		}
	}
	for n := range uint16(20) {
		r.send(r.sent(pkt.SYN, 1000, 0, from(100+n)), "send_mux")
	}
	if n, err := r.SweepFlows(now); err != nil || n != 10 {
		t.Errorf("%d flows, %v", n, err)
	}
}

// Connections that say nothing, or never began, give their places of a port back.
func TestSilentFlowsAreForgotten(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		left := func(after time.Duration, want int) {
			t.Helper()
			all, err := r.Flows()
			r.must(err)
			now := uint32(0)
			for _, f := range all {
				now = max(now, f.Seen)
			}
			if n, err := r.SweepFlows(now + uint32(after/Tick)); err != nil || n != want {
				t.Errorf("%d flows after %v, not %d, %v", n, after, want, err)
			}
		}
		r.learn()
		r.send(r.sent(pkt.SYN, 1000, 0, func(p *pkt.Packet) { p.SourcePort++ }), "send_mux")
		left(beginningTime-time.Minute, 2)
		left(beginningTime+time.Minute, 1)
		left(silenceTime-time.Minute, 1)
		left(silenceTime+time.Minute, 0)
	})
}

// Flows go with their port; a port that stays keeps them. Two ports can't have one address.
func TestPortsAreSetExactly(t *testing.T) {
	r := newClientRig(t, families()["v4 over v4"])
	r.learn()
	own := []netip.Addr{netip.MustParseAddrPort(r.client).Addr()}
	port := Port{Ifindex: 1, VNI: testVNI, MAC: clientMAC, Flows: 10, Addresses: own}
	r.must(r.SetPorts([]Port{port}))
	if r.flow().State != FlowDirect {
		t.Error("a port that stays has lost its flow")
	}
	for name, other := range map[string]Port{
		"interface": {Ifindex: 1, VNI: 7}, "address": {Ifindex: 2, VNI: testVNI, Addresses: own},
	} {
		if err := r.SetPorts([]Port{port, other}); err == nil {
			t.Errorf("two ports with one %s were set", name)
		}
	}
	r.must(r.SetPorts(nil))
	if all, err := r.Flows(); err != nil || len(all) != 0 {
		t.Errorf("flows without a port: %+v, %v", all, err)
	}
	r.run(r.objects.FromClient, r.sent(pkt.SYN, 1000, 0).Frame(), "pass_other", next)
}

// Flows are read while others evict them: the table is of those that were used last.
func TestFlowsAreReadWhileTheyAreEvicted(t *testing.T) {
	config := testConfig
	config.Flows = 1024
	r := newRigWith(t, families()["v4 over v4"], config)
	put := func(i uint32) error {
		return r.objects.BypassFlows.Put(overlayBypassFlowKey{ClientPort: uint16(i), Attachment: 1 + i>>16}, overlayBypassFlow{})
	}
	ctx, stop := context.WithCancel(t.Context())
	evicts := make(chan error)
	go func() {
		var err error
		for i := uint32(0); ctx.Err() == nil && err == nil; i++ {
			err = put(i)
		}
		evicts <- err
	}()
	for range 300 {
		if left, err := r.sweepFlows(func(Flow) bool { return false }); err != nil || left > 2*1024 {
			t.Fatalf("%d flows, %v", left, err)
		}
	}
	stop()
	r.must(<-evicts)
}
