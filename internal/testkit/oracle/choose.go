package oracle

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// endpoint is an endpoint, and the flows that are remembered of it.
type endpoint struct {
	model.MuxEndpoint
	moved bool // a bucket of it has moved
	flows map[model.Flow]model.Slot
	syns  map[model.Flow]uint32 // of flows at another backend: the sequence number that follows a SYN
}

// choice is a backend, and why.
type choice struct {
	verdict string
	backend *model.MuxBackend // nil: there is none
	// previous is who may know the connection if backend does not; nil: nobody.
	previous *model.MuxBackend
}

// choose is section 4 of the design: cookie, flow table, bucket.
func (m *Mux) choose(e *endpoint, p *packet) choice {
	bucket, previous := m.bucket(e, p.flow)
	if p.opens() {
		e.noteSYN(p, bucket)
		return choice{verdict: "forward_syn", backend: e.at(bucket)}
	}
	cookie := e.cookie(p)
	if cookie != nil && e.Cookies == model.CookiesOn {
		return choice{verdict: "forward_cookie", backend: cookie}
	}
	e.decide(p)
	slot, known := e.flows[p.flow]
	if b := e.alive(slot); known && b != nil {
		return choice{verdict: "forward_flow", backend: b}
	}
	if cookie != nil {
		return choice{verdict: "forward_cookie", backend: cookie}
	}
	c := choice{verdict: "forward_bucket", backend: e.at(bucket)}
	if known {
		c.verdict = "forward_failover"
	}
	if c.backend == nil {
		return c
	}
	if b := e.alive(previous); b != nil && previous != bucket {
		c.verdict, c.previous = "forward_chained", b
		return c
	}
	e.flows[p.flow] = bucket
	return c
}

// noteSYN keeps what is remembered, and the number by which the segment after the SYN is told.
func (e *endpoint) noteSYN(p *packet, bucket model.Slot) {
	delete(e.syns, p.flow)
	if slot, known := e.flows[p.flow]; known && slot != bucket {
		e.syns[p.flow] = binary.BigEndian.Uint32(p.l4[4:]) + 1
	}
}

// decide ends the note of a SYN, and what is remembered if the segment follows the SYN: its number, without the lower
// 17 bits, is the one noted or the next one.
func (e *endpoint) decide(p *packet) {
	noted, ok := e.syns[p.flow]
	if !ok {
		return
	}
	delete(e.syns, p.flow)
	seq := binary.BigEndian.Uint32(p.l4[4:])
	if seq>>17 == noted>>17 || (seq-1<<17)>>17 == noted>>17 {
		delete(e.flows, p.flow)
	}
}

// known is the backend that a connection is at, by the slot that its backend's timestamps name (0:
// none), if that is certain; else nil. Nothing is remembered.
func (m *Mux) known(e *endpoint, f model.Flow, cookie model.Slot) *model.MuxBackend {
	named := e.alive(cookie)
	if named != nil && e.Cookies == model.CookiesOn {
		return named
	}
	_, noted := e.syns[f]
	if slot, known := e.flows[f]; known && !noted && e.alive(slot) != nil {
		return e.alive(slot)
	}
	if named != nil && e.Cookies == model.CookiesSettling {
		return named
	}
	if e.moved {
		return nil
	}
	bucket, _ := m.bucket(e, f)
	return e.at(bucket)
}

// bucket is what the flow's bucket names, and what it named before.
func (m *Mux) bucket(e *endpoint, f model.Flow) (slot, previous model.Slot) {
	if len(e.Buckets) == 0 {
		return 0, 0
	}
	if e.Affinity { // all that one client sends to the endpoint
		f.Source = netip.AddrPortFrom(f.Source.Addr(), 0)
		f.Destination = netip.AddrPortFrom(f.Destination.Addr(), e.Key.Port)
	}
	number := m.keyedHash(f) % uint64(len(e.Buckets))
	if len(e.Previous) > 0 {
		previous = e.Previous[number]
	}
	return e.Buckets[number], previous
}

// cookie is the backend that the packet's timestamps name, or nil.
func (e *endpoint) cookie(p *packet) *model.MuxBackend {
	reads := e.Cookies == model.CookiesOn || e.Cookies == model.CookiesSettling
	if !reads || p.flow.Protocol != model.TCP || p.flags&flagSYN != 0 {
		return nil
	}
	_, echo, ok := timestamps(p.l4[20 : int(p.l4[12]>>4)*4])
	if !ok {
		return nil
	}
	return e.alive(model.Slot(echo % (1 << 13)))
}

func (e *endpoint) at(slot model.Slot) *model.MuxBackend {
	for i := range e.Backends {
		if e.Backends[i].Slot == slot {
			return &e.Backends[i]
		}
	}
	return nil
}

func (e *endpoint) alive(slot model.Slot) *model.MuxBackend {
	if b := e.at(slot); b != nil && !b.Down {
		return b
	}
	return nil
}

// anyMoved says whether some hash has another slot in next than in old. Both sizes are powers of
// two, so the larger one tells all of them apart.
func anyMoved(old, next []model.Slot) bool {
	if len(old) == 0 {
		return false
	}
	for hash := range max(len(old), len(next)) {
		if len(next) == 0 || old[hash%len(old)] != next[hash%len(next)] {
			return true
		}
	}
	return false
}

func (m *Mux) keyedHash(f model.Flow) uint64 { return inet.KeyedHash(m.HashKey, f) }
