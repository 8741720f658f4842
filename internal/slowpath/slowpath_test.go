package slowpath

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

const client4, vip4 = "198.51.100.7:40000", "203.0.113.10:80"

// fakeDatapath notes what is sent by it.
type fakeDatapath struct {
	known    map[mux.FragmentKey]bool
	injected [][]byte
	sent     [][]byte
	ways     []mux.BackendRoute
}

func (d *fakeDatapath) FragmentKnown(key mux.FragmentKey) bool             { return d.known[key] }
func (d *fakeDatapath) BackendRoutes(model.EndpointKey) []mux.BackendRoute { return d.ways }
func (d *fakeDatapath) SplitSize() int                                     { return 1424 }

func (d *fakeDatapath) Inject(frame []byte) error {
	d.injected = append(d.injected, frame)
	return nil
}

func (d *fakeDatapath) Send(frame []byte) error {
	d.sent = append(d.sent, frame)
	return nil
}

// fakePunts yields what is put in.
type fakePunts chan mux.Punt

func (p fakePunts) Read() (mux.Punt, error) {
	if punt, ok := <-p; ok {
		return punt, nil
	}
	return mux.Punt{}, fs.ErrClosed
}

func (p fakePunts) Close() error {
	close(p)
	return nil
}

// serve runs a slow path in a bubble of synctest until the test ends.
func serve(t *testing.T, d *fakeDatapath) (*SlowPath, fakePunts) {
	t.Helper()
	punts := make(fakePunts)
	s := New(d, punts, &Counters{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, punts
}

func later(id uint16) []byte {
	return pkt.UDP(client4, vip4, pkt.Fragment(9, false), func(p *pkt.Packet) { p.IP.ID = id }).Frame()
}

func key(id uint32) mux.FragmentKey {
	return mux.FragmentKey{
		Source: netip.MustParseAddr("198.51.100.7"), Destination: netip.MustParseAddr("203.0.113.10"),
		Protocol: 17, ID: id,
	}
}

func TestEarlyFragmentsWaitForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDatapath{known: map[mux.FragmentKey]bool{}}
		s, punts := serve(t, d)
		punts <- mux.Punt{Reason: mux.PuntFragment, Frame: later(1), L3: 14}
		punts <- mux.Punt{Reason: mux.PuntFragment, Frame: later(2), L3: 14}
		time.Sleep(HoldTime / 2)
		synctest.Wait()
		if len(d.injected) != 0 {
			t.Fatal("a fragment was sent on before its first one came")
		}
		d.known[key(2)] = true
		time.Sleep(2 * pollTime)
		synctest.Wait()
		if len(d.injected) != 1 || !bytes.Equal(d.injected[0], later(2)) {
			t.Fatalf("sent on %d frames, want the one whose first one came", len(d.injected))
		}
		time.Sleep(HoldTime)
		synctest.Wait()
		if s.held.count != 0 || s.held.size != 0 || len(s.held.fragments) != 0 {
			t.Errorf("%d fragments of %d bytes are held for too long", s.held.count, s.held.size)
		}
		punts <- mux.Punt{Reason: mux.PuntFragment, Frame: later(2), L3: 14}
		synctest.Wait()
		if len(d.injected) != 2 {
			t.Error("a fragment whose first one is known was not sent on at once")
		}
	})
}

func TestFloodOfFragmentsIsBounded(t *testing.T) {
	for _, length := range []int{60, 1500, 9000} {
		var h hold
		kept := 0
		for i := range 100000 {
			kept += 1 - h.add(key(uint32(i)), make([]byte, length), time.Time{})
		}
		if kept > MaxHeld || h.count != kept || length*kept > MaxHeldBytes || kept < min(MaxHeld, MaxHeldBytes/length-1) {
			t.Errorf("holds %d fragments of %d bytes, counts %d", kept, length, h.count)
		}
		h.expire(time.Time{}.Add(HoldTime))
		if h.count != 0 || h.size != 0 || len(h.vips) != 0 {
			t.Errorf("holds %d fragments of %d bytes when all expired, of VIPs %v", h.count, h.size, h.vips)
		}
		if h.add(key(0), make([]byte, length), time.Time{}) != 0 {
			t.Error("takes nothing after the flood")
		}
	}
}

// A VIP that is flooded with early fragments has the whole room, until others want some of it: the oldest of its
// datagrams make way for theirs, but none of theirs for its own.
func TestEarlyFragmentsAreSharedByVIPs(t *testing.T) {
	var h hold
	now := time.Time{}
	flood := func(from, to uint32) (dropped int) {
		for i := from; i < to; i++ {
			now = now.Add(time.Microsecond)
			dropped += h.add(key(i), make([]byte, 100), now)
		}
		return dropped
	}
	if dropped := flood(0, 2*MaxHeld); dropped != MaxHeld {
		t.Errorf("alone, %d of %d had no room, want %d", dropped, 2*MaxHeld, MaxHeld)
	}
	other := func(i uint32) mux.FragmentKey {
		k := key(i)
		k.Destination = netip.MustParseAddr("2001:db8::1")
		return k
	}
	for i := range uint32(100) {
		now = now.Add(time.Microsecond)
		if dropped := h.add(other(i/4), make([]byte, 9000), now); dropped > 9000/leastHeld+1 {
			t.Errorf("%d fragments made way for one", dropped)
		}
		flood(i, i+100)
	}
	for i := range uint32(25) {
		if n := len(h.fragments[other(i)]); n != 4 {
			t.Errorf("%d of 4 fragments of another VIP's datagram are held", n)
		}
	}
	if h.fragments[key(0)] != nil || h.fragments[key(MaxHeld-1)] == nil {
		t.Error("not the oldest datagrams made way")
	}
}

func TestSplitFragmentsMakeThePacket(t *testing.T) {
	payload := bytes.Repeat([]byte("weir spreads a river"), 73)
	for name, p := range map[string]pkt.Packet{
		"plain":      pkt.UDP(client4, vip4, pkt.Payload(payload)),
		"in a VLAN":  pkt.UDP(client4, vip4, pkt.Payload(payload), pkt.VLANs(5)),
		"options":    pkt.UDP(client4, vip4, pkt.Payload(payload), pkt.IPOptions(12)),
		"a fragment": pkt.UDP(client4, vip4, pkt.Payload(payload), pkt.Fragment(40, true)),
	} {
		t.Run(name, func(t *testing.T) {
			frame := p.Frame()
			whole, ok := parse(frame, p.L3())
			if !ok {
				t.Fatal("the packet does not parse")
			}
			parts := split(frame, p.L3(), 1424)
			if len(parts) != 2 {
				t.Fatalf("split into %d, want 2", len(parts))
			}
			var joined []byte
			for i, part := range parts {
				if _, err := pkt.Decode(part); err != nil {
					t.Error(err)
				}
				got, ok := parse(part, p.L3())
				if !ok || got.end-got.l3 > 1424 || got.offset != whole.offset+len(joined) || got.id != whole.id {
					t.Errorf("part %d is %+v", i, got)
				}
				if more := i == 0 || whole.more; got.more != more {
					t.Errorf("part %d says more: %v", i, got.more)
				}
				joined = append(joined, part[got.l4:got.end]...)
			}
			if !bytes.Equal(joined, frame[whole.l4:whole.end]) {
				t.Error("the parts do not make the packet")
			}
		})
	}
}

func TestNothingIsSplitThatMayNotBe(t *testing.T) {
	long := pkt.Payload(make([]byte, 1480))
	df := pkt.UDP(client4, vip4, long, func(p *pkt.Packet) { p.IP.DontFragment = true })
	six := pkt.UDP("[2001:db8::7]:40000", "[2001:db8:1::10]:80", long)
	for _, p := range []pkt.Packet{df, six} {
		if parts := split(p.Frame(), p.L3(), 1424); parts != nil {
			t.Errorf("%s was split into %d", p.IP.Source, len(parts))
		}
	}
}

// icmpError is an ICMP error about a packet that the VIP sent.
func icmpError() []byte {
	quote := pkt.TCP(vip4, client4, pkt.ACK).Frame()[14:]
	carrier := pkt.ICMP("192.0.2.1", "203.0.113.10", pkt.Payload(quote[:28]))
	frame := carrier.Frame()
	frame[carrier.L4()], frame[carrier.L4()+1] = 3, 4
	return frame
}

func TestErrorsGoToEveryBackend(t *testing.T) {
	flow, ok := quotedFlow(icmpError(), 14)
	want := model.Flow{Protocol: model.TCP, Source: netip.MustParseAddrPort(client4), Destination: netip.MustParseAddrPort(vip4)}
	if !ok || flow != want {
		t.Fatalf("the error is about %s, want %s", flow, want)
	}
	hop := model.NextHop{Source: [6]byte{2, 0, 0, 0, 0, 1}, Destination: [6]byte{2, 0, 0, 0, 0, 2}}
	d := &fakeDatapath{ways: []mux.BackendRoute{
		{Source: netip.MustParseAddr("10.255.0.1"), Tunnel: netip.MustParseAddr("10.0.0.1"), Hop: hop},
		{Source: netip.MustParseAddr("fd00:ff::1"), Tunnel: netip.MustParseAddr("fd00::1"), Hop: hop},
	}}
	s := New(d, nil, &Counters{}, slog.New(slog.DiscardHandler))
	s.copy(mux.Punt{Frame: icmpError(), L3: 14}, time.Time{}.Add(time.Hour))
	if len(d.sent) != len(d.ways) {
		t.Fatalf("%d copies, want %d", len(d.sent), len(d.ways))
	}
	for i, frame := range d.sent {
		outer, ok := parse(frame, 14)
		if !ok || outer.destination != d.ways[i].Tunnel || outer.source != d.ways[i].Source || outer.end != len(frame) {
			t.Errorf("copy %d is %+v", i, outer)
		}
		if !bytes.Equal(frame[outer.l4:], icmpError()[14:]) {
			t.Errorf("copy %d was changed", i)
		}
		if !bytes.Equal(frame[:6], hop.Destination[:]) {
			t.Errorf("copy %d goes to %x", i, frame[:6])
		}
	}
}

func TestCopiesAreBounded(t *testing.T) {
	var c copies
	now := time.Time{}.Add(time.Hour)
	flooded, other := netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::1")
	taken := 0
	const each = copiesAtOnce / 8
	for range 100 {
		if c.take(flooded, each, now) {
			taken += each
		}
	}
	if taken != copiesAtOnce+each { // and one error of its own
		t.Errorf("%d copies at once, want %d", taken, copiesAtOnce+each)
	}
	if !c.take(other, 100, now) {
		t.Error("another VIP has no copies")
	}
	if c.take(other, 100, now) {
		t.Error("a VIP has more copies than its own")
	}
	if !c.take(flooded, 1000, now.Add(time.Second)) {
		t.Error("no copy a second later")
	}
}
