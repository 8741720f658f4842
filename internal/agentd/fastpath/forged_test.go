package fastpath

import (
	"net/netip"
	"testing"

	agentfastpath "github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/fastpath"
)

// A third host, which has the keys as well.
const tunnelX = "10.1.0.77"

// byHost has the server's end get a message that a host seals; client is the tunnel that it names, source its outer
// source.
func (n *network) byHost(kind fastpath.Kind, client, source string) {
	m := n.message(false)
	m.Kind, m.Client = kind, netip.MustParseAddr(client)
	if kind == fastpath.Gone { // its client is the end that it is for
		m.ToClient, m.Client, m.Server = true, m.Server, m.Client
		m.Connection.Client, m.Connection.Server = m.Connection.Server, m.Connection.Client
	}
	n.deliver(source, netip.MustParseAddr(tunnelB), fastpath.Seal(m, testKeys()[0]), false)
}

// A host that was taken over has the keys, and knows a connection of others: it neither draws the connection to itself,
// nor brings it back to the muxes.
func TestHostsSealForThemselvesAlone(t *testing.T) {
	for _, c := range []struct {
		name           string
		left           bool // the connection has left the muxes before
		kind           fastpath.Kind
		client, source string
		result         string
	}{
		{"ready without a redirect", false, fastpath.Ready, tunnelX, tunnelX, "unnamed"},
		{"ready of a peer without a redirect", false, fastpath.Ready, tunnelA, tunnelA, "unnamed"},
		{"ready of another peer than the redirect's", true, fastpath.Ready, tunnelX, tunnelX, "unnamed"},
		{"ready in the peer's name", true, fastpath.Ready, tunnelA, tunnelX, "wrong_source"},
		{"redirect", true, fastpath.Redirect, tunnelX, tunnelX, "wrong_source"},
		{"gone in the peer's name", true, fastpath.Gone, tunnelA, tunnelX, "wrong_source"},
		{"gone of another peer", true, fastpath.Gone, tunnelX, tunnelX, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t)
			want := agentfastpath.None
			if c.left {
				n.redirect(true, true)
				n.settle()
				want = agentfastpath.Send
			}
			before, _ := n.b.told()
			n.byHost(c.kind, c.client, c.source)
			n.settle()
			n.check(want, want)
			if n.atB.row != nil && n.atB.row.Peer.String() != tunnelA {
				t.Errorf("the connection goes to %s", n.atB.row.Peer)
			}
			if after, _ := n.b.told(); after[c.result] != before[c.result]+1 {
				t.Errorf("%s is not counted: %v", c.result, after)
			}
		})
	}
}
