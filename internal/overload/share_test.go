package overload

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"
)

func budget(packets, bytes float64) *Budget {
	return &Budget{most: Rate{packets, bytes}, room: Rate{packets, bytes}, seen: 1}
}

// keeps is how many packets a VIP keeps.
func (a Demand) keeps(cuts map[netip.Addr]Cut) float64 {
	return a.Offered.Packets * (1 - cuts[a.VIP].All)
}

func TestSharesFollowWorkloads(t *testing.T) {
	ask := func(n byte, tenant string, workloads int, packets, bytes float64) Demand {
		return Demand{VIP: testVIP(n), Tenant: tenant, Workloads: workloads, Offered: Rate{packets, bytes}}
	}
	tenants := map[string]int{"a": 10, "b": 20, "c": 10, "d": 10}
	check := func(name string, b *Budget, demands []Demand, want ...float64) {
		t.Helper()
		cuts := b.Cuts(demands, tenants)
		for i, a := range demands {
			if got := a.keeps(cuts); math.Abs(got-want[i]) > 1e-6*want[i] {
				t.Errorf("%s: %s of %s keeps %.1f packets/s, want %.1f", name, a.VIP, a.Tenant, got, want[i])
			}
		}
	}
	much := []Demand{ask(1, "a", 10, 1e6, 0), ask(2, "b", 20, 1e6, 0), ask(3, "c", 10, 1e6, 0)}
	check("all want more", budget(400_000, math.Inf(1)), much, 100_000, 200_000, 100_000)
	check("one wants little", budget(400_000, math.Inf(1)), []Demand{much[0], much[1], ask(3, "c", 10, 10_000, 0)}, 130_000, 260_000, 10_000)
	check("room for all", budget(4e6, math.Inf(1)), much, 1e6, 1e6, 1e6)
	check("no bound", &Budget{}, much, 1e6, 1e6, 1e6)
	check("more VIPs are no more tenants", budget(400_000, math.Inf(1)), []Demand{
		ask(1, "a", 10, 1e6, 0), ask(2, "d", 5, 1e6, 0), ask(3, "d", 5, 1e6, 0), ask(4, "d", 5, 20_000, 0),
	}, 200_000, 90_000, 90_000, 20_000)
	check("nobody's tenant is known", budget(300_000, math.Inf(1)), []Demand{ask(1, "", 2, 1e6, 0), ask(2, "", 1, 1e6, 0)}, 200_000, 100_000)
	check("bytes count as well", budget(1e9, 2e8), []Demand{ask(1, "a", 10, 1e6, 1e9), ask(2, "c", 10, 1e6, 64e6)}, 136_000, 1e6)
	check("the scarcer of both", budget(1e6, 1e8), []Demand{ask(1, "a", 10, 1e5, 1e9), ask(2, "c", 10, 3e6, 20e6)}, 8000, 900_000)
	if cut := budget(400_000, math.Inf(1)).Cuts(much, tenants)[testVIP(2)]; cut.TenantShare != 0.5 {
		t.Errorf("the tenant's part is %v", cut.TenantShare)
	}
}

// Within a VIP the same: who sends much loses first.
func TestSharesOfSources(t *testing.T) {
	p := func(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, n, 0}), 24) }
	cut := Demand{Sources: []SourceShare{{p(1), 0.6}, {p(2), 0.2}}, Unnamed: 0.01}.cut(0.5)
	// The others, twenty of 0.01 at most, lose nothing; both get half of what is left.
	if math.Abs(cut.Sources[p(1)]-0.75) > 1e-9 || math.Abs(cut.Sources[p(2)]-0.25) > 1e-9 || cut.Others != 0 || cut.All != 0.5 {
		t.Errorf("cut is %+v", cut)
	}
	cut = Demand{Sources: []SourceShare{{p(1), 0.5}}, Unnamed: 0.5}.cut(0.5)
	if math.Abs(cut.Sources[p(1)]-0.5) > 1e-9 || math.Abs(cut.Others-0.5) > 1e-9 {
		t.Errorf("the others may be one that is as large: cut is %+v", cut)
	}
	cut = Demand{Sources: []SourceShare{{p(1), 0.8}, {p(2), 0.02}}, Unnamed: 0.01}.cut(0.1)
	kept := 0.8*(1-cut.Sources[p(1)]) + 0.02*(1-cut.Sources[p(2)]) + 0.18*(1-cut.Others)
	// 0.8 and 0.02 and eighteen of 0.01: 0.005 each.
	if math.Abs(cut.Others-0.5) > 1e-9 || math.Abs(kept-0.1) > 1e-9 {
		t.Errorf("it keeps %v: %+v", kept, cut)
	}
	if cut := (Demand{}).cut(0.3); cut.Others != 0.7 || cut.Sources != nil {
		t.Errorf("nothing is known of sources: %+v", cut)
	}
	if cut := (Demand{Sources: []SourceShare{{p(1), 1}}, Unnamed: 0.01}).cut(0.3); math.Abs(cut.Sources[p(1)]-0.7) > 1e-9 || cut.Others != 0 {
		t.Errorf("all from one: %+v", cut)
	}
}

// model is a mux that can do so much: what it drops costs it a part of what it sends on.
type model struct {
	capacity, dropping float64
	budget             Budget
	at                 time.Time
	cuts               map[netip.Addr]Cut
}

// second has demands send for a second. It returns what each got through, of what it sent.
func (m *model) second(demands []Demand) map[netip.Addr]float64 {
	work := 0.0
	for _, a := range demands {
		drop := m.cuts[a.VIP].All
		work += a.Offered.Packets * (1 - drop + drop*m.dropping)
	}
	seen := min(1, m.capacity/work)
	through, saw := map[netip.Addr]float64{}, make([]Demand, len(demands))
	var done, all Rate
	for i, a := range demands {
		saw[i] = a
		saw[i].Offered = a.Offered.times(seen)
		all.Packets += saw[i].Offered.Packets
		done.Packets += saw[i].keeps(m.cuts)
		through[a.VIP] = saw[i].keeps(m.cuts) / a.Offered.Packets
	}
	lost := 1 - seen
	if lost < leastShare {
		lost = 0
	}
	m.at = m.at.Add(time.Second)
	if lost > 0 || m.budget.Bound() {
		m.budget.Observe(m.at, done, all, lost)
	}
	m.cuts = m.budget.Cuts(saw, map[string]int{})
	return through
}

// TestOthersLoseNothing floods one of five tenants: the others lose as long as it takes to see it, and less than a
// percent from then on, for they have room. When it ends, so do the shares.
func TestOthersLoseNothing(t *testing.T) {
	for _, c := range []struct{ times, dropping float64 }{
		{1.1, 0.1}, {1.1, 0.33}, {1.1, 0.6}, {1.4, 0.6}, {1.5, 0.1}, {1.5, 0.33}, {2, 0.33}, {2.3, 0.33}, {5, 0.1},
	} {
		t.Run(fmt.Sprintf("%.1f times what it can do, dropping costs %.2f", c.times, c.dropping), func(t *testing.T) {
			m := &model{capacity: 1e6, dropping: c.dropping, at: time.Unix(1, 0)}
			demands := make([]Demand, 5)
			for i := range demands {
				demands[i] = Demand{VIP: testVIP(byte(i)), Workloads: 10, Offered: Rate{Packets: 50_000}}
			}
			demands[0].Offered.Packets = c.times*m.capacity - 200_000
			m.second(demands)
			sum, worst, victim := 0.0, 1.0, 0.0
			const seconds = 120
			for i := range seconds {
				through := m.second(demands)
				if i == 0 {
					continue // the first cut is a guess
				}
				sum += through[testVIP(1)]
				worst = min(worst, through[testVIP(1)])
				victim += through[testVIP(0)] * demands[0].Offered.Packets / seconds
			}
			if lost := 1 - sum/(seconds-1); lost > 0.01 || worst < 0.9 {
				t.Errorf("the others lose %.2f %%, %.1f %% in one second", 100*lost, 100*(1-worst))
			}
			if victim < 50_000 {
				t.Errorf("the victim gets %.0f packets/s, the others 50000", victim)
			}
			t.Logf("others lose %.2f %%, at worst %.1f %%; the victim gets %.0f packets/s", 100*(1-sum/(seconds-1)), 100*(1-worst), victim)
			demands[0].Offered.Packets = 50_000
			for range int(Calm.Seconds()) + 1 {
				m.second(demands)
			}
			if m.budget.Bound() || len(m.cuts) > 0 {
				t.Errorf("after the flood: %+v, cuts %v", m.budget, m.cuts)
			}
		})
	}
}

// A mux for which even dropping is too much does not end up forwarding nothing.
func TestBudgetHasAFloor(t *testing.T) {
	m := &model{capacity: 1e6, dropping: 0.9, at: time.Unix(1, 0)}
	demands := []Demand{{VIP: testVIP(1), Workloads: 1, Offered: Rate{Packets: 1e7}}}
	for range 100 {
		m.second(demands)
	}
	if got := m.budget.room.Packets; got < m.budget.most.Packets/4-1 || got == 0 {
		t.Errorf("the budget is %+v", m.budget)
	}
}
