// Package moved takes a server to another host and back, with its connections, in a lab of its own: those that have
// left the muxes and those that have not, side by side.
//
//	router ── mux1, mux2 ── host1, host3: the server ── host2: a client that leaves the muxes, and one that does not
package moved

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	// moves is how often the server moves; WEIR_MOVES says another number.
	moves = 2
	// streams are held in each family by each client.
	streams = 10
	server  = "host1-w1"
	// patience is less than what a client takes until it asks by itself whether a silent server is there: 15 s.
	patience = 14 * time.Second
)

// way is a client's service, and the VIP by which it talks to the server.
type way struct {
	name     string
	fastpath bool
	client   string // two workloads may use one port of their VIPs, so each way has a VIP of its own
	from, to netip.Addr
}

var ways = []way{
	{"v4-fastpath", true, "host2-w1", netip.MustParseAddr("203.0.113.50"), netip.MustParseAddr("203.0.113.60")},
	{"v6-fastpath", true, "host2-w1", netip.MustParseAddr("2001:db8:113::50"), netip.MustParseAddr("2001:db8:113::60")},
	{"v4", false, "host2-w2", netip.MustParseAddr("203.0.113.51"), netip.MustParseAddr("203.0.113.61")},
	{"v6", false, "host2-w2", netip.MustParseAddr("2001:db8:113::51"), netip.MustParseAddr("2001:db8:113::61")},
}

func (w way) of(n netlab.Node) netip.Addr {
	if w.to.Is6() {
		return n.IPv6
	}
	return n.IPv4
}

type lab struct {
	*netlab.Lab
	t    *testing.T
	host string // where the server is
}

func up(t *testing.T) *lab {
	t.Helper()
	built := testlab.Up(t, netlab.Config{Plan: netlab.Plan{Name: "moved", Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2}})
	l := &lab{Lab: built, t: t, host: "host1"}
	l.serve()
	for _, w := range ways {
		testlab.Must(t, built.WaitRouted(t.Context(), testlab.Bound, w.from, 2))
		testlab.Must(t, built.WaitRouted(t.Context(), testlab.Bound, w.to, 2))
	}
	return l
}

func (l *lab) node(name string) netlab.Node {
	l.t.Helper()
	n, err := l.Node(name)
	testlab.Must(l.t, err)
	return n
}

// serve applies the services as they are now.
func (l *lab) serve() {
	l.t.Helper()
	var b strings.Builder
	for _, w := range ways {
		client := l.node(w.client)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: from-%s}\nspec:\n  address: '%s'\n  snat:\n    workloads: [{address: '%s', host: %s}]\n",
			w.name, w.from, w.of(client), client.Host)
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: to-%s}\nspec:\n  address: '%s'\n", w.name, w.to)
		if w.fastpath {
			fmt.Fprintf(&b, "  fastpath: {sources: ['%s']}\n", w.from)
		}
		fmt.Fprintf(&b, "  endpoints:\n  - protocol: TCP\n    port: 8080\n    backends: [{host: %s, address: '%s', port: %d}]\n",
			l.host, w.of(l.node(server)), netlab.EchoPort)
	}
	testlab.Apply(l.t, l.Lab, b.String())
}

// TestMovedConnections: all are answered again, those too whose client waits for an answer and has nothing to send.
func TestMovedConnections(t *testing.T) {
	times := moves
	if text := os.Getenv("WEIR_MOVES"); text != "" {
		n, err := strconv.Atoi(text)
		testlab.Must(t, err)
		times = n
	}
	l := up(t)
	for i := range times {
		l.move(i)
	}
}

func (l *lab) move(number int) {
	l.t.Helper()
	runs := map[string]*netload.Streams{}
	for _, w := range ways {
		run, err := netload.StartStreams(l.t.Context(), l, w.client, stream.Config{
			Network: stream.TCP, Target: netip.AddrPortFrom(w.to, 8080), Source: w.of(l.node(w.client)),
			Streams: streams, Interval: 10 * time.Millisecond, Size: 64 << 10, Patience: patience,
		})
		testlab.Must(l.t, err)
		testlab.Must(l.t, run.WaitOpened(l.t.Context(), testlab.Bound))
		runs[w.name] = run
	}
	l.waitLeft()
	l.host = map[string]string{"host1": "host3", "host3": "host1"}[l.host]
	testlab.Must(l.t, l.Move(server, l.host))
	l.serve()
	for _, w := range ways {
		result, err := runs[w.name].Stop() // each must answer once more
		testlab.Must(l.t, err)
		late := 0
		for _, answer := range result.Late {
			if answer.Took > 5*time.Second {
				late++
			}
		}
		l.t.Logf("move %d to %s, %s: of %d connections %d broke, %d answers took more than 5 s, the slowest %s",
			number, l.host, w.name, result.Opened, result.Broken, late, result.Slowest.Round(time.Millisecond))
		if result.Broken > 0 {
			l.t.Errorf("%+v", result.Breaks)
		}
	}
}

// waitLeft waits until all connections have left the muxes that may.
func (l *lab) waitLeft() {
	l.t.Helper()
	testlab.Must(l.t, netlab.Poll(l.t.Context(), 2*testlab.Bound, func() error {
		text, err := l.Run("host2", "curl", "--silent", "--fail", "http://127.0.0.1:7412/metrics")
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(text, "weir_agent_fastpath_connections{state=\"send\"} ")
		number, _, _ := strings.Cut(rest, "\n")
		if left, err := strconv.Atoi(number); err != nil || left < 2*streams {
			return fmt.Errorf("%q of %d connections have left", number, 2*streams)
		}
		return nil
	}))
}
