package agent

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/steer"
)

// tunnelOfSlot is where the backends of TestSteeringDecidesAsTheModel are.
func tunnelOfSlot(slot model.Slot) string {
	return netip.AddrFrom4([4]byte{10, 7, 0, byte(slot)}).String()
}

var drawSlot = rapid.SampledFrom([]model.Slot{0, 1, 2, 3, backendSlot})

// drawSteered is an endpoint in any state.
func drawSteered(draw *rapid.T, protocol model.Protocol) steering.Endpoint {
	e := heldEndpoint(protocol, vip4, native4)
	e.Backends = nil
	for _, s := range []model.Slot{1, 2, 3} {
		e.Backends = append(e.Backends, steering.Backend{Slot: s, Tunnel: netip.MustParseAddr(tunnelOfSlot(s)), Down: rapid.Bool().Draw(draw, "down")})
	}
	e.Backends = append(e.Backends, steering.Backend{Slot: backendSlot, Tunnel: netip.MustParseAddr(native4)})
	size := 1 << rapid.IntRange(0, 8).Draw(draw, "size")
	e.Buckets = rapid.SliceOfN(drawSlot, size, size).Draw(draw, "buckets")
	if rapid.Bool().Draw(draw, "moved") {
		e.Previous = rapid.SliceOfN(drawSlot, size, size).Draw(draw, "previous")
	}
	e.Cookies = rapid.SampledFrom([]model.Cookies{model.CookiesOff, model.CookiesSettling, model.CookiesOn}).Draw(draw, "cookies")
	e.LocalUDP, e.Affinity = rapid.Bool().Draw(draw, "local"), rapid.Bool().Draw(draw, "affinity")
	return e
}

// drawFromClient is a packet to an endpoint, and what the rule goes by of it.
func drawFromClient(draw *rapid.T, e steering.Endpoint) (pkt.Packet, steer.Packet) {
	client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), rapid.Uint16Range(1024, 65535).Draw(draw, "port"))
	in, p := pkt.UDP(client.String(), vip4), steer.Packet{Protocol: e.Key.Protocol}
	if p.Protocol == model.TCP {
		p.SYN, p.Timestamps = rapid.Bool().Draw(draw, "syn"), rapid.Bool().Draw(draw, "timestamps")
		in = pkt.TCP(client.String(), vip4, map[bool]pkt.Flags{true: pkt.SYN, false: pkt.ACK}[p.SYN])
	}
	if p.Timestamps {
		p.Cookie = drawSlot.Draw(draw, "cookie")
		in = in.With(pkt.NOP(2), pkt.Timestamps(1, 5<<13|uint32(p.Cookie)))
	}
	flow := model.Flow{Protocol: p.Protocol, Source: client, Destination: netip.MustParseAddrPort(vip4)}
	if e.Affinity {
		flow.Source = netip.AddrPortFrom(client.Addr(), 0)
	}
	p.Hash = poolKey().Sum(flow)
	return in, p
}

// verdictOf is what the program says where the rule decides d at native4.
func verdictOf(e steering.Endpoint, d steer.Decision) string {
	_, there := e.Backend(d.Slot)
	switch {
	case d.Slot == 0 || !there:
		return "drop_steer_no_backend"
	case d.Slot == backendSlot && d.Previous != 0:
		return "chain_on"
	case d.Slot == backendSlot:
		return "deliver_native"
	case d.Previous != 0:
		return "steered_query"
	case d.Reason == steer.ByCookie:
		return "steered_cookie"
	}
	return "steered_bucket"
}

// TestSteeringDecidesAsTheModel compares the program with internal/steer, also once a workload is known to answer with
// timestamps.
func TestSteeringDecidesAsTheModel(t *testing.T) {
	r := newRig(t)
	seen := map[string]int{}
	rapid.Check(t, func(draw *rapid.T) {
		e := drawSteered(draw, rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP}).Draw(draw, "protocol"))
		r.steer(held(e))
		b := rule(e.Key.Protocol, vip4, native4, native4, native6)
		b.Cookies = b.Cookies && e.Cookies != model.CookiesOff
		if err := r.Apply([]model.HostBackend{b}, nil); err != nil {
			t.Fatal(err)
		}
		confirmed := rapid.Bool().Draw(draw, "confirmed")
		r.setAnswersTimestamps(native4, confirmed)
		in, p := drawFromClient(draw, e)
		d := steer.Decide(e, p, steer.Arrival{Own: backendSlot, TakesNew: slices.Contains(e.Buckets, backendSlot), Timestamps: confirmed})
		got, want := r.run("from_uplink", fromSwitch(in, native4, false), nil), verdictOf(e, d)
		if got.verdict != want {
			draw.Fatalf("verdict is %s, not %s: %+v", got.verdict, want, d)
		}
		seen[want+string(d.Reason)]++
		if strings.HasPrefix(want, "steered_") {
			if to := netip.AddrFrom4([4]byte(got.frame[ethernetHeader+16:])).String(); to != tunnelOfSlot(d.Slot) {
				draw.Fatalf("goes to %s: %+v", to, d)
			}
			if port := binary.BigEndian.Uint16(got.frame[ethernetHeader+20:]); port < entropyFirst {
				draw.Fatalf("entropy is %d", port)
			}
		}
		for _, table := range r.Tables() {
			if err := abi.WriteTable(table, map[bpf.AgentSessionKey]bpf.AgentSession{}); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("%v", seen)
}

// setAnswersTimestamps says whether a workload answers SYNs with timestamps.
func (r *rig) setAnswersTimestamps(dip string, confirmed bool) {
	r.t.Helper()
	key := bpf.AgentSteerWorkload{Dip: bpf.ToAddress(netip.MustParseAddr(dip)), Port: abi.Port(backendPort)}
	var err error
	if confirmed {
		err = r.objects.SteerWorkloads.Put(key, uint32(1))
	} else if err = r.objects.SteerWorkloads.Delete(key); errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
