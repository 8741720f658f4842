package oracle

import (
	"net/netip"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// Mux is a mux's tables, and what it remembers.
type Mux struct {
	HashKey          flowhash.Key
	Source4, Source6 netip.Addr   // outer sources; invalid: none
	Prefix4, Prefix6 netip.Prefix // valid: what the outer source is taken from by flow hash instead
	GUE              bool         // encapsulate in GUE, not in IP alone
	MTU              int
	Hops             map[netip.Addr]model.NextHop // by tunnel

	endpoints map[model.EndpointKey]*endpoint
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

// Handle is a frame's way through the mux.
func (m *Mux) Handle(frame []byte) Outcome {
	p, verdict := parse(frame)
	if verdict != "" {
		return Outcome{Verdict: verdict}
	}
	e := m.endpointOf(p.flow)
	if e == nil {
		return Outcome{Verdict: "pass_not_for_us"}
	}
	c := m.choose(e, p)
	if c.backend == nil {
		return Outcome{Verdict: "drop_no_backend"}
	}
	return m.send(p, c)
}

// endpointOf is the endpoint of exactly the flow's port, else the one on all ports of the VIP.
func (m *Mux) endpointOf(f model.Flow) *endpoint {
	key := f.Endpoint()
	if e := m.endpoints[key]; e != nil {
		return e
	}
	key.Port = model.AllPorts
	return m.endpoints[key]
}
