package echo

import (
	"fmt"
	"net"
)

// How a client asks for a flow: datagrams with numbers from 0. The server remembers each flow by the
// client's address and port, from its datagram 0 on, and tells whether it knows it.
const (
	FlowRequest = "weir-flow %d"
	FlowAnswer  = "weir-flow %s %d %s" // backend, number, FlowKnown or FlowUnknown
	FlowKnown   = "known"
	FlowUnknown = "unknown"
)

// maxFlows bounds what one server remembers; beyond it flows stay unknown.
const maxFlows = 1 << 18

// flows are the flows that a server knows.
type flows map[string]struct{}

// answer returns the answer to a flow's datagram; ok is false if it is none.
func (f flows) answer(backend string, client net.Addr, datagram []byte) (answer []byte, ok bool) {
	var number uint64
	if _, err := fmt.Sscanf(string(datagram), FlowRequest, &number); err != nil {
		return nil, false
	}
	name := client.String()
	if number == 0 && len(f) < maxFlows {
		f[name] = struct{}{}
	}
	state := FlowUnknown
	if _, known := f[name]; known {
		state = FlowKnown
	}
	return fmt.Appendf(nil, FlowAnswer, backend, number, state), true
}
