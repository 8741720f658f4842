package mux

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/limit"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// never is a limit whose tokens come back after hours.
const never = 1 << 62

// limitWorld gives the world's VIPs all limits, of which one has so much and no more.
func limitWorld(t *testing.T, d *Datapath, limit, amount int) {
	t.Helper()
	for _, e := range world() {
		e.Limits = &model.Limits{Packets: model.MaxLimit, Bytes: model.MaxLimit, Connections: model.MaxLimit}
		e.Hardware = true
		apply(t, d, e)
	}
	for _, live := range d.endpoints.Rows.Live {
		row := &d.endpoints.Policers.Rows[live.Row.Vip]
		row.EmissionInterval[limit] = never / uint64(amount)
		row.BurstTolerance[limit] = row.EmissionInterval[limit] * uint64(amount) >> 16
	}
}

const (
	limitPackets = iota
	limitBytes
	limitConnections
)

// spent has all of a limit taken already, by the frame.
func spent(limit int, frame []byte) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		amount := 1
		if limit == limitBytes {
			amount = len(frame)
		}
		limitWorld(t, d, limit, amount)
		if action, _ := run(t, d, frame); action != xdpTX {
			t.Fatalf("action %d for the first packet: there is a token", action)
		}
	}
}

func limitCases() []packetCase {
	syn4, syn6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(client6, vip6, pkt.SYN)
	ack4 := pkt.TCP(client4, vip4, pkt.ACK)
	first, last := pkt.UDP(client4, vip4, pkt.Fragment(0, true)), pkt.UDP(client4, vip4, pkt.Fragment(9, false))
	another := pkt.TCP(client4, "203.0.113.10:80", pkt.SYN).Frame()
	return []packetCase{
		{name: "a packet too many", packet: ack4, change: spent(limitPackets, another), verdict: "drop_limit_packets"},
		{name: "a packet too many, v6", packet: syn6, change: spent(limitPackets, syn6.Frame()), verdict: "drop_limit_packets"},
		{name: "of another endpoint of the VIP", packet: pkt.UDP(client4, vip4), change: spent(limitPackets, another), verdict: "drop_limit_packets"},
		{name: "a first fragment too many", packet: first, change: spent(limitPackets, another), verdict: "drop_limit_packets"},
		{name: "a last fragment too many", packet: last, change: spent(limitPackets, first.Frame()), verdict: "drop_limit_packets"},
		{name: "a byte too many", packet: ack4, change: spent(limitBytes, another), verdict: "drop_limit_bytes"},
		{name: "a connection too many", packet: syn4, change: spent(limitConnections, another), verdict: "drop_limit_connections"},
		{name: "no new connection", packet: ack4, change: spent(limitConnections, another), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "an answer to a SYN is no new connection", packet: pkt.TCP(client4, vip4, pkt.SYN|pkt.ACK), change: spent(limitConnections, another), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "another VIP", packet: syn6, change: spent(limitPackets, another), verdict: "forward_syn", tunnel: tunnel6},
		{name: "no limit any more", packet: syn4, change: func(t *testing.T, d *Datapath) {
			spent(limitPackets, another)(t, d)
			for _, e := range world() {
				apply(t, d, e)
			}
		}, verdict: "forward_syn", tunnel: tunnel4},
	}
}

// TestRefusedIsCounted sums up what limits keep out of a VIP, and begins at zero for another VIP.
func TestRefusedIsCounted(t *testing.T) {
	d := newFilled(t, world()...)
	frame := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	spent(limitPackets, frame)(t, d)
	for range 3 {
		run(t, d, frame)
	}
	refused, err := d.RefusedCounters()
	if err != nil {
		t.Fatal(err)
	}
	vip := newEndpoint(vip4, model.TCP).Key.VIP
	if got, want := refused[vip], (model.Counter{Packets: 3, Bytes: 3 * uint64(len(frame))}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	index := d.endpoints.Rows.Live[vip].Row.Vip
	if err := d.endpoints.Policers.Clear(index); err != nil {
		t.Fatal(err)
	}
	if refused, _ = d.RefusedCounters(); refused[vip] != (model.Counter{}) || d.endpoints.Policers.Rows[index] != (bpf.MuxVipPolicer{}) {
		t.Errorf("another VIP would begin with %+v and %+v", refused[vip], d.endpoints.Policers.Rows[index])
	}
}

// TestLimitsAreNotUsedUpByLooking has a VIP with one token left, which explaining does not take.
func TestLimitsAreNotUsedUpByLooking(t *testing.T) {
	d := newFilled(t, world()...)
	limitWorld(t, d, limitPackets, 1)
	frame := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	explained := func(want string) {
		t.Helper()
		if e, err := d.Explain(frame); err != nil || e.Verdict != want {
			t.Errorf("explained as %s, %v, want %s", e.Verdict, err, want)
		}
	}
	explained("forward_syn")
	explained("forward_syn")
	if action, _ := run(t, d, frame); action != xdpTX {
		t.Errorf("action %d: the token is gone", action)
	}
	explained("drop_limit_packets")
}

// TestLimitHolds offers more than a limit, and holds that no more gets through than it says: what comes while
// the packets are offered, and one bucket.
func TestLimitHolds(t *testing.T) {
	const rate, jiffy = 1000, 10 * time.Millisecond
	d := newFilled(t)
	limited := newEndpoint(vip4, model.TCP, tunnel4)
	limited.Limits = &model.Limits{Packets: 2 * rate}
	apply(t, d, limited)
	resolve(t, d)
	if err := d.SetMuxes(2); err != nil {
		t.Fatal(err)
	}
	frame := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	began := time.Now()
	for range 5000 {
		run(t, d, frame)
	}
	took := time.Since(began) + jiffy
	got := verdicts(t, d)
	most := uint64((took+limit.Burst).Seconds()*rate) + 1
	if got["forward_syn"] > most || got["forward_syn"] < rate*uint64(limit.Burst)/uint64(time.Second) {
		t.Errorf("%d packets got through in %s, want a bucket of them and at most %d", got["forward_syn"], took, most)
	}
	if got["forward_syn"]+got["drop_limit_packets"] != 5000 {
		t.Errorf("verdicts are %v", got)
	}
}
