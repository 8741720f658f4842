package oracle

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// Mux is a mux's tables, and what it remembers.
type Mux struct {
	HashKey          flowhash.Key
	Source4, Source6 netip.Addr // outer sources; invalid: none
	MTU              int
	Hops             map[netip.Addr]model.NextHop // by tunnel

	endpoints map[model.EndpointKey]*endpoint
}

// endpoint is an endpoint, and the flows that are remembered of it.
type endpoint struct {
	model.MuxEndpoint
	moved bool // a bucket of it has moved
	flows map[model.Flow]model.Slot
}

// Outcome is what becomes of a frame.
type Outcome struct {
	Verdict string // as the mux counts it
	Frame   []byte // what is sent; nil when the frame stays as it came
}

// Set brings the endpoint to what e says. Flows that are remembered live on.
func (m *Mux) Set(e model.MuxEndpoint) {
	old := m.endpoints[e.Key]
	next := &endpoint{MuxEndpoint: e, flows: map[model.Flow]model.Slot{}}
	if old != nil {
		next.flows = old.flows
		next.moved = old.moved || anyMoved(old.Buckets, e.Buckets)
	}
	if m.endpoints == nil {
		m.endpoints = map[model.EndpointKey]*endpoint{}
	}
	m.endpoints[e.Key] = next
}

// anyMoved says whether some hash has another slot in next than in old.
func anyMoved(old, next []model.Slot) bool {
	for hash := range len(old) * len(next) {
		if old[hash%len(old)] != next[hash%len(next)] {
			return true
		}
	}
	return false
}

// Handle is a frame's way through the mux.
func (m *Mux) Handle(frame []byte) Outcome {
	p, verdict := parse(frame)
	if verdict != "" {
		return Outcome{Verdict: verdict}
	}
	e := m.endpoints[model.EndpointKey{
		VIP: p.flow.Destination.Addr(), Protocol: p.flow.Protocol, Port: p.flow.Destination.Port(),
	}]
	if e == nil {
		return Outcome{Verdict: "pass_not_for_us"}
	}
	c := m.choose(e, p)
	if c.backend == nil {
		return Outcome{Verdict: "drop_no_backend"}
	}
	return m.encapsulate(p, c)
}

// choice is a backend, and why.
type choice struct {
	verdict string
	backend *model.MuxBackend
	hash    uint32
}

func (m *Mux) choose(e *endpoint, p *packet) choice {
	c := choice{hash: m.HashKey.Sum(p.flow)}
	bucket := model.Slot(0)
	if n := len(e.Buckets); n > 0 {
		bucket = e.Buckets[int(c.hash)%n]
	}
	if p.opens() {
		if e.moved { // till then what is remembered is where the bucket leads
			delete(e.flows, p.flow)
		}
		c.verdict, c.backend = "forward_syn", e.at(bucket)
		return c
	}
	c.verdict = "forward_bucket"
	if slot, known := e.flows[p.flow]; known {
		if b := e.at(slot); b != nil && !b.Down {
			c.verdict, c.backend = "forward_flow", b
			return c
		}
		c.verdict = "forward_replaced"
	}
	if c.backend = e.at(bucket); c.backend != nil {
		e.flows[p.flow] = bucket
	}
	return c
}

func (e *endpoint) at(slot model.Slot) *model.MuxBackend {
	for i := range e.Backends {
		if e.Backends[i].Slot == slot {
			return &e.Backends[i]
		}
	}
	return nil
}

func (m *Mux) encapsulate(p *packet, c choice) Outcome {
	tunnel := c.backend.Tunnel
	hop, resolved := m.Hops[tunnel]
	source, growth := m.Source4, 20
	if tunnel.Is6() {
		source, growth = m.Source6, 40
	}
	switch {
	case !resolved || !hop.Resolved():
		return Outcome{Verdict: "drop_no_next_hop"}
	case !source.IsValid():
		return Outcome{Verdict: "drop_no_source"}
	case len(p.ip)+growth > m.MTU:
		return Outcome{Verdict: "drop_too_big"}
	}
	header := outerHeader{
		source: source, destination: tunnel, tos: p.tos, label: c.hash,
		protocol: 41, length: len(p.ip),
	}
	if p.v4 {
		header.protocol = 4
	}
	return Outcome{Verdict: c.verdict, Frame: p.behind(hop, header.bytes())}
}

// behind is the frame to the hop with outer before its IP packet. Tags stay where they are, and so
// does what the frame has behind the packet.
func (p *packet) behind(hop model.NextHop, outer []byte) []byte {
	out := append([]byte(nil), hop.Destination[:]...)
	out = append(out, hop.Source[:]...)
	out = append(out, p.frame[12:p.l3-2]...)
	ethertype := uint16(0x0800)
	if outer[0]>>4 == 6 {
		ethertype = 0x86dd
	}
	out = binary.BigEndian.AppendUint16(out, ethertype)
	out = append(out, outer...)
	return append(out, p.frame[p.l3:]...)
}
