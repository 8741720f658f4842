package table

import (
	"fmt"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/elapsed"
)

// Nodes has a row for each mux, host and switch.
func Nodes(nodes []*weirv1.Node, now time.Time) *Table {
	t := New("", "no nodes: muxes and hosts appear here once weir-mux and weir-agent run",
		"NAME", "ROLE", "STATE", "GENERATION", "ADDRESSES", "VERSION")
	for _, n := range nodes {
		t.Add(n.GetName(), n.GetRole(), NodeState(n, now), NodeGeneration(n),
			strings.Join(n.GetAddresses(), ","), n.GetVersion())
	}
	return t
}

// NodesWide has more of each: its interface, its BGP sessions, and when it was last heard of.
func NodesWide(nodes []*weirv1.Node, now time.Time) *Table {
	t := New("", "no nodes: muxes and hosts appear here once weir-mux and weir-agent run",
		"NAME", "ROLE", "STATE", "GENERATION", "ADDRESSES", "VERSION", "INTERFACE", "BGP", "LAST SEEN")
	for _, n := range nodes {
		device, bgp := n.GetStatus().GetHost().GetUplink(), ""
		if mux := n.GetStatus().GetMux(); mux != nil {
			device, bgp = mux.GetInterface(), EstablishedPeers(mux)
			if !n.GetStatus().GetConnected() {
				bgp = "unknown"
			}
		}
		t.Add(n.GetName(), n.GetRole(), NodeState(n, now), NodeGeneration(n), strings.Join(n.GetAddresses(), ","), n.GetVersion(),
			device, bgp, elapsed.Ago(n.GetStatus().GetLastSeen(), now))
	}
	return t
}

// NodeState says whether a node is connected, or since when it is not.
func NodeState(n *weirv1.Node, now time.Time) string {
	if n.GetStatus().GetConnected() {
		switch n.GetStatus().GetSync() {
		case "behind":
			return "connected, behind"
		case "out":
			return "connected, out of the pool"
		}
		return "connected"
	}
	return "disconnected, last seen " + elapsed.Ago(n.GetStatus().GetLastSeen(), now)
}

// NodeGeneration is what the node runs, and what it refused.
func NodeGeneration(n *weirv1.Node) string {
	text := fmt.Sprint(n.GetStatus().GetGeneration())
	if r := n.GetStatus().GetRejection(); r.GetReason() != "" {
		text += fmt.Sprintf(", refused %d", r.GetGeneration())
	}
	return text
}

// CountPackets sums the packets of the verdicts whose name begins with the prefix.
func CountPackets(verdicts []*weirv1.NamedCounter, prefix string) uint64 {
	var sum uint64
	for _, v := range verdicts {
		if strings.HasPrefix(v.GetName(), prefix) {
			sum += v.GetPackets()
		}
	}
	return sum
}

// Names of verdicts begin with what becomes of the packet: enum verdict in bpf/abi.
const (
	VerdictForward = "forward_"
	VerdictPass    = "pass_"
	VerdictDeliver = "deliver_"
	VerdictReply   = "reply_"
	VerdictDrop    = "drop_"
)

// BGPEstablished is the state of a BGP session that exchanges routes.
const BGPEstablished = "established"

// EstablishedPeers is "2/2": BGP sessions that are established, of all.
func EstablishedPeers(mux *weirv1.MuxStatus) string {
	up := 0
	for _, p := range mux.GetPeers() {
		if p.GetState() == BGPEstablished {
			up++
		}
	}
	return fmt.Sprintf("%d/%d", up, len(mux.GetPeers()))
}
