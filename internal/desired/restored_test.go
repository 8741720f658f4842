package desired

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// restored is a State with a VIP as which workloads leave that live on host1, host1 and host2, and have ranges by the
// backup.
func restored(backup ...PortAllocation) (State, []model.SNATKey) {
	vip := model.VIP{
		Name: "crawler", Address: netip.MustParseAddr("203.0.113.20"), SNAT: &model.SNAT{MaxPorts: 4 * model.RangePorts},
	}
	var keys []model.SNATKey
	for i, host := range []string{"host1", "host1", "host2"} {
		address := netip.AddrFrom4([4]byte{10, 3, 1, byte(i + 1)})
		vip.SNAT.Workloads = append(vip.SNAT.Workloads, model.SNATWorkload{Address: address, Host: host})
		keys = append(keys, model.SNATKey{VIP: vip.Address, Address: address})
	}
	s := State{Restored: Restored{At: 1000}}
	s.PutVIP(vip)
	for i, h := range backup {
		s.PutPorts(keys[i], h)
	}
	return s, keys
}

func TestPortsAreTakenOver(t *testing.T) {
	now := time.Now()
	s, keys := restored(
		PortAllocation{Host: "host1", Ranges: []model.Range{10, 11}, Reclaim: []model.Range{10}, Quarantined: []Quarantined{{now, []model.Range{40, 41}}}},
		PortAllocation{Host: "host1", Ranges: []model.Range{20}},
		PortAllocation{Host: "host2", Ranges: []model.Range{30, 31}})
	unlisted := model.SNATKey{VIP: keys[0].VIP, Address: netip.MustParseAddr("10.3.1.99")}
	told := map[model.SNATKey][]ReportedPorts{
		keys[0]:  {{Host: "host1", Ranges: []model.Range{10, 40}}},                     // gave 11 back, got 40 which rested
		keys[1]:  {{Host: "host1", Ranges: []model.Range{10, 20, 30, 50, 51, 52, 53}}}, // claims 10 of another, got 30 of one that is away, more than it may
		keys[2]:  {{Host: "host1", Ranges: []model.Range{60}}},                         // lives on host2 by the backup
		unlisted: {{Host: "host2", Ranges: []model.Range{70}}},
	}
	next := s.RestorePorts(keys[0].VIP, told, now)
	quarantined := func(ranges ...model.Range) []Quarantined { return []Quarantined{{now, ranges}} }
	for key, want := range map[model.SNATKey]PortAllocation{
		keys[0]:  {Host: "host1", Ranges: []model.Range{10, 40}, Reclaim: []model.Range{10}, Quarantined: append(quarantined(11), quarantined(41)...)},
		keys[1]:  {Host: "host1", Ranges: []model.Range{20, 30, 50, 51}, Quarantined: quarantined(52, 53)},
		keys[2]:  {Host: "host2", Ranges: []model.Range{31}, Quarantined: quarantined(60)},
		unlisted: {Host: "host2", Quarantined: quarantined(70)},
	} {
		if got := next[key]; !got.Equal(want) {
			t.Errorf("%s has %+v, want %+v", key.Address, got, want)
		}
	}
	for key, h := range next {
		s.PutPorts(key, h)
	}
	if n := s.DoublyAllocated(keys[0].VIP).Len(); n > 0 {
		t.Errorf("%d ranges are in two hands", n)
	}
}

// While a restore is pending nobody gets a range, not one of its own that rests either.
func TestNoPortsWhileARestoreIsPending(t *testing.T) {
	s, keys := restored(PortAllocation{Host: "host1", Quarantined: []Quarantined{{time.Now(), []model.Range{40}}}})
	if _, given := s.Allocate(keys[0], 2, 0); len(given) > 0 {
		t.Errorf("%v were given", given)
	}
	for key, h := range s.ChangedPorts(keys[0].VIP, time.Now()) {
		if len(h.Ranges) > 0 {
			t.Errorf("%s was given %v", key.Address, h.Ranges)
		}
	}
	s.Restored.Settled = true
	if _, given := s.Allocate(keys[0], 2, 0); len(given) != 2 {
		t.Errorf("%v were given when it was settled", given)
	}
}

// The slots that backends were given after the backup are given to no others.
func TestSlotsAfterARestore(t *testing.T) {
	backend := func(i int) model.Backend {
		return model.Backend{Address: netip.AddrFrom4([4]byte{10, 3, 1, byte(i)}), Port: 80, Host: "host1", Weight: 1}
	}
	slots := func(old []Row, r Restored, backends ...model.Backend) (rows []Row, slots []model.Slot) {
		rows = assignRows(old, backends, time.Now(), func(Row) bool { return true }, r)
		for _, row := range rows {
			slots = append(slots, row.Slot)
		}
		return rows, slots
	}
	backup, _ := slots(nil, Restored{}, backend(1), backend(2))
	_, lost := slots(backup, Restored{}, backend(1), backend(2), backend(3), backend(4))
	rows, got := slots(backup, Restored{At: 128}, backend(1), backend(2), backend(5))
	if !slices.Equal(lost, []model.Slot{1, 2, 3, 4}) || !slices.Equal(got, []model.Slot{1, 2, 67}) {
		t.Errorf("before the restore %v, after it %v", lost, got)
	}
	if _, got := slots(rows, Restored{At: 128, Settled: true}, backend(1), backend(2), backend(5), backend(6)); !slices.Equal(got, []model.Slot{1, 2, 67, 68}) {
		t.Errorf("then %v", got)
	}
	if _, free := vacate(make([]Row, model.MaxBackends-3), 2, 100); len(free) != 2 {
		t.Errorf("of a table that is nearly full %v", free)
	}
}
