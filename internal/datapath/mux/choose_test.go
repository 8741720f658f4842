package mux

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// chosen runs the packet and returns the outer destination that it was sent to.
func chosen(t testing.TB, d *Datapath, p pkt.Packet) netip.Addr {
	t.Helper()
	action, out := run(t, d, p.Frame())
	if action != xdpTX {
		t.Fatalf("action %d for %s, want it sent", action, p.IP.Source)
	}
	got, err := pkt.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return got.Outer.Destination
}

// TestBucketsAreChosenAsInGo compares the program's choice with flowhash's for random tuples.
func TestBucketsAreChosenAsInGo(t *testing.T) {
	tunnels := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::5"}
	random := rand.New(rand.NewPCG(1, 2))
	address := func(like string) netip.AddrPort {
		to := netip.MustParseAddrPort(like).Addr()
		bytes := to.As16()
		first := len(bytes) - to.BitLen()/8
		for i := first; i < len(bytes); i++ {
			bytes[i] = byte(random.Uint32())
		}
		bytes[first] = 1 + bytes[first]%120 // a host's address
		return netip.AddrPortFrom(netip.AddrFrom16(bytes).Unmap(), uint16(random.Uint32()))
	}
	for _, vip := range []string{vip4, vip6} {
		e := newEndpoint(vip, model.TCP, tunnels...)
		for i := range e.Buckets {
			e.Buckets[i] = model.Slot(random.IntN(len(tunnels)) + 1)
		}
		d := newFilled(t, e)
		for range 2000 {
			source := address(vip)
			flow := model.Flow{Protocol: model.TCP, Source: source, Destination: netip.MustParseAddrPort(vip)}
			slot := e.Buckets[testSettings().HashKey.Sum(flow)&uint32(len(e.Buckets)-1)]
			want := netip.MustParseAddr(tunnels[slot-1])
			if got := chosen(t, d, pkt.TCP(source.String(), vip, pkt.SYN)); got != want {
				t.Fatalf("%s was sent to %s, want %s", flow, got, want)
			}
		}
	}
}

const (
	first, second = "10.0.0.1", "10.0.0.2"
)

// only sends all new connections to slot, and keeps the others' rows.
func only(slot model.Slot) model.MuxEndpoint { return onlyOf(vip4, slot) }

func onlyOf(vip string, slot model.Slot) model.MuxEndpoint {
	e := newEndpoint(vip, model.TCP, first, second)
	for i := range e.Buckets {
		e.Buckets[i] = slot
	}
	return e
}

func apply(t testing.TB, d *Datapath, e model.MuxEndpoint) {
	t.Helper()
	if err := d.Apply([]model.MuxEndpoint{e}, nil); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
}

func wantChosen(t testing.TB, d *Datapath, p pkt.Packet, want string) {
	t.Helper()
	if got := chosen(t, d, p); got != netip.MustParseAddr(want) {
		t.Errorf("%s of flags %d was sent to %s, want %s", p.IP.Source, p.Flags, got, want)
	}
}

func TestDrainKeepsConnectionsAndGetsNoNewOnes(t *testing.T) {
	d := newFilled(t, only(1))
	old, fresh := pkt.TCP(client4, vip4, pkt.ACK), pkt.TCP("198.51.100.8:1", vip4, pkt.ACK)
	wantChosen(t, d, old, first)
	apply(t, d, only(2))
	wantChosen(t, d, old, first)
	wantChosen(t, d, fresh, second)
}

func TestDownBackendsFlowsMove(t *testing.T) {
	d := newFilled(t, only(1))
	p := pkt.TCP(client4, vip4, pkt.ACK)
	wantChosen(t, d, p, first)
	down := only(2)
	down.Backends[0].Down = true
	apply(t, d, down)
	wantChosen(t, d, p, second)
	apply(t, d, only(2)) // up again: the flow stays where it went
	wantChosen(t, d, p, second)
}

func TestGoneBackendsFlowsMove(t *testing.T) {
	d := newFilled(t, only(1))
	p := pkt.TCP(client4, vip4, pkt.ACK)
	wantChosen(t, d, p, first)
	gone := only(2)
	gone.Backends = gone.Backends[1:]
	apply(t, d, gone)
	wantChosen(t, d, p, second)
}

func TestSYNsAreNotRemembered(t *testing.T) {
	d := newFilled(t, only(1))
	wantChosen(t, d, pkt.TCP(client4, vip4, pkt.SYN), first)
	apply(t, d, only(2))
	wantChosen(t, d, pkt.TCP(client4, vip4, pkt.ACK), second)
}

// An endpoint that is removed and made again knows no flow of the earlier one.
func TestNewEndpointKnowsNoEarlierFlows(t *testing.T) {
	d := newFilled(t, only(1))
	p := pkt.TCP(client4, vip4, pkt.ACK)
	wantChosen(t, d, p, first)
	if err := d.Replace(nil); err != nil {
		t.Fatal(err)
	}
	apply(t, d, only(2))
	wantChosen(t, d, p, second)
}

// Flows that are used stay when a flood of others fills the table several times over.
func TestFloodEvictsUnusedFlowsFirst(t *testing.T) {
	d := newFilled(t, only(1))
	const used, flood = 200, 20000
	flow := func(i int) pkt.Packet { return pkt.TCP(randomTuple(0x0b000000, i).String(), vip4, pkt.ACK) }
	for i := range used {
		wantChosen(t, d, flow(i), first)
		wantChosen(t, d, flow(i), first)
	}
	apply(t, d, only(2))
	for i := range flood {
		wantChosen(t, d, flow(used+i), second)
		if i%100 == 0 {
			for j := range used / 10 {
				run(t, d, flow((i/100*used/10+j)%used).Frame())
			}
		}
	}
	kept := 0
	for i := range used {
		if chosen(t, d, flow(i)) == netip.MustParseAddr(first) {
			kept++
		}
	}
	if kept < used*95/100 {
		t.Errorf("%d of %d flows in use were kept, want at least 95 %%", kept, used)
	}
}
