package agent

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// No run of a program looks at more rows than a piece; all rows are looked at, also while others are made and go.
func TestSNATIsSweptInPieces(t *testing.T) {
	r := snatRig(t)
	first := func(port, n int) pkt.Packet {
		return pkt.UDP(own(native4, port), fmt.Sprintf("198.51.%d.%d:53", n/250, 1+n%250))
	}
	program := r.program("to_uplink")
	begin := func(p pkt.Packet) {
		if _, err := program.Run(ebpfOptions(p.Frame(), make([]byte, 256))); err != nil {
			t.Error(err)
		}
	}
	const flows = 5 * 1024 / 2
	for n := range flows {
		begin(first(2000, n))
	}
	sessionReport, err := r.SweepSNAT(session.Now(), session.DefaultTimeouts())
	check(t, err)
	if sessionReport.Live != flows || sessionReport.Ended != 0 {
		t.Errorf("of %d flows that live the sweep finds %d, and ends %d", flows, sessionReport.Live, sessionReport.Ended)
	}

	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	check(t, err)
	defer stats.Close()
	before, err := r.objects.SnatSweep.Stats()
	check(t, err)
	stop := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for n := 0; ; n = (n + 1) % 2000 {
			select {
			case <-stop:
				return
			default:
			}
			p := first(3000, 10_000+n)
			begin(p)
			_ = r.EndFlow(sharer{}.flow(model.UDP, p)) // the sweep may have
		}
	})
	r.sweepAll()
	close(stop)
	churn.Wait()
	after, err := r.objects.SnatSweep.Stats()
	check(t, err)
	if runs := after.RunCount - before.RunCount; runs <= 2*flows/1024 { // two tables have a row by flow at least
		t.Errorf("%d rows of four tables were swept by %d runs", flows, runs)
	}
	left, err := r.Flows()
	check(t, err)
	for _, flow := range left {
		if flow.Workload.Port() == 2000 {
			t.Fatalf("the sweep has missed %s", flow)
		}
	}
	r.wantCounts()
	r.sweepAll()
	r.wantNothing()
}
