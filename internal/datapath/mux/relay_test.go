package mux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// twoMuxes are the programs of a pool of two, and what stands between them: frames that one sends to
// the other, and fragments that user space holds until their first one came.
type twoMuxes struct {
	t         *testing.T
	datapaths [2]*Datapath
	addresses [2]netip.Addr
	punts     [2]*Punts
	held      [2][][]byte
	relayed   int
	came      map[uint16]map[netip.Addr]int // fragments by their datagram's source port, and by tunnel
}

func newTwoMuxes(t *testing.T, endpoints ...model.MuxEndpoint) *twoMuxes {
	m := &twoMuxes{t: t, addresses: [2]netip.Addr{source4, other4}, came: map[uint16]map[netip.Addr]int{}}
	sizes := testSizes
	sizes.FragmentLife = 1 << 60 // a busy machine may take its time
	sizes.Tokens = tokensEach(1 << 40)
	var pool []model.PoolMember
	for i, address := range m.addresses {
		pool = append(pool, model.PoolMember{Name: fmt.Sprint("mux", i), Addresses: []netip.Addr{address}})
	}
	for i := range m.datapaths {
		d := newFilledOf(t, sizes, endpoints...)
		p := testSettings()
		p.Source4 = m.addresses[i]
		if err := d.SetSettings(p); err != nil {
			t.Fatal(err)
		}
		hops := map[netip.Addr]model.NextHop{source4: muxHop, other4: muxHop}
		for _, tunnel := range d.Tunnels() {
			hops[tunnel] = testHop
		}
		if err := d.SetNextHops(hops); err != nil {
			t.Fatal(err)
		}
		if err := d.SetPoolMembers(pool[i].Name, pool); err != nil {
			t.Fatal(err)
		}
		punts, err := d.Punts()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = punts.Close() })
		m.datapaths[i], m.punts[i] = d, punts
	}
	return m
}

// deliver gives a frame to a mux, and what that relays to the other one.
func (m *twoMuxes) deliver(mux int, frame []byte, relayed bool) {
	m.t.Helper()
	action, out := run(m.t, m.datapaths[mux], frame)
	if action == xdpDrop {
		m.punts[mux].reader.SetDeadline(time.Now()) // it is there, or never
		punt, err := m.punts[mux].Read()
		if err != nil {
			m.t.Fatalf("dropped %x: %v", frame, err)
		}
		m.held[mux] = append(m.held[mux], bytes.Clone(punt.Frame))
		return
	}
	checkAction(m.t, action, xdpTX)
	to := outerDestination(out[14:])
	if to == m.addresses[1-mux] {
		if relayed {
			m.t.Fatalf("relayed twice: %x", frame)
		}
		m.relayed++
		m.deliver(1-mux, bytes.Clone(out), true)
		return
	}
	words := int(out[14+20+8] & 0x1f) // in GUE by IPv4: its private data names the ports
	weir := out[14+20+8+4:]
	if inner := weir[4*words:]; !bytes.HasSuffix(frame, inner) {
		m.t.Errorf("the fragment was changed: %x", inner)
	}
	source := binary.BigEndian.Uint16(weir[4:])
	if m.came[source] == nil {
		m.came[source] = map[netip.Addr]int{}
	}
	m.came[source][to]++
}

// release injects what is held, as user space does every few milliseconds.
func (m *twoMuxes) release() {
	m.t.Helper()
	for mux := range m.held {
		held := m.held[mux]
		m.held[mux] = nil
		for _, frame := range held {
			m.deliver(mux, frame, true) // it is the owner's, or was relayed to it
		}
	}
}

// TestFragmentsInAnyOrderByTwoMuxes has many datagrams whose fragments come in any order, each by any
// of the muxes: all of a datagram reach the backend of its five-tuple, once.
func TestFragmentsInAnyOrderByTwoMuxes(t *testing.T) {
	const datagrams, parts = 150, 4
	tunnels := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
	e4, e6 := newEndpoint(vip4, model.UDP, tunnels...), newEndpoint(vip6, model.UDP, tunnels...)
	m := newTwoMuxes(t, e4, e6)
	r := rand.New(rand.NewPCG(3, 4))
	var frames [][]byte
	flows := map[uint16]model.Flow{}
	for i := range uint16(datagrams) {
		from, to := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), 1024+i), netip.MustParseAddrPort(vip4)
		if i%2 == 1 {
			from, to = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::7"), 1024+i), netip.MustParseAddrPort(vip6)
		}
		flows[from.Port()] = model.Flow{Protocol: model.UDP, Source: from, Destination: to}
		for part := range uint16(parts) {
			p := pkt.UDP(from.String(), to.String(), pkt.Payload(make([]byte, 16)), pkt.Fragment(3*part, part+1 < parts))
			p.IP.ID = 100 + i
			frames = append(frames, p.Frame())
		}
	}
	r.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	for n, frame := range frames {
		m.deliver(r.IntN(2), frame, false)
		if n%20 == 0 {
			m.release()
		}
	}
	m.release()
	for source, flow := range flows {
		slot := e4.Buckets[testSettings().HashKey.Sum(flow)&uint32(len(e4.Buckets)-1)]
		want := map[netip.Addr]int{netip.MustParseAddr(tunnels[slot-1]): parts}
		if !maps.Equal(m.came[source], want) {
			t.Errorf("fragments of %s came to %v, want %v", flow, m.came[source], want)
		}
	}
	if early := len(m.held[0]) + len(m.held[1]); early > 0 {
		t.Errorf("%d fragments are held still", early)
	}
	if m.relayed < datagrams || m.relayed > datagrams*parts {
		t.Errorf("%d of %d fragments were relayed: about half of them should be", m.relayed, datagrams*parts)
	}
}
