// Package churn holds thousands of connections and flows in a lab of its own while muxes, hosts and backends come and go,
// are flooded and replaced. None may break, so it has the machine to itself.
package churn

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// Muxes and backends come and go while thousands of connections are open, and none of them breaks.
//
//	                                 ┌── mux1 .. mux4     mux5 joins
//	client1  timestamps ── router ───┤
//	client2  none                    └── host1 .. host3   host4 joins
//	                                       └── w1 .. w4: odd ones behind interfaces, even ones native
func TestChurn(t *testing.T) {
	l := newChurnLab(t)
	t.Run("paths", l.testPaths)
	t.Run("flood", l.testFlood)
	t.Run("upgrade", l.testUpgrade)
	for _, scenario := range []struct {
		name    string
		client  string
		network stream.Network
		spec    string   // of the VIPs
		victim  string   // none: nothing happens
		layers  []string // verdicts of the layers that must have had a part
	}{
		{"nothing happens", modern, stream.TCP, "", "", []string{"forward_syn", "forward_cookie"}},
		{"connections", modern, stream.TCP, "", "mux1", []string{"forward_syn", "forward_cookie"}},
		{"connections without timestamps", noTimestamp, stream.TCP, "", "mux2", []string{"forward_flow", "forward_chained"}},
		{"connections by flow table", modern, stream.TCP, "  consistency: flow-table\n", "mux4", []string{"forward_flow", "forward_chained"}},
		// By the client without flows so far: a host takes no flow from one that another VIP's ended one has
		// the ports of, for as long as that is remembered.
		{"flows", noTimestamp, stream.UDP, "", "mux3", []string{"forward_flow", "forward_chained"}},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			before := l.counts(t)
			s := l.serveWith(t, func(s *service) { s.spec = scenario.spec })
			c := l.gather(t, scenario.client, s, scenario.network)
			if scenario.victim != "" {
				l.upheaval(t, s, scenario.victim)
			}
			testlab.After(t, settle)
			c.unbroken(t)
			l.since(t, before, map[netlab.Kind][]string{netlab.Mux: scenario.layers})
		})
	}
	t.Run("a backend is killed", l.testKilledBackend)
	t.Run("moves end", l.testMovesEnd)
}

// A backend that is killed takes its own connections along, and no other.
func (l *churnLab) testKilledBackend(t *testing.T) {
	const killed = "host2-w3"
	s := l.serveWith(t, func(s *service) { s.check = "      healthCheck: {tcp: {}, interval: 1s}\n" })
	c := l.gatherSome(t, modern, s, stream.TCP, longLived/4, 0)
	server, err := l.Process(killed, "weir")
	testlab.Must(t, err)
	testlab.Must(t, server.Stop(unix.SIGKILL, bound))
	testlab.Must(t, netlab.Poll(t.Context(), bound, func() error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		return s.without(status, l.Lab, killed)
	}))
	testlab.After(t, settle)
	c.unbrokenBut(t, killed)
	_, err = l.Restart(killed, "weir")
	testlab.Must(t, err)
}

// without says that a service still has buckets for a workload.
func (s *service) without(status netlab.Status, lab *netlab.Lab, workload string) error {
	n, err := lab.Node(workload)
	if err != nil {
		return err
	}
	for _, vip := range status.VIPs {
		for _, b := range vip.Backends() {
			own := b.Address == n.IPv4.String() || b.Address == n.IPv6.String()
			if strings.HasPrefix(vip.Metadata.Name, s.name) && own && b.Buckets > 0 {
				return fmt.Errorf("%s still has %d buckets of %s", workload, b.Buckets, vip.Metadata.Name)
			}
		}
	}
	return nil
}

// settle is how long streams are held behind the last step: each has some blocks more.
const settle = 5 * time.Second
