package ctl

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func (s *session) nodeTable(nodes []*weirv1.Node) *columns {
	t := newColumns("", "no nodes: muxes and hosts appear here once weir-mux and weir-agent run",
		"NAME", "ROLE", "STATE", "GENERATION", "ADDRESSES", "VERSION")
	for _, n := range nodes {
		t.add(n.GetName(), n.GetRole(), s.nodeState(n), generation(n),
			strings.Join(n.GetAddresses(), ","), n.GetVersion())
	}
	return t
}

func (s *session) nodeState(n *weirv1.Node) string {
	if n.GetStatus().GetConnected() {
		switch n.GetStatus().GetSync() {
		case "behind":
			return "connected, behind"
		case "out":
			return "connected, out of the pool"
		}
		return "connected"
	}
	return "disconnected, last seen " + s.ago(n.GetStatus().GetLastSeen())
}

// generation is what the node runs, and what it refused.
func generation(n *weirv1.Node) string {
	text := fmt.Sprint(n.GetStatus().GetGeneration())
	if r := n.GetStatus().GetRejection(); r.GetReason() != "" {
		text += fmt.Sprintf(", refused %d", r.GetGeneration())
	}
	return text
}

// count sums the packets of the verdicts whose name begins with the prefix.
func count(verdicts []*weirv1.NamedCounter, prefix string) uint64 {
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
	verdictForward = "forward_"
	verdictPass    = "pass_"
	verdictDeliver = "deliver_"
	verdictReply   = "reply_"
	verdictDrop    = "drop_"
)

// established is the state of a BGP session that exchanges routes.
const established = "established"

// peers is "2/2": BGP sessions that are established, of all.
func peers(mux *weirv1.MuxStatus) string {
	up := 0
	for _, p := range mux.GetPeers() {
		if p.GetState() == established {
			up++
		}
	}
	return fmt.Sprintf("%d/%d", up, len(mux.GetPeers()))
}
