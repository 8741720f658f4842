package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
)

// kill ends a program without a word.
func (l *snatLab) kill(node, program string) {
	l.t.Helper()
	p, err := l.Process(node, program)
	must(l.t, err)
	must(l.t, p.Stop(unix.SIGKILL, bound))
}

// leader is the manager that leads.
func (l *snatLab) leader() (name string) {
	l.t.Helper()
	must(l.t, netlab.Poll(l.t.Context(), bound, func() error {
		out, err := l.Weir("get", "managers", "-o", "json")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var managers []struct {
			Name   string
			Leader bool
		}
		if err := json.Unmarshal([]byte(out), &managers); err != nil {
			return err
		}
		for _, m := range managers {
			if m.Leader {
				name = m.Name
				return nil
			}
		}
		return errors.New("nobody leads")
	}))
	return name
}

// holds opens connections and flows from a workload to the server outside.
func (l *snatLab) holds(family snatFamily, network stream.Network, streams int) *netload.Streams {
	l.t.Helper()
	s, err := netload.StartStreams(l.t.Context(), l, "host1-w1", stream.Config{
		Network: network, Target: netip.AddrPortFrom(family.of(l.node(outside)), netlab.EchoPort), Streams: streams,
		Interval: 200 * time.Millisecond, Patience: 40 * time.Second,
	})
	must(l.t, err)
	return s
}

// TestOutboundConnectionsSurvive holds connections and flows from workloads to a server outside, while a mux
// dies, the leader of three managers is killed, and an agent starts anew. Others are opened meanwhile, which need
// ports that only a new leader can give.
func TestOutboundConnectionsSurvive(t *testing.T) {
	t.Parallel()
	lab := newSNATLab(t, 3, "preallocate: 64\n    exhausted: drop")
	const streams, late = 40, 100
	holding := map[string]*netload.Streams{}
	for i, family := range snatFamilies {
		for _, network := range []stream.Network{stream.TCP, stream.UDP} {
			s := lab.holds(family, network, streams)
			must(t, s.WaitOpened(t.Context(), 2*bound))
			holding[string(network)+[]string{"4", "6"}[i]] = s
		}
	}
	short, err := netload.StartLoad(t.Context(), lab, "host1-w1", load.Config{
		URL: url(lab.node(outside).IPv4, netlab.EchoPort, "/"), Duration: 10 * time.Minute, Rate: 20, Timeout: 30 * time.Second,
	})
	must(t, err)

	must(t, lab.Crash("mux2"))
	leader := lab.leader()
	lab.kill(leader, "weir-manager")
	for i, family := range snatFamilies {
		holding["late tcp"+[]string{"4", "6"}[i]] = lab.holds(family, stream.TCP, late)
	}
	lab.kill("host1", "weir-agent")
	_, err = lab.Restart("host1", "weir-agent")
	must(t, err)
	for name, s := range holding {
		if err := s.WaitOpened(t.Context(), 2*bound); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	lab.givesNothingTwice()
	_, err = lab.Restart(leader, "weir-manager")
	must(t, err)
	must(t, lab.Revive("mux2"))
	must(t, lab.WaitReady(t.Context()))

	for name, s := range holding {
		r, err := s.Stop()
		must(t, err)
		if r.Opened == 0 || r.Broken != 0 {
			t.Errorf("%s: %d streams opened, %d broke: %+v", name, r.Opened, r.Broken, r.Breaks)
		}
		t.Logf("%s: %d streams, %d blocks answered, %d lost, slowest %v", name, r.Opened, r.Blocks, r.Lost, r.Slowest)
	}
	r, err := short.Stop()
	must(t, err)
	if r.Failed > 0 {
		t.Errorf("%d of %d new connections failed: %+v", r.Failed, r.Requests, r.Failures)
	}
	t.Logf("%d new connections, slowest %v", r.Requests, r.Slowest)
	lab.givesNothingTwice()
}

// givesNothingTwice looks at who has which ports, and at what the auditor has found.
func (l *snatLab) givesNothingTwice() {
	l.t.Helper()
	for i := range snatFamilies {
		out, err := l.Weir("snat", fmt.Sprintf("crawler-%d", i), "-o", "json")
		must(l.t, err)
		var held struct {
			Workloads []struct {
				Address             string
				Ranges, Quarantined []uint32
			}
		}
		must(l.t, json.Unmarshal([]byte(out), &held))
		owners := map[uint32]string{}
		for _, w := range held.Workloads {
			for _, r := range slices.Concat(w.Ranges, w.Quarantined) {
				if other, taken := owners[r]; taken {
					l.t.Errorf("range %d is of %s and of %s", r, other, w.Address)
				}
				owners[r] = w.Address
			}
		}
		if len(owners) < 2*8 {
			l.t.Errorf("workloads have %d ranges: fewer than they had from the beginning", len(owners))
		}
	}
	out, err := l.Weir("get", "events")
	must(l.t, err)
	if strings.Contains(out, "PortsDiffer") || strings.Contains(out, "PortsMended") {
		l.t.Errorf("the auditor found differences:\n%s", out)
	}
}
