package churn

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	attacker  = "client5"
	floodTime = 30 * time.Second
	flowLimit = 2000 // of the VIP that is flooded, for each mux
)

// One tenant's VIP is flooded by spoofed SYNs, then by datagrams, at the full speed of one core. Another's
// established connections and flows last, its new ones succeed, and the muxes' tables keep within their
// bounds: a SYN takes no room at all, datagrams no more than the VIP's limit.
func (l *churnLab) testFlood(t *testing.T) {
	other := l.serve(t)
	target := l.serveWith(t, func(s *service) { s.spec = fmt.Sprintf("  flowLimit: %d\n", flowLimit) })
	config := flood.Config{Duration: floodTime}
	for _, vip := range target.vips {
		config.Targets = append(config.Targets, netip.AddrPortFrom(vip, 80))
	}
	memory := l.memory(t)
	connections := l.gatherSome(t, modern, other, stream.TCP, longLived/4, newPerSecond/4)
	flows := l.gatherSome(t, modern, other, stream.UDP, longLived/10, 0)

	remembered := l.remembered(t)
	l.flood(t, "SYNs", config)
	if most := l.remembered(t); most > remembered {
		t.Errorf("a mux remembers %d flows of a VIP, and remembered %d before the SYNs", most, remembered)
	}
	config.Kind, config.Duration = flood.UDP, floodTime/6
	l.flood(t, "datagrams", config)
	// A flow of which one datagram was seen is not trusted: half the limit is for those. Each core
	// may have been about to remember one more.
	if most, limit := l.remembered(t), flowLimit/2; most < limit*9/10 || most > limit+runtime.NumCPU() {
		t.Errorf("a mux remembers %d flows of a VIP, want the limit of %d", most, limit)
	}
	connections.unbroken(t)
	flows.unbroken(t)
	for mux, is := range l.memory(t) {
		if was := memory[mux]; is > was {
			t.Errorf("the tables of %s take %d bytes, took %d before the floods", mux, is, was)
		}
	}
}

func (l *churnLab) flood(t *testing.T, what string, config flood.Config) {
	t.Helper()
	r, err := netload.Flood(l, attacker, config)
	testlab.Must(t, err)
	t.Logf("%d %s of spoofed sources in %v: %.0f a second", r.Packets, what, r.Took, float64(r.Packets)/r.Took.Seconds())
	if r.Packets < 10*flowLimit {
		t.Errorf("only %d %s: that is no flood", r.Packets, what)
	}
}

// remembered is how many flows of one VIP a mux remembers untrusted: the most of all muxes and VIPs.
func (l *churnLab) remembered(t *testing.T) int {
	t.Helper()
	most := uint64(0)
	for _, n := range l.atWork(netlab.Mux) {
		l.tables(t, n.Name, func(table *ebpf.Map, info *ebpf.MapInfo) {
			if info.Name != "vip_usage" {
				return
			}
			var vip uint32
			var usage struct { // as struct flow_usage
				Cells                   [2]uint64 // untrusted, trusted
				Own, Limit, Tenant, Pad uint32
			}
			rows := table.Iterate()
			for rows.Next(&vip, &usage) {
				most = max(most, usage.Cells[0])
			}
			testlab.Must(t, rows.Err())
		})
	}
	return int(most)
}

// memory is how many bytes the tables of each mux at work take.
func (l *churnLab) memory(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, n := range l.atWork(netlab.Mux) {
		l.tables(t, n.Name, func(_ *ebpf.Map, info *ebpf.MapInfo) {
			bytes, known := info.Memlock()
			if !known && info.Type != ebpf.LPMTrie { // one that is empty takes none
				t.Fatalf("the kernel does not tell how much memory the map %s takes", info.Name)
			}
			all[n.Name] += bytes
		})
	}
	return all
}

// tables goes through the maps of a mux's program.
func (l *churnLab) tables(t *testing.T, mux string, each func(*ebpf.Map, *ebpf.MapInfo)) {
	t.Helper()
	for _, id := range testlab.MapIDs(t, testlab.ProgramID(t, l.Lab, mux)) {
		table, err := ebpf.NewMapFromID(id)
		testlab.Must(t, err)
		info, err := table.Info()
		testlab.Must(t, err)
		each(table, info)
		testlab.Must(t, table.Close())
	}
}
