package muxd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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

// A mux that answers ARP registers anew when its interface has another MAC: other muxes know it by that.
func TestAMuxRegistersItsMAC(t *testing.T) {
	b := newBench(t, false, func(c *Config) {
		c.NeighborPrefixes, c.Leases = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, noLeases{}
		c.Settings.MAC = [6]byte{2, 0, 0, 0, 0, 1}
	})
	open := func() string {
		_, _ = b.mux.open(t.Context()) // the manager is away
		return b.manager.opened[len(b.manager.opened)-1].GetMac()
	}
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
