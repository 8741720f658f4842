package e2e

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/testkit/load"
	"github.com/weirlb/weir/internal/testkit/netlab"
	"github.com/weirlb/weir/internal/testkit/stream"
)

// kill ends a program without a word.
func (l *snatLab) kill(node, program string) {
	l.t.Helper()
	p, err := l.Process(node, program)
	must(l.t, err)
	must(l.t, p.Stop(unix.SIGKILL, bound))
}

// TestOutboundConnectionsSurvive holds connections and flows from workloads to a server outside, while a mux
// dies, the manager dies and comes back, and an agent starts anew. New connections are made meanwhile.
func TestOutboundConnectionsSurvive(t *testing.T) {
	lab := newSNATLab(t)
	const streams = 40
	holding := map[string]*netlab.Streams{}
	for i, family := range snatFamilies {
		target := netip.AddrPortFrom(family.of(lab.node(outside)), netlab.EchoPort)
		for _, network := range []stream.Network{stream.TCP, stream.UDP} {
			s, err := lab.StartStreams(t.Context(), "host1-w1", stream.Config{
				Network: network, Target: target, Streams: streams, Interval: 200 * time.Millisecond, Patience: 40 * time.Second,
			})
			must(t, err)
			must(t, s.WaitOpened(t.Context(), 2*bound))
			holding[string(network)+[]string{"4", "6"}[i]] = s
		}
	}
	short, err := lab.StartLoad(t.Context(), "host1-w1", load.Config{
		URL: url(lab.node(outside).IPv4, netlab.EchoPort, "/"), Duration: 10 * time.Minute, Rate: 20, Timeout: 30 * time.Second,
	})
	must(t, err)

	must(t, lab.Crash("mux2"))
	lab.kill("manager", "weir-manager")
	lab.kill("host1", "weir-agent")
	_, err = lab.Restart("host1", "weir-agent")
	must(t, err)
	_, err = lab.Restart("manager", "weir-manager")
	must(t, err)
	must(t, lab.Revive("mux2"))
	must(t, lab.WaitReady(t.Context()))

	for name, s := range holding {
		r, err := s.Stop()
		must(t, err)
		if r.Opened != streams || r.Broken != 0 {
			t.Errorf("%s: %d of %d streams opened, %d broke: %+v", name, r.Opened, streams, r.Broken, r.Breaks)
		}
		t.Logf("%s: %d blocks answered, %d lost, slowest %v", name, r.Blocks, r.Lost, r.Slowest)
	}
	r, err := short.Stop()
	must(t, err)
	if r.Failed > 0 {
		t.Errorf("%d of %d new connections failed: %+v", r.Failed, r.Requests, r.Failures)
	}
	t.Logf("%d new connections, slowest %v", r.Requests, r.Slowest)
}
