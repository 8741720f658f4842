package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

const (
	isn, serverISN = 1000, 5000
	batch          = 10_000 // of sessions that are half-open at a time: a tenant may have a quarter of the table
	readEvery      = 500 * time.Millisecond
)

// idleClient is the client of an idle session, in acme's network.
func idleClient(n int) netip.AddrPort {
	const clients = 50_000 // from 192.168.16.0 on
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 192<<24|168<<16|16<<8+uint32(n%clients))
	return netip.AddrPortFrom(netip.AddrFrom4(a), uint16(20000+n/clients))
}

// isIdle says whether a session is one of those that were made.
func isIdle(s overlay.Session, sessions int) bool {
	const clients = 50_000
	a := s.Client.Addr().As4()
	n := int(binary.BigEndian.Uint32(a[:])) - (192<<24 | 168<<16 | 16<<8) + clients*(int(s.Client.Port())-20000)
	return n >= 0 && n < sessions && idleClient(n) == s.Client
}

// measureCleaner makes sessions that are idle among connections that are not, and notes when they are ended.
func (w *world) measureCleaner(ctx context.Context, how options, to *report) error {
	var active []*traffic
	for _, tenant := range []string{"acme1", "bolt1"} {
		t, err := w.begin(tenant, how.active/2, how.busy)
		if err != nil {
			return err
		}
		active = append(active, t)
	}
	p, err := w.programs(server)
	if err != nil {
		return err
	}
	defer p.close()
	began := time.Now()
	if err := w.makeIdle(p, how.idle); err != nil {
		return err
	}
	to.Notes["cleaner-made-in-s"] = time.Since(began).Seconds()
	late, err := awaitEnds(ctx, p, how.idle)
	if err != nil {
		return err
	}
	broken := 0
	for _, t := range active {
		broken += t.end()
	}
	slices.Sort(late)
	to.Notes["cleaner-late-most-s"] = late[len(late)-1]
	to.add("cleaner-late-p99-s", late[len(late)*99/100], 10)
	to.add("cleaner-active-broken", float64(broken), 0)
	return nil
}

// makeIdle makes open sessions by packets of handshakes.
func (w *world) makeIdle(p programs, sessions int) error {
	at, err := w.path(p)
	if err != nil {
		return err
	}
	key, err := p.key()
	if err != nil {
		return err
	}
	g := &generator{programs: p, path: at, key: key}
	g.frames()
	for first := 0; first < sessions; first += batch {
		if err := g.make(first, min(first+batch, sessions), sessions); err != nil {
			return err
		}
	}
	return nil
}

// generator has packets of handshakes.
type generator struct {
	programs
	path
	key              fbt.Key
	syn, answer, ack []byte
}

func (g *generator) frames() {
	first := idleClient(0).String()
	g.syn = carry(pkt.TCP(first, vip.String(), pkt.SYN, withRoom), g.mux, g.tunnel)
	numbers(g.syn, isn, 0)
	p := pkt.TCP(g.backend.String(), "100.64.0.0:20000", pkt.SYN|pkt.ACK)
	p.Destination = pkt.MAC{}
	g.answer = p.Frame()
	const tcp = 14 + 20
	binary.BigEndian.PutUint32(g.answer[tcp+4:], serverISN)
	binary.BigEndian.PutUint32(g.answer[tcp+8:], isn+1)
	g.ack = carry(pkt.TCP(first, vip.String(), pkt.ACK), g.host, g.tunnel)
	numbers(g.ack, isn+1, serverISN+1)
}

// make makes the sessions from first to before end.
func (g *generator) make(first, end, all int) error {
	for n := first; n < end; n++ {
		client := idleClient(n)
		from(g.syn, client)
		g.option(g.syn, g.key, client, isn)
		if err := g.pass(g.in, g.syn); err != nil {
			return fmt.Errorf("SYN of %s: %w", client, err)
		}
	}
	view, err := g.view()
	if err != nil {
		return err
	}
	defer view.Close()
	for _, s := range view.Sessions() {
		if s.Events&overlay.ClientACK != 0 || !isIdle(s, all) {
			continue
		}
		local := view.Local[true].Addr().As4()
		binary.BigEndian.PutUint32(g.answer[14+16:], binary.BigEndian.Uint32(local[:])+s.Row)
		binary.BigEndian.PutUint16(g.answer[14+20+2:], s.Client.Port())
		from(g.ack, s.Client)
		if err := errors.Join(g.pass(g.out, g.answer), g.pass(g.in, g.ack)); err != nil {
			return fmt.Errorf("handshake of %s: %w", s.Client, err)
		}
	}
	return nil
}

// from sets a segment's client.
func from(frame []byte, client netip.AddrPort) {
	a := client.Addr().As4()
	copy(frame[headAt-8:], a[:])
	binary.BigEndian.PutUint16(frame[headAt:], client.Port())
}

func (g *generator) pass(program *ebpf.Program, frame []byte) error {
	taken, err := run1(program, frame)
	if err == nil && !taken {
		err = errors.New("is dropped")
	}
	return err
}

// awaitEnds waits until all idle sessions are ended, and returns how late each was, in seconds.
func awaitEnds(ctx context.Context, p programs, sessions int) (late []float64, err error) {
	view, err := p.view()
	if err != nil {
		return nil, err
	}
	defer view.Close()
	seen := map[uint32]uint32{} // last, by row
	for _, s := range view.Sessions() {
		if isIdle(s, sessions) && s.Events&overlay.ClientACK != 0 && !s.Events.IsOver() {
			seen[s.Row] = s.Seen
		}
	}
	if len(seen) != sessions {
		return nil, fmt.Errorf("there are %d idle sessions, not %d", len(seen), sessions)
	}
	for end := time.Now().Add(2*time.Minute + idleTimeout); len(seen) > 0; {
		if err := wait(ctx, readEvery); err != nil {
			return nil, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d idle sessions are not ended", len(seen))
		}
		for _, s := range view.Sessions() {
			if last, waits := seen[s.Row]; waits && isIdle(s, sessions) && s.Events&overlay.Reset != 0 {
				delete(seen, s.Row)
				late = append(late, (time.Duration(int32(s.Seen-last))*overlay.Tick - idleTimeout).Seconds())
			}
		}
	}
	return late, nil
}
