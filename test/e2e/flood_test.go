package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/testkit/flood"
	"github.com/weirlb/weir/internal/testkit/netlab"
	"github.com/weirlb/weir/internal/testkit/stream"
)

const (
	attacker  = "client5"
	floodTime = 30 * time.Second
)

// One tenant's VIP is flooded by spoofed SYNs, at the full speed of one core. Another's established
// connections last, its new ones succeed, and the muxes' tables do not grow.
func (l *churnLab) testFlood(t *testing.T) {
	target, other := l.serve(t), l.serve(t)
	var targets []netip.AddrPort
	for _, vip := range target.vips {
		targets = append(targets, netip.AddrPortFrom(vip, 80))
	}
	before := l.memory(t)
	c := l.gatherSome(t, modern, other, stream.TCP, longLived/4, newPerSecond/4)
	r, err := l.Flood(attacker, flood.Config{Targets: targets, Duration: floodTime})
	must(t, err)
	rate := float64(r.Packets) / r.Took.Seconds()
	t.Logf("%d SYNs of spoofed sources in %v: %.0f a second", r.Packets, r.Took, rate)
	if rate < 10_000 {
		t.Errorf("only %.0f SYNs a second: that is no flood", rate)
	}
	c.unbroken(t)
	for mux, is := range l.memory(t) {
		if was := before[mux]; is > was {
			t.Errorf("the tables of %s take %d bytes, took %d before the flood", mux, is, was)
		}
	}
}

// memory is how many bytes the tables of each mux at work take.
func (l *churnLab) memory(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, n := range l.Of(netlab.Mux) {
		if len(l.Processes(n.Name)) == 0 {
			continue
		}
		for _, id := range mapIDs(t, programID(t, l.Lab, n.Name)) {
			table, err := ebpf.NewMapFromID(id)
			must(t, err)
			info, err := table.Info()
			must(t, err)
			must(t, table.Close())
			bytes, known := info.Memlock()
			if !known {
				t.Fatalf("the kernel does not tell how much memory map %d takes", id)
			}
			all[n.Name] += bytes
		}
	}
	return all
}
