package muxd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/netlink"
)

func TestCleanStopWithdrawsThenUnloads(t *testing.T) {
	b := newBench(t, true, nil)
	b.take()
	ctx, stop := context.WithCancel(context.Background())
	end := b.run(ctx)
	stop()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	b.hops.changed(resolved) // late news announce nothing any more
	b.did("announce []", "sessions closed", "unload")
	if b.discarded != "[]" {
		t.Errorf("the kernel still discards %s", b.discarded)
	}
}

func TestHandOverKeepsForwarding(t *testing.T) {
	b := newBench(t, true, nil)
	b.take()
	handOver := make(chan os.Signal, 1)
	handOver <- syscall.SIGUSR2
	if err := b.mux.Run(context.Background(), handOver); err != nil {
		t.Fatal(err)
	}
	b.did("speaker hands over", "sessions closed", "close")
}

func TestFailureKeepsForwarding(t *testing.T) {
	b := newBench(t, true, nil)
	b.take()
	end := b.run(context.Background())
	b.speaker.broken <- errors.New("start bgp: out of sorts")
	if err := end(); err == nil || !strings.Contains(err.Error(), "out of sorts") {
		t.Errorf("error %v", err)
	}
	b.did("speaker hands over", "close")
}

func TestReport(t *testing.T) {
	b := newBench(t, true, nil)
	b.mux.state.Reject(9, errors.New("endpoints[0].buckets: must be a power of two, are 3"))
	b.hops.changed(netlink.State{Link: "interface eth0 is down"})
	ctx, stop := context.WithCancel(context.Background())
	end := b.run(ctx)
	r := <-b.manager.reports
	stop()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if r.GetName() != "mux-1" || r.GetGeneration() != 7 || r.GetRejection().GetGeneration() != 9 ||
		!strings.Contains(r.GetRejection().GetReason(), "power of two") {
		t.Errorf("report %v", r)
	}
	s := r.GetStatus()
	if s.GetXdpMode() != "native" || s.GetInterface() != "eth0" || s.GetWarnings()[0] != "interface eth0 is down" ||
		s.GetPeers()[0].GetLastError() != "no answer" || s.GetVerdicts()[0].GetName() != "forward_syn" ||
		s.GetEndpoints()[0].GetBytes() != 180 {
		t.Errorf("status %v", s)
	}
	if f := s.GetFlows(); len(f) != 1 || f[0].GetTenant() != "acme" || f[0].GetUsed() != 5 || f[0].GetLimit() != 8 {
		t.Errorf("tenants have flows %v", f)
	}
}

func TestGenericXDPIsAWarning(t *testing.T) {
	b := newBench(t, false, nil)
	if got := b.mux.warnings(); len(got) > 0 {
		t.Errorf("warnings %q in native mode", got)
	}
	b.datapath.mode = "generic"
	if got := fmt.Sprint(b.mux.warnings()); !strings.Contains(got, "XDP on eth0 is generic") {
		t.Errorf("warnings %s, want one of the mode", got)
	}
}

func TestTasksAloneChangeNoTable(t *testing.T) {
	alone := &weirv1.SyncMuxResponse{Generation: 5, Tasks: []*weirv1.NodeTask{{Id: 1}}}
	if !tasksAlone(alone) || tasksAlone(&weirv1.SyncMuxResponse{Generation: 5}) {
		t.Error("a message with tasks alone is not told from one that leads to a generation")
	}
	alone.Snapshot = true
	if tasksAlone(alone) {
		t.Error("a snapshot is taken for tasks alone")
	}
}

// A mux that is told what differs from another list than it has changes nothing, and asks for whole lists by a stream that
// begins: that is no answer, so hosts do not use the ports yet.
func TestAMuxAsksForWholeLists(t *testing.T) {
	b := newBench(t, false, nil)
	told := func(generation uint64, isSnapshot bool, snat *weirv1.MuxSNAT) error {
		snat.Vip, snat.Address, snat.Tunnel, snat.Written = "203.0.113.20", "10.1.0.2", "10.1.0.2", generation
		return b.mux.apply(t.Context(), &weirv1.SyncMuxResponse{
			Generation: generation, Snapshot: isSnapshot, HashKey: bytes.Repeat([]byte{1}, 40), Snat: []*weirv1.MuxSNAT{snat},
		})
	}
	for _, step := range []struct {
		opens, isSnapshot bool
		generation        uint64
		snat              *weirv1.MuxSNAT
		refused           bool
	}{
		{true, true, 5, &weirv1.MuxSNAT{Ranges: []uint32{100, 101}}, false},
		{false, false, 7, &weirv1.MuxSNAT{Delta: &weirv1.RangesDelta{After: 5, Added: []uint32{102}}}, false},
		{false, false, 8, &weirv1.MuxSNAT{Delta: &weirv1.RangesDelta{After: 6, Added: []uint32{103}}}, true},
		{true, true, 8, &weirv1.MuxSNAT{Ranges: []uint32{100, 101, 103}}, false},
		{true, false, 9, &weirv1.MuxSNAT{Delta: &weirv1.RangesDelta{After: 8, Added: []uint32{104}}}, true}, // a stream begins
	} {
		if step.opens && !b.openStream().GetSnatDeltas() {
			t.Error("it does not say that it takes deltas")
		}
		runs, _, _ := b.mux.state.Generations()
		err := told(step.generation, step.isSnapshot, step.snat)
		if step.refused != (err != nil) || step.refused && !strings.Contains(err.Error(), "snat[0].delta.after") {
			t.Errorf("generation %d: %v", step.generation, err)
		}
		if !step.refused {
			runs = model.Generation(step.generation)
		}
		if now, _, rejected := b.mux.state.Generations(); now != runs || rejected != nil {
			t.Errorf("after generation %d it runs %d and rejected %v", step.generation, now, rejected)
		}
	}
}

// openStream opens a stream of the mux, and is what it asks for.
func (b *bench) openStream() *weirv1.SyncMuxRequest {
	_, _ = b.mux.open(b.t.Context()) // the manager is away
	return b.manager.opened[len(b.manager.opened)-1]
}

// A mux that answers ARP registers anew when its interface has another MAC: other muxes know it by that.
func TestAMuxRegistersItsMAC(t *testing.T) {
	b := newBench(t, false, func(c *Config) {
		c.NeighborPrefixes, c.Leases = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, noLeases{}
		c.Settings.MAC = [6]byte{2, 0, 0, 0, 0, 1}
	})
	open := func() string { return b.openStream().GetMac() }
	if mac := open(); mac != "02:00:00:00:00:01" {
		t.Errorf("it registers %s", mac)
	}
	b.hops.changed(netlink.State{MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	if b.manager.stream.Err() != nil {
		t.Error("the stream ends although the MAC is the same")
	}
	b.hops.changed(netlink.State{MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 2}})
	if b.manager.stream.Err() == nil {
		t.Error("with another MAC the stream goes on")
	}
	if mac := open(); mac != "02:00:00:00:00:02" {
		t.Errorf("it registers %s", mac)
	}
}

// noLeases are those of a manager that is away.
type noLeases struct{}

func (noLeases) RenewNeighbors(context.Context, *weirv1.RenewNeighborsRequest) (*weirv1.RenewNeighborsResponse, error) {
	return nil, errors.New("manager is away")
}
func (noLeases) Leave() {}
