package oracle

import (
	"net/netip"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/flowstate"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// Mux is a mux's tables, and what it remembers.
type Mux struct {
	HashKey          flowhash.Key
	Source4, Source6 netip.Addr   // outer sources; invalid: none
	Prefix4, Prefix6 netip.Prefix // valid: what the outer source is taken from by flow hash instead
	GUE              bool         // encapsulate in GUE, not in IP alone
	MTU              int
	MAC              [6]byte                      // of the interface
	Hops             map[netip.Addr]model.NextHop // by tunnel, and by address of a mux
	Self             string                       // name among Members
	Members          inet.Pool                    // empty: this mux is alone

	SNAT []model.MuxSNAT // whose ports are whose

	Network Network

	endpoints map[model.EndpointKey]*flowstate.Endpoint
	datagrams map[datagram]told
}

// Outcome is what becomes of a frame.
type Outcome struct {
	Verdict string // as the mux counts it
	Frame   []byte // what is sent, or handed to user space; nil when the frame stays as it came
	L3      int    // of a frame for user space: where its IP header stands

	Or   []string             // verdicts that are as right
	Seen func(verdict string) // nil, or to be told which of them it was: see flowstate.Choice
}

// Set brings the endpoint to what e says. Flows that are remembered live on.
func (m *Mux) Set(e model.MuxEndpoint) {
	if m.endpoints == nil {
		m.endpoints = map[model.EndpointKey]*flowstate.Endpoint{}
	}
	m.endpoints[e.Key] = flowstate.New(e, m.endpoints[e.Key])
}

// Handle is a frame's way through the mux.
func (m *Mux) Handle(frame []byte) Outcome {
	if len(frame) >= 14 && [6]byte(frame) != m.MAC {
		return Outcome{Verdict: "pass_other_mac"}
	}
	p, verdict := parse(frame)
	if nat := m.Network.NAT; verdict != "pass_malformed" && nat != nil && nat.Covers(p.to) {
		return nat.reply(m, p)
	}
	switch verdict {
	case "":
		return m.whole(p)
	case "pass_icmp":
		return m.icmp(p)
	case "pass_fragment":
		return m.fragment(p)
	}
	return Outcome{Verdict: verdict}
}

// whole is TCP or UDP in one piece.
func (m *Mux) whole(p *packet) Outcome {
	e := m.endpointOf(p.flow)
	if e == nil && !m.isSNAT(p.to) {
		if out, ok := m.Network.handle(m, p); ok {
			return out
		}
		return m.relayed(p)
	}
	if m.isMartian(p.from, p.to) {
		return Outcome{Verdict: "drop_martian"}
	}
	if e == nil {
		return m.snat(p, nil, "forward_snat")
	}
	if !e.Takes(p.from, nil) {
		return Outcome{Verdict: "drop_acl"}
	}
	c := m.choose(e, p)
	if c.Backend == nil {
		return Outcome{Verdict: "drop_no_backend"}
	}
	var w *weir
	if c.Previous != nil {
		w = &weir{ask: c.Previous.Tunnel}
	}
	out := m.send(p, c.Backend.Tunnel, w, c.Verdict)
	if out.Verdict == c.Verdict {
		out.Or, out.Seen = c.Or, c.Seen
	} else if c.Seen != nil {
		c.Seen("")
	}
	if out.Verdict == "drop_too_big" {
		return m.tooBig(p, c.Backend.Tunnel.Is6())
	}
	return out
}

// isMartian says whether no packet to the VIP comes from the address (RFC 1812, section 5.3.7): from the VIP itself only
// what workloads send that leave as it.
func (m *Mux) isMartian(from, vip netip.Addr) bool {
	return !isHost(from) || from == vip && !m.isSNAT(vip)
}

// vip says whether the address is a VIP, and whether that answers echo requests.
func (m *Mux) vip(a netip.Addr) (known, answers bool) {
	for key, e := range m.endpoints {
		if key.VIP == a {
			return true, e.Ping
		}
	}
	for _, s := range m.SNAT {
		if s.Key.VIP == a {
			return true, s.Ping
		}
	}
	return false, false
}

// endpointOf is the endpoint of exactly the flow's port, else the one on all ports of the VIP.
func (m *Mux) endpointOf(f model.Flow) *flowstate.Endpoint {
	key := f.Endpoint()
	if e := m.endpoints[key]; e != nil {
		return e
	}
	key.Port = model.AllPorts
	return m.endpoints[key]
}
