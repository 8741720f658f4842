package muxd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
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
