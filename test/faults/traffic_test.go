package faults

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
)

// traffic is what clients of the data plane do while the control plane breaks.
type traffic struct {
	streams  *netload.Streams
	requests *netload.Load
	outward  []*netload.Streams // of workloads
	bursts   *bursts            // likewise
}

// longest is longer than any scenario.
const longest = 20 * time.Minute

func (w *world) startTraffic(t *testing.T) *traffic {
	t.Helper()
	streams, err := netload.StartStreams(t.Context(), w, holder, stream.Config{
		Network: stream.TCP, Target: target(steadyVIP), Streams: 60, Interval: 500 * time.Millisecond,
		Size: 256, Patience: 15 * time.Second,
	})
	must(t, err)
	requests, err := netload.StartLoad(t.Context(), w, requester, load.Config{
		URL: "http://" + target(checkedVIP).String() + "/", Duration: longest, Rate: 20, Timeout: 10 * time.Second,
	})
	must(t, err)
	must(t, streams.WaitOpened(t.Context(), bound))
	return &traffic{streams: streams, requests: requests, outward: w.heldOutside(t), bursts: w.startBursts(t)}
}

func target(vip string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addresses[vip]), 80)
}

// unbroken ends the traffic and holds that no connection broke and no new one of clients failed. Workloads' new ones may
// find no port while nobody leads.
func (c *traffic) unbroken(t *testing.T) {
	t.Helper()
	opened, err := c.bursts.stop()
	must(t, err)
	for _, s := range c.outward {
		held, err := s.Stop()
		must(t, err)
		t.Logf("%d connections to outside stayed, with %d blocks, the slowest in %v; %d others came and went",
			held.Opened, held.Blocks, held.Slowest.Round(time.Millisecond), opened)
		if held.Broken > 0 || held.Opened == 0 {
			t.Errorf("%d of %d connections to outside broke: %+v", held.Broken, held.Opened, held.Breaks)
		}
	}
	held, err := c.streams.Stop()
	must(t, err)
	made, err := c.requests.Stop()
	must(t, err)
	t.Logf("%d connections stayed, with %d blocks, the slowest in %v; %d new ones, the slowest in %v",
		held.Opened, held.Blocks, held.Slowest.Round(time.Millisecond), made.Requests, made.Slowest.Round(time.Millisecond))
	if held.Broken > 0 {
		t.Errorf("%d of %d connections broke, the first: %+v", held.Broken, held.Opened, held.Breaks[0])
	}
	if made.Failed > 0 || made.Requests == 0 {
		t.Errorf("%d of %d new connections failed: %+v", made.Failed, made.Requests, made.Failures)
	}
}
