package agentd

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/wire"
)

var muxes = []netip.Prefix{netip.MustParsePrefix("10.1.0.1/32"), netip.MustParsePrefix("10.1.0.2/32")}

func snapshot(g model.Generation, backends ...model.HostBackend) wire.HostUpdate {
	return wire.HostUpdate{Generation: g, Snapshot: true, Backends: backends, Muxes: muxes}
}

func runs(g uint64) func(*weirv1.ReportHostRequest) bool {
	return func(r *weirv1.ReportHostRequest) bool { return r.GetGeneration() == g && r.GetRejection() == nil }
}

func unchecked(n int) model.HostBackend {
	b := backend(n)
	b.HealthCheck = nil
	return b
}

func TestSnapshotAndDeltasAreAppliedAndAcknowledged(t *testing.T) {
	b := newBench(t, func(c *Config, _ *bench) { c.Native = []netip.Prefix{netip.MustParsePrefix("10.3.0.2/32")} })
	b.workloads.move(unchecked(1).Backend.Addr(), 7)
	b.workloads.move(unchecked(2).Backend.Addr(), 0)
	if hello := <-b.manager.hello; hello.GetName() != "host1" || hello.GetVersion() != "test" || hello.GetAddresses()[0] != "10.2.0.1" {
		t.Errorf("registered as %v", hello)
	}
	eventually(t, "the first look for workloads", func() bool { return b.datapath.took() == "workloads 0" })
	b.manager.updates <- snapshot(5, unchecked(1))
	report := b.manager.await(t, "generation 5", runs(5))
	if got, want := b.datapath.took(), "muxes 2, workloads 1, replace 1, generation 5"; got != want {
		t.Errorf("the data plane was told %q, want %q", got, want)
	}
	if s := report.GetStatus(); s.GetUplink() != "eth0" || s.GetSessions() != 42 || len(s.GetVerdicts()) != 2 || s.GetVerdicts()[0].GetPackets() != 3 {
		t.Errorf("status is %v", s)
	}
	b.manager.updates <- wire.HostUpdate{Generation: 6, Backends: []model.HostBackend{unchecked(2)}, Removed: []model.HostBackendKey{unchecked(1).Key()}, Muxes: muxes[:1]}
	b.manager.await(t, "generation 6", runs(6))
	if got, want := b.datapath.took(), "muxes 1, workloads 1, apply +1 -1, generation 6"; got != want {
		t.Errorf("the data plane was told %q, want %q", got, want)
	}
	b.manager.updates <- wire.HostUpdate{Generation: 7, Muxes: muxes[:1]}
	b.manager.await(t, "generation 7", runs(7))
	if got, want := b.datapath.took(), "generation 7"; got != want {
		t.Errorf("for what is none of its business the data plane was told %q, want %q", got, want)
	}
	if want := map[netip.Addr]int{unchecked(2).Backend.Addr(): 0}; !maps.Equal(b.datapath.live(), want) {
		t.Errorf("workloads are %v, want %v", b.datapath.live(), want)
	}
}

// The secrets of SYN cookies reach the data plane with every message, also when there are none any more.
func TestSYNSecretsReachTheDataPlane(t *testing.T) {
	b := newBench(t, nil)
	<-b.manager.hello
	for _, secrets := range [][]model.SYNSecret{{{ID: 7, Secret: [16]byte{1}}, {ID: 8, Secret: [16]byte{2}}}, nil} {
		update := snapshot(5)
		update.SYNSecrets = secrets
		b.manager.updates <- update
		eventually(t, "the secrets", func() bool { return slices.Equal(b.datapath.synSecrets(), secrets) })
	}
}

// What does not fit is refused with its reason, and made up for as soon as it fits.
func TestRefusedGenerationIsRejectedAndRetried(t *testing.T) {
	b := newBench(t, func(_ *Config, b *bench) { b.datapath.fit(1) })
	b.manager.updates <- snapshot(5, unchecked(1))
	b.manager.await(t, "generation 5", runs(5))
	b.manager.updates <- wire.HostUpdate{Generation: 6, Backends: []model.HostBackend{unchecked(2)}, Muxes: muxes}
	report := b.manager.await(t, "a rejection", func(r *weirv1.ReportHostRequest) bool { return r.GetRejection() != nil })
	if r := report.GetRejection(); r.GetGeneration() != 6 || r.GetReason() != "set rules: needs 2, has room for 1" || report.GetGeneration() != 5 {
		t.Errorf("runs %d, rejects %v", report.GetGeneration(), r)
	}
	b.datapath.took()
	b.manager.updates <- wire.HostUpdate{Generation: 7, Removed: []model.HostBackendKey{unchecked(1).Key()}, Muxes: muxes}
	b.manager.await(t, "generation 7", runs(7))
	if calls := b.datapath.took(); !strings.Contains(calls, "replace 1") {
		t.Errorf("after a refusal the data plane was told %q, want a whole replacement", calls)
	}
	b.manager.updates <- wire.HostUpdate{Generation: 8, Backends: []model.HostBackend{backend(0), backend(1)}, Muxes: muxes}
	b.manager.await(t, "a rejection of 8", func(r *weirv1.ReportHostRequest) bool { return r.GetRejection().GetGeneration() == 8 })
	b.datapath.fit(9)
	b.manager.await(t, "generation 8", runs(8))
}

// A message that makes no sense is refused whole; the next stream begins with a snapshot.
func TestUnreadableMessageBreaksTheStream(t *testing.T) {
	b := newBench(t, nil)
	b.manager.updates <- snapshot(5, unchecked(1))
	<-b.manager.hello
	b.manager.await(t, "generation 5", runs(5))
	wrong := unchecked(2)
	wrong.Backend = netip.AddrPortFrom(wrong.Backend.Addr(), 0)
	b.manager.updates <- wire.HostUpdate{Generation: 6, Backends: []model.HostBackend{wrong}, Muxes: muxes}
	report := b.manager.await(t, "a rejection", func(r *weirv1.ReportHostRequest) bool { return r.GetRejection().GetGeneration() == 6 })
	if reason := report.GetRejection().GetReason(); !strings.Contains(reason, "backends[0].port") {
		t.Errorf("reason %q does not name the field", reason)
	}
	<-b.manager.hello
	b.manager.updates <- snapshot(7, unchecked(2))
	b.manager.await(t, "generation 7", runs(7))
}

// A host that is told what differs from another list than it has asks for whole lists by a stream that begins.
func TestADeltaOfAnotherListBreaksTheStream(t *testing.T) {
	b := newBench(t, nil)
	b.manager.updates <- snapshot(5, unchecked(1))
	if !(<-b.manager.hello).GetSnatDeltas() {
		t.Error("it does not say that it takes deltas")
	}
	b.manager.await(t, "generation 5", runs(5))
	key := model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.3.1.11")}
	b.manager.updates <- wire.HostUpdate{
		Generation: 6, Muxes: muxes, SNAT: []model.HostSNAT{{Key: key, Tunnel: key.Address, Ranges: []model.Range{100, 101}, Written: 6}},
		SNATBefore: map[model.SNATKey]snat.List{key: {Written: 3, Ranges: []model.Range{100}}},
	}
	<-b.manager.hello
	b.manager.updates <- snapshot(7, unchecked(1))
	b.manager.await(t, "generation 7", func(r *weirv1.ReportHostRequest) bool {
		if r.GetRejection() != nil {
			t.Errorf("it rejects %v", r.GetRejection())
		}
		return r.GetGeneration() == 7
	})
}

func TestHealthIsToldOnChangeAndWholeOnEachStream(t *testing.T) {
	b := newBench(t, nil)
	checked := backend(1)
	checked.HealthCheck.Interval, checked.HealthCheck.Timeout = 20*time.Millisecond, 20*time.Millisecond
	tells := func(r *weirv1.ReportHostRequest) bool { return len(r.GetHealth()) > 0 }
	b.workloads.move(checked.Backend.Addr(), 7)
	b.manager.updates <- snapshot(5, checked)
	if got := healths(b.manager.await(t, "health", tells)); got != "10.3.0.1:8080 healthy" {
		t.Errorf("first told %q", got)
	}
	b.probes.answer("connect 10.3.0.1:8080: connection refused")
	if got := healths(b.manager.await(t, "health", tells)); got != "10.3.0.1:8080 unhealthy connect 10.3.0.1:8080: connection refused" {
		t.Errorf("then told %q", got)
	}
	quiet := b.manager.await(t, "a later report", func(*weirv1.ReportHostRequest) bool { return true })
	if tells(quiet) {
		t.Errorf("told %q again", healths(quiet))
	}
	b.manager.hangUp <- struct{}{}
	b.manager.updates <- snapshot(5, checked)
	if got := healths(b.manager.await(t, "health", tells)); got != "10.3.0.1:8080 unhealthy connect 10.3.0.1:8080: connection refused" {
		t.Errorf("on a new stream told %q", got)
	}
}

// Until the first snapshot a restarted agent changes nothing but where the workloads are.
func TestRestartKeepsWhatIsLive(t *testing.T) {
	old := unchecked(1)
	b := newBench(t, func(c *Config, b *bench) {
		c.Live = map[model.HostBackendKey]model.HostBackend{old.Key(): old}
		b.datapath.rules[old.Key()] = old.Backend
		b.datapath.generation = 5
		b.workloads.move(old.Backend.Addr(), 7)
	})
	<-b.manager.hello
	eventually(t, "the workload of before the restart", func() bool { return b.datapath.live()[old.Backend.Addr()] == 7 })
	b.workloads.move(old.Backend.Addr(), 9)
	b.workloads.changes <- struct{}{}
	eventually(t, "the moved workload", func() bool { return b.datapath.live()[old.Backend.Addr()] == 9 })
	if got := b.datapath.took(); got != "workloads 1, workloads 1" {
		t.Errorf("before the snapshot the data plane was told %q", got)
	}
	b.manager.updates <- snapshot(6, old)
	b.manager.await(t, "generation 6", runs(6))
}

func TestWarningsOfWorkloads(t *testing.T) {
	b := newBench(t, nil)
	warns := func(text string) func(*weirv1.ReportHostRequest) bool {
		return func(r *weirv1.ReportHostRequest) bool { return strings.Join(r.GetStatus().GetWarnings(), "; ") == text }
	}
	b.manager.updates <- snapshot(5, unchecked(1), unchecked(2))
	b.manager.await(t, "both missing", warns("backend 10.3.0.1 is not on this host; backend 10.3.0.2 is not on this host"))
	b.workloads.move(unchecked(1).Backend.Addr(), 7)
	b.workloads.move(unchecked(2).Backend.Addr(), 8)
	b.workloads.changes <- struct{}{}
	b.manager.await(t, "no warning", warns(""))

	b.datapath.breakDown(`find uplink "eth0": no such network interface`)
	b.workloads.changes <- struct{}{}
	b.manager.await(t, "a lost uplink", warns(`can't follow the host's interfaces, retrying: find uplink "eth0": no such network interface`))
	b.datapath.breakDown("")
	b.manager.await(t, "recovery without a change", warns(""))
}

// Silent sessions are looked for again and again, not only at the start.
func TestSilentSessionsAreKeptAlive(t *testing.T) {
	b := newBench(t, nil)
	eventually(t, "a few rounds", func() bool { return b.kept.Load() > 3 })
}
