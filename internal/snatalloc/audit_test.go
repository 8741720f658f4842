package snatalloc

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

// crowd has so many VIPs, each with workloadsOfEach workloads that have a range, and one in quarantine.
const workloadsOfEach = 10

func crowdVIP(i int) model.VIP {
	address := netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)})
	snat := model.SNAT{MaxPorts: 64}.WithDefaults()
	for j := range workloadsOfEach {
		snat.Workloads = append(snat.Workloads, model.SNATWorkload{
			Address: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), Host: fmt.Sprint("host", j),
		})
	}
	return model.VIP{Name: fmt.Sprint("vip", i), Address: address, SNAT: &snat}
}

func crowdAllocations(i int, since time.Time) map[model.SNATKey]snatport.Allocation {
	all, vip := map[model.SNATKey]snatport.Allocation{}, crowdVIP(i)
	for j, w := range vip.SNAT.Workloads {
		all[model.SNATKey{VIP: vip.Address, Address: w.Address}] = snatport.Allocation{
			Host: w.Host, Ranges: []model.Range{model.Range(1000 + j)},
			Quarantined: []snatport.Quarantined{{Since: since, Ranges: []model.Range{model.Range(2000 + j)}}},
		}
	}
	return all
}

func crowd(t testing.TB, vips int, since time.Time) *store.Store {
	t.Helper()
	s := teststore.Open(t)
	change := store.Change{Ports: map[model.SNATKey]snatport.Allocation{}}
	for i := range vips {
		change.VIPs = append(change.VIPs, crowdVIP(i))
		maps.Copy(change.Ports, crowdAllocations(i, since))
	}
	write(t, s, change)
	return s
}

func write(t testing.TB, s *store.Store, change store.Change) *store.State {
	t.Helper()
	if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) { return change, nil }); err != nil {
		t.Fatal(err)
	}
	return s.State()
}

// quickMuxes have answered all generations.
type quickMuxes struct{ Hub }

func (quickMuxes) AcknowledgedByMuxes() model.Generation { return math.MaxInt64 }

// showing is a State in which no allocation, and no client, is to be seen but those of one VIP.
func showing(s *store.State, vip model.VIP) *store.State {
	only := s.Clone()
	only.Ports = snatport.Allocations{}
	only.Ports.ReplaceVIP(model.VIP{}, vip)
	for key, h := range s.Ports.Of(vip.Address) {
		only.Ports.Set(key, h)
	}
	return only
}

// After their first look the audits look at the VIPs that changed and at what is due, also in the transaction: here nothing
// else is to be seen.
func TestAuditsLookAtNothingElse(t *testing.T) {
	const vips = 1000 // with 10 000 allocations
	begin := time.Unix(100000, 0)
	now := begin
	s := crowd(t, vips, begin)
	a := New(Config{Store: s, Hub: quickMuxes{}, Now: func() time.Time { return now }}, NewMetrics())
	audit, quarantined := newStoreAudit(a), newQuarantines(a)
	audit.note(s.State())
	quarantined.observe(s.State(), now)
	if len(audit.due) != vips || quarantined.byTime.Len() != vips*workloadsOfEach {
		t.Fatalf("at first %d VIPs and %d quarantines are looked at", len(audit.due), quarantined.byTime.Len())
	}
	if wrong := audit.nextWrong(s.State()); len(wrong) > 0 || len(audit.due) > 0 {
		t.Fatalf("wrong are %v, and %d VIPs are left", wrong, len(audit.due))
	}

	// One workload gets what another one has, and one gives a range back.
	now = begin.Add(time.Minute)
	vip := crowdVIP(77)
	first, second := model.SNATKey{VIP: vip.Address, Address: vip.SNAT.Workloads[0].Address}, model.SNATKey{VIP: vip.Address, Address: vip.SNAT.Workloads[1].Address}
	state := s.State()
	released, double := state.Ports.At(first).Release([]model.Range{1000}, now), state.Ports.At(second)
	double.Ranges = []model.Range{1001, 1002}
	only := showing(write(t, s, store.Change{Ports: map[model.SNATKey]snatport.Allocation{first: released, second: double}}), vip)
	audit.note(only)
	quarantined.observe(only, now)
	if wrong := audit.nextWrong(only); len(audit.due) != 1 || !slices.Equal(wrong, []netip.Addr{vip.Address}) {
		t.Errorf("of one change %d VIPs are looked at, and wrong are %v", len(audit.due), wrong)
	}
	if mended, whole := a.correct(only, []netip.Addr{vip.Address}); !whole || len(mended) != 1 || !slices.Equal(mended[second].Ranges, []model.Range{1001}) {
		t.Errorf("mended are %v", mended)
	}

	// Nothing is looked at before it is due, and what is not to be seen now was not forgotten.
	if due := quarantined.due(begin.Add(a.Quarantine - 1)); len(due) != 0 {
		t.Errorf("%d are due too early", len(due))
	}
	now = begin.Add(a.Quarantine)
	if due := quarantined.due(now); len(due) != vips*workloadsOfEach {
		t.Errorf("%d of %d are due", len(due), vips*workloadsOfEach)
	}
	if change := quarantined.free(only, []model.SNATKey{first}, now); len(change.Ports) != 1 || len(change.Ports[first].Quarantined) != 1 {
		t.Errorf("freed are %v", change.Ports)
	}
}

// BenchmarkAudits is of one change.
func BenchmarkAudits(b *testing.B) {
	for _, vips := range []int{100, 1000} {
		begin := time.Now()
		s := crowd(b, vips, begin)
		a := New(Config{Store: s, Hub: quickMuxes{}, Now: time.Now}, NewMetrics())
		audit, quarantined, last := newStoreAudit(a), newQuarantines(a), s.State()
		audit.note(last)
		audit.nextWrong(last)
		quarantined.observe(last, begin)
		state := write(b, s, store.Change{Ports: crowdAllocations(vips/2, begin)})
		b.Run(fmt.Sprint("allocations=", vips*workloadsOfEach), func(b *testing.B) {
			for b.Loop() {
				audit.last, quarantined.last = last, last
				audit.note(state)
				audit.nextWrong(state)
				quarantined.observe(state, begin)
				quarantined.expired(state, begin)
			}
		})
	}
}
