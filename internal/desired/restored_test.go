package desired

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// While a restore is pending nobody gets a range, not one of its own that rests either.
func TestNoPortsWhileARestoreIsPending(t *testing.T) {
	s, key := State{Restored: Restored{At: 1000}}, model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.3.1.1")}
	s.PutVIP(model.VIP{Name: "crawler", Address: key.VIP, SNAT: &model.SNAT{
		Preallocate: model.RangePorts, MaxPorts: 4 * model.RangePorts, Workloads: []model.SNATWorkload{{Address: key.Address, Host: "host1"}},
	}})
	s.Ports.Set(key, snatport.Allocation{Host: "host1", Quarantined: []snatport.Quarantined{{Since: time.Now(), Ranges: []model.Range{40}}}})
	if _, given := s.AllocatePorts(key, 2, 0); len(given) > 0 {
		t.Errorf("%v were given", given)
	}
	for key, h := range s.ChangedPorts(key.VIP, time.Now()) {
		if len(h.Ranges) > 0 {
			t.Errorf("%s was given %v", key.Address, h.Ranges)
		}
	}
	s.Restored.Settled = true
	if h := s.ChangedPorts(key.VIP, time.Now())[key]; len(h.Ranges) != 1 {
		t.Errorf("%v are preallocated when it was settled", h.Ranges)
	}
	if _, given := s.AllocatePorts(key, 2, 0); len(given) != 2 {
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
