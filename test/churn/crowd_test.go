package churn

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const clock = "15:04:05.000" // of what happened, to be compared with logs

// crowd is what clients do during a scenario: streams to both VIPs of a service, and new connections.
type crowd struct {
	size    int // streams to each VIP
	streams map[netip.Addr]*netload.Streams
	new     map[netip.Addr]*netload.Load
}

// gather gathers as many as the scenarios ask for.
func (l *churnLab) gather(t *testing.T, client string, s *service, network stream.Network) *crowd {
	t.Helper()
	return l.gatherSome(t, client, s, network, longLived, newPerSecond)
}

func (l *churnLab) gatherSome(t *testing.T, client string, s *service, network stream.Network, size, rate int) *crowd {
	t.Helper()
	c := &crowd{size: size, streams: map[netip.Addr]*netload.Streams{}, new: map[netip.Addr]*netload.Load{}}
	for _, vip := range s.vips {
		streams, err := netload.StartStreams(t.Context(), l, client, stream.Config{
			Network: network, Target: netip.AddrPortFrom(vip, 80), Streams: size,
		})
		testlab.Must(t, err)
		c.streams[vip] = streams
	}
	for _, streams := range c.streams {
		testlab.Must(t, streams.WaitOpened(t.Context(), 2*bound))
	}
	for _, vip := range s.vips {
		if rate == 0 || network != stream.TCP { // flows are all alike
			continue
		}
		run, err := netload.StartLoad(t.Context(), l, client, load.Config{
			URL: testlab.URL(vip), Rate: rate, Duration: time.Hour, Timeout: 15 * time.Second,
		})
		testlab.Must(t, err)
		c.new[vip] = run
	}
	return c
}

// unbroken ends the crowd and holds that nobody noticed anything.
func (c *crowd) unbroken(t *testing.T) {
	t.Helper()
	c.unbrokenBut(t, "")
}

// unbrokenBut is unbroken, but for the streams of a workload that was killed: all of them broke.
func (c *crowd) unbrokenBut(t *testing.T, killed string) {
	t.Helper()
	for vip, run := range c.new {
		r, err := run.Stop()
		testlab.Must(t, err)
		t.Logf("%s: %d new connections, %d failed, slowest %v", vip, r.Requests, r.Failed, r.Slowest)
		reasons := map[string]int{}
		for _, f := range r.Failures {
			_, reason, _ := strings.Cut(f.Error, ": ")
			reasons[reason]++
		}
		if r.Failed > 0 {
			t.Errorf("%s: %d of %d new connections failed: %v", vip, r.Failed, r.Requests, reasons)
			for _, f := range r.Failures[:min(10, len(r.Failures))] {
				t.Logf("%s: begun at %s: %s", vip, f.Started.Format(clock), f.Error)
			}
		}
	}
	for vip, streams := range c.streams {
		r, err := streams.Stop()
		testlab.Must(t, err)
		t.Logf("%s: %d streams, %d broken; %d blocks answered, slowest %v, %d lost", vip, r.Opened, r.Broken, r.Blocks, r.Slowest, r.Lost)
		if r.Opened != c.size {
			t.Errorf("%s: only %d of %d streams opened", vip, r.Opened, c.size)
		}
		c.judge(t, vip, r, killed)
	}
}

func (c *crowd) judge(t *testing.T, vip netip.Addr, r stream.Result, killed string) {
	t.Helper()
	reasons, due := map[string]int{}, 0
	var wrong []stream.Break
	for _, b := range r.Breaks {
		if killed != "" && b.Backend == killed {
			due++
			continue
		}
		reasons[b.Reason]++
		wrong = append(wrong, b)
	}
	if len(wrong) > 0 {
		t.Errorf("%s: %d of %d streams broke: %v", vip, len(wrong), r.Opened, reasons)
		for _, b := range wrong[:min(10, len(wrong))] {
			t.Logf("%s: %+v", vip, b)
		}
	}
	if killed != "" && (due == 0 || due != r.Backends[killed]) {
		t.Errorf("%s: %d of the %d streams of %s broke: was it killed at all?", vip, due, r.Backends[killed], killed)
	}
}
