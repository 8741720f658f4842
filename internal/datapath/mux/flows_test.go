package mux

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// accounts counts the cells that are owned, by VIP: what vip_usage must say.
func accounts(t testing.TB, d *Datapath) (counted, told map[uint32]flow.Usage) {
	t.Helper()
	m, err := flow.Map(&d.tables)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	counted, told = map[uint32]flow.Usage{}, map[uint32]flow.Usage{}
	for _, set := range m.Sets {
		for _, cell := range set.Cells {
			if cell.Owner == 0 {
				continue
			}
			usage := counted[cell.Owner>>1]
			if cell.Owner&1 == 1 {
				usage.Trusted++
			} else {
				usage.Untrusted++
			}
			counted[cell.Owner>>1] = usage
		}
	}
	for vip, usage := range m.Usage {
		if usage.Cells != [2]uint64{} {
			told[uint32(vip)] = flow.Usage{Untrusted: usage.Cells[0], Trusted: usage.Cells[1]}
		}
	}
	return counted, told
}

func wantExact(t testing.TB, d *Datapath) {
	t.Helper()
	counted, told := accounts(t, d)
	if diff := cmp.Diff(counted, told); diff != "" {
		t.Fatalf("usage of VIPs (-cells that they own +what is told):\n%s", diff)
	}
}

// Several threads send, user space sweeps, and the table is far too small: every kind of exchange
// of a cell happens, and none is lost.
func TestUsageIsExact(t *testing.T) {
	vips := []string{vip4, "203.0.113.20:80", vip6}
	var endpoints []model.MuxEndpoint
	for _, vip := range vips {
		e := newEndpoint(vip, model.TCP, first)
		e.IdleTimeout = time.Millisecond
		e.FlowLimit = 300
		e.Tenant = map[bool]string{true: "one", false: "many"}[vip == vip6]
		endpoints = append(endpoints, e)
	}
	d := newFilled(t, endpoints...)
	var done atomic.Bool
	var sweeper, senders errgroup.Group
	sweeper.Go(func() error {
		for !done.Load() {
			if _, err := d.SweepFlows(); err != nil {
				return err
			}
		}
		return nil
	})
	for seed := range uint32(4) {
		senders.Go(func() error {
			for i := range 4000 {
				from := randomTuple(0x0b000000+seed%2, i/2%1500)
				vip := vips[i%2]
				if i%7 == 0 {
					vip, from = vip6, netip.AddrPortFrom(netip.AddrFrom16(from.Addr().As16()).Unmap(), from.Port())
					from = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::7"), from.Port())
				}
				flags := pkt.ACK
				if i%50 == 0 {
					flags = pkt.SYN
				}
				run(t, d, pkt.TCP(from.String(), vip, flags).Frame())
			}
			return nil
		})
	}
	_ = senders.Wait()
	done.Store(true)
	if err := sweeper.Wait(); err != nil {
		t.Fatal(err)
	}
	wantExact(t, d)
	sweepFlows(t, d) // which corrects what one counted amid packets
	tenantsHave(t, d)
	until(t, "all flows expire", func() bool {
		if _, err := d.SweepFlows(); err != nil {
			t.Fatal(err)
		}
		_, told := accounts(t, d)
		return len(told) == 0
	})
	wantExact(t, d)
}

// Cells of a VIP that is gone count for none that comes after it: its index is given out again only once
// it owns none.
func TestIndexOfGoneVIPOwnsNothing(t *testing.T) {
	gone := newEndpoint(vip4, model.UDP, first)
	d := newFilled(t, gone)
	for i := range 100 {
		run(t, d, pkt.UDP(randomTuple(0x0b000000, i).String(), vip4).Frame())
	}
	owner := d.endpoints.Rows.Live[gone.Key.VIP].Row.Vip
	if _, told := accounts(t, d); told[owner] == (flow.Usage{}) {
		t.Fatal("the flows were not remembered")
	}
	if err := d.Apply(nil, []model.EndpointKey{gone.Key}); err != nil {
		t.Fatal(err)
	}
	// More VIPs than there are indexes, one after the other: each index is given out again.
	for i := range testSizes.Endpoints + 2 {
		next := newEndpoint(fmt.Sprintf("203.0.%d.%d:80", 114+i/200, 1+i%200), model.UDP, first)
		apply(t, d, next)
		id := d.endpoints.Rows.Live[next.Key.VIP].Row.Vip
		if _, told := accounts(t, d); told[id] != (flow.Usage{}) {
			t.Fatalf("the VIP with index %d begins with %+v", id, told[id])
		}
		run(t, d, pkt.UDP(client4, next.Key.VIP.String()+":80").Frame())
		if err := d.Apply(nil, []model.EndpointKey{next.Key}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.SweepFlows(); err != nil {
		t.Fatal(err)
	}
	if _, told := accounts(t, d); len(told) > 0 || d.endpoints.Flows.Retired() > 0 {
		t.Errorf("VIPs that are gone own %v, retired are %v", told, d.endpoints.Flows.Retired())
	}
	wantExact(t, d)
}

// until polls for a condition.
func until(t testing.TB, what string, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !met() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// A flow that stays silent for its endpoint's time is forgotten: it goes by its bucket again.
func TestIdleFlowIsForgotten(t *testing.T) {
	short := newEndpoint(vip4, model.UDP, first, second)
	allTo(&short, 1)
	short.IdleTimeout = 100 * time.Millisecond
	d := newFilled(t, short)
	p := pkt.UDP(client4, vip4)
	wantChosen(t, d, p, first)
	sent := time.Now()
	wantChosen(t, d, p, first)
	allTo(&short, 2)
	apply(t, d, short)
	if to := chosen(t, d, p); to != netip.MustParseAddr(first) && time.Since(sent) < short.IdleTimeout {
		t.Errorf("while it is remembered it was sent to %s", to)
	}
	until(t, "the flow is freed", func() bool {
		freed, err := d.SweepFlows()
		if err != nil {
			t.Fatal(err)
		}
		return freed == 1
	})
	wantChosen(t, d, p, second)
}

// A flood of flows that are seen once, on one VIP, takes neither another VIP's flows, trusted or
// not, nor its own VIP's trusted ones.
func TestFloodStaysWithinItsShare(t *testing.T) {
	const other, kept = "203.0.113.20:80", 300
	d := newFilled(t, only(1), newEndpoint(other, model.TCP, tunnel4))
	flow := func(vip string, i int) pkt.Packet {
		return pkt.TCP(randomTuple(0x0b000000, i).String(), vip, pkt.ACK)
	}
	for i := range kept {
		run(t, d, flow(vip4, i).Frame())
		run(t, d, flow(vip4, i).Frame())
		run(t, d, flow(other, i).Frame()) // seen once
	}
	for i := range 30_000 {
		run(t, d, pkt.TCP(randomTuple(0x4d000000, i).String(), vip4, pkt.ACK).Frame())
	}
	wantExact(t, d)
	before := verdicts(t, d)
	for i := range kept {
		run(t, d, flow(vip4, i).Frame())
		run(t, d, flow(other, i).Frame())
	}
	if diff := cmp.Diff(map[string]uint64{"forward_flow": 2 * kept}, looked(difference(before, verdicts(t, d)))); diff != "" {
		t.Errorf("flows from before the flood (-want +got):\n%s", diff)
	}
	_, told := accounts(t, d)
	limit := uint64(testSizes.FlowLimit)
	for vip, usage := range told {
		if usage.Untrusted > limit/2 || usage.Trusted > limit {
			t.Errorf("VIP %d has %+v, limit %d", vip, usage, limit)
		}
	}
}

// With affinity all connections of a client have one backend, whatever their ports, and with all
// ports too.
func TestAffinity(t *testing.T) {
	e := newEndpoint("203.0.113.10:0", model.TCP, first, second, "10.0.0.3", "10.0.0.4")
	e.Affinity = true
	d := newFilled(t, e)
	used := map[netip.Addr]bool{}
	for client := range 40 {
		from := netip.AddrFrom4([4]byte{198, 51, 100, byte(client)})
		var backend netip.Addr
		for port := range uint16(20) {
			vip := netip.AddrPortFrom(e.Key.VIP, 100+port)
			got := chosen(t, d, pkt.TCP(netip.AddrPortFrom(from, 1000+port).String(), vip.String(), pkt.SYN))
			if backend.IsValid() && got != backend {
				t.Fatalf("client %s got %s and %s", from, backend, got)
			}
			backend = got
		}
		used[backend] = true
	}
	if len(used) < 3 {
		t.Errorf("40 clients use %d of 4 backends", len(used))
	}
}

// An endpoint on all ports takes what no other does, and only of its VIP and protocol.
func TestAllPorts(t *testing.T) {
	d := newFilled(t, newEndpoint("203.0.113.10:0", model.TCP, first), newEndpoint(vip4, model.TCP, second))
	wantChosen(t, d, pkt.TCP(client4, vip4, pkt.SYN), second)
	wantChosen(t, d, pkt.TCP(client4, "203.0.113.10:22", pkt.SYN), first)
	for _, p := range []pkt.Packet{
		pkt.UDP(client4, "203.0.113.10:22"), pkt.TCP(client4, "203.0.113.11:22", pkt.SYN),
	} {
		frame := p.Frame()
		if action, out := run(t, d, bytes.Clone(frame)); action != xdpPass || !bytes.Equal(frame, out) {
			t.Errorf("action %d for %s, want it passed", action, p.IP.Destination)
		}
	}
	if err := d.Apply(nil, []model.EndpointKey{{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP}}); err != nil {
		t.Fatal(err)
	}
	if action, _ := run(t, d, pkt.TCP(client4, "203.0.113.10:22", pkt.SYN).Frame()); action != xdpPass {
		t.Errorf("action %d once the endpoint is gone", action)
	}
}

// The outer source comes from the whole prefix, and the same one for a flow every time.
func TestSourcePrefix(t *testing.T) {
	for _, vip := range []string{vip4, vip6} {
		d := newFilled(t, newEndpoint(vip4, model.TCP, first), newEndpoint(vip6, model.TCP, tunnel6))
		p := testSettings()
		p.Source4, p.Source6 = netip.Addr{}, netip.Addr{}
		p.Prefix4, p.Prefix6 = netip.MustParsePrefix("10.255.1.0/28"), netip.MustParsePrefix("fd00:ff:1::/64")
		if err := d.SetSettings(p); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Settings(); err != nil || got != p {
			t.Errorf("pool is %+v, %v, want %+v", got, err, p)
		}
		seen := map[netip.Addr]bool{}
		for i := range 200 {
			from := netip.MustParseAddrPort(client4)
			if vip == vip6 {
				from = netip.MustParseAddrPort(client6)
			}
			frame := pkt.TCP(netip.AddrPortFrom(from.Addr(), uint16(1024+i)).String(), vip, pkt.ACK).Frame()
			var source netip.Addr
			for range 2 {
				_, out := run(t, d, bytes.Clone(frame))
				got, err := pkt.Decode(out)
				if err != nil {
					t.Fatal(err)
				}
				if source.IsValid() && got.Outer.Source != source {
					t.Fatalf("a flow comes from %s and %s", source, got.Outer.Source)
				}
				source = got.Outer.Source
			}
			if !p.Prefix4.Contains(source) && !p.Prefix6.Contains(source) {
				t.Fatalf("source %s is of no prefix", source)
			}
			seen[source] = true
		}
		if len(seen) < 15 {
			t.Errorf("%d sources for 200 flows", len(seen))
		}
	}
}
