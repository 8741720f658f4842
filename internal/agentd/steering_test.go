package agentd

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/wire"
)

// The data plane has the VIPs that switches hold as the manager's messages lead to them; one that can't follow is refused,
// and changes nothing.
func TestSteeringFollowsTheManager(t *testing.T) {
	datapath := newFakeDatapath()
	tables, err := newTables(Config{Datapath: datapath, Workloads: newFakeWorkloads(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	vip := netip.MustParseAddr("203.0.113.10")
	key := model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: 80}
	has := func(what string, buckets ...model.Slot) {
		t.Helper()
		if len(datapath.steered) != 1 || len(datapath.steered[0].Endpoints) != 1 {
			t.Fatalf("%s: steers %+v", what, datapath.steered)
		}
		for i, slot := range buckets {
			if got, _ := datapath.steered[0].Endpoints[0].Choice(uint32(i)); got != slot {
				t.Errorf("%s: bucket %d is of %d, not %d", what, i, got, slot)
			}
		}
	}
	step := func(u wire.HostUpdate) error {
		if err := tables.steer(u); err != nil {
			return err
		}
		tables.apply(u)
		return nil
	}
	whole := steering.EndpointChange{Endpoint: steering.Endpoint{Key: key, Buckets: []model.Slot{1, 2}, Cookies: model.CookiesOn}}
	change := func(e steering.EndpointChange) steering.Update {
		return steering.Update{Changed: []steering.Change{{Address: vip, KeepsSources: true, Endpoints: []steering.EndpointChange{e}}}}
	}
	moves := func(bucket uint32) steering.Update {
		return change(steering.EndpointChange{
			Endpoint:      steering.Endpoint{Key: key, Cookies: model.CookiesOn},
			KeepsBackends: true, KeepsBuckets: true, Moves: []steering.Move{{Bucket: bucket, Slot: 3}},
		})
	}
	if err := step(wire.HostUpdate{Generation: 5, Snapshot: true, Steering: change(whole)}); err != nil {
		t.Fatal(err)
	}
	has("a snapshot", 1, 2)
	if err := step(wire.HostUpdate{Generation: 6, Steering: moves(1)}); err != nil {
		t.Fatal(err)
	}
	has("a bucket moves", 1, 3)
	if err := step(wire.HostUpdate{Generation: 7, Steering: moves(2)}); err == nil {
		t.Error("a bucket moves that is not there")
	}
	has("refused", 1, 3)
	datapath.steered = nil
	if err := step(wire.HostUpdate{Generation: 8, Backends: []model.HostBackend{unchecked(1)}}); err != nil || datapath.steered != nil {
		t.Errorf("a change of others is written: %v, %v", datapath.steered, err)
	}
	datapath.steered = []steering.VIP{{Address: vip}}
	if err := step(wire.HostUpdate{Generation: 9, Snapshot: true}); err != nil || len(datapath.steered) != 0 {
		t.Errorf("after a snapshot without them steers %v: %v", datapath.steered, err)
	}
}

// What is refused of rules does not stop what switches bring, and the other way round; the generation runs once both do.
func TestRefusedPartsDoNotStopOthers(t *testing.T) {
	datapath := newFakeDatapath()
	tables, err := newTables(Config{Datapath: datapath, Workloads: newFakeWorkloads(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	step := func(u wire.HostUpdate) error {
		if err := tables.steer(u); err != nil {
			t.Fatal(err)
		}
		tables.apply(u)
		return tables.refusal()
	}
	vip := steering.Update{Changed: []steering.Change{{Address: netip.MustParseAddr("203.0.113.10"), KeepsSources: true}}}
	datapath.room = 0
	if err := step(wire.HostUpdate{Generation: 5, Snapshot: true, Backends: []model.HostBackend{unchecked(1)}, Steering: vip}); err == nil || len(datapath.steered) != 1 {
		t.Fatalf("rules are refused with %v, and %d VIPs are steered", err, len(datapath.steered))
	}
	datapath.room, datapath.steers = 9, errors.New("set steering: no memory")
	if err := step(wire.HostUpdate{Generation: 6, Steering: vip}); err == nil || len(datapath.rules) != 1 {
		t.Fatalf("steering is refused with %v, and there are %d rules", err, len(datapath.rules))
	}
	if got := tables.standing(); got.running != 0 || got.rejection.GetReason() != datapath.steers.Error() {
		t.Errorf("runs %d, refuses %v", got.running, got.rejection)
	}
	datapath.steers = nil
	if tables.retry(); tables.refusal() != nil || tables.standing().running != 6 {
		t.Errorf("runs %d: %v", tables.standing().running, tables.refusal())
	}
}

// A VIP that there is no room to steer is reported, with its reason, as of the generation that runs for all others, until there
// is room. Of many a part is named.
func TestVIPsWithoutRoomAreReported(t *testing.T) {
	b := newBench(t, nil)
	refused := &steering.RefusedError{}
	for i := range steering.MaxRefusals + 1 {
		refused.VIPs = append(refused.VIPs, steering.Refusal{VIP: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), Reason: "needs 2 endpoints, has room for 1"})
	}
	steers := func(err error) {
		b.datapath.mu.Lock()
		defer b.datapath.mu.Unlock()
		b.datapath.steers = err
	}
	steers(refused)
	change := func(generation model.Generation, snapshot bool) {
		b.manager.updates <- wire.HostUpdate{Generation: generation, Snapshot: snapshot, Muxes: muxes, Steering: steering.Update{
			Changed: []steering.Change{{Address: netip.MustParseAddr("203.0.113.0"), KeepsSources: true, Ping: generation%2 == 0}},
		}}
	}
	change(5, true)
	report := b.manager.await(t, "generation 5", runs(5))
	s := report.GetStatus()
	if list := s.GetSteeringRefused(); len(list) != steering.MaxRefusals || !s.GetSteeringRefusedMore() || list[1].GetVip() != "203.0.113.1" ||
		list[1].GetReason() != "needs 2 endpoints, has room for 1" || report.GetRejection() != nil {
		t.Errorf("reports %v", report)
	}
	steers(nil)
	change(6, false)
	report = b.manager.await(t, "generation 6", runs(6))
	if len(report.GetStatus().GetSteeringRefused()) > 0 || report.GetStatus().GetSteeringRefusedMore() {
		t.Errorf("reports %v", report)
	}
}
