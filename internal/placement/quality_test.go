package placement

import (
	"testing"

	"github.com/weirlb/weir/internal/traffic"
)

// muxRate is what a software mux of the paper carries.
const muxRate = 3_600_000

// muxesFor places generated traffic and counts the software muxes that the placement needs, and their lower bound.
func muxesFor(t *testing.T, w traffic.Workload, p Policy) (muxes, least int64, result *Result) {
	t.Helper()
	f := paperFabric(t)
	demands := workload(t, w)
	if p.Algorithm == Repair {
		p.FailureBudget = UsualBudget(f, demands, p.Spread)
	}
	result = place(t, f, demands, nil, p)
	software := result.Software(FindFailures(f, result.Placed, 0, 0))
	return Muxes(software, muxRate), Muxes(LeastSoftware(f, demands, p.Spread), muxRate), result
}

// The paper's network with the paper's traffic needs few software muxes more than any placement does.
func TestFewSoftwareMuxesAreNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("places 30 000 VIPs several times")
	}
	t.Run("anycast", func(t *testing.T) {
		w := traffic.Workload{Total: 5_000_000_000, Skew: 2, Seed: 2}
		muxes, least, result := muxesFor(t, w, Policy{Spread: Anycast})
		if float64(muxes) > 1.8*float64(least) {
			t.Errorf("%d software muxes are needed, more than 1.8 times the least of %d", muxes, least)
		}
		if len(result.Placed) != 16384 {
			t.Errorf("%d VIPs are on switches, whose host tables hold 16384", len(result.Placed))
		}
	})
	t.Run("twins", func(t *testing.T) {
		w := traffic.Workload{Total: 10_000_000_000}
		weir, _, result := muxesFor(t, w, Policy{Spread: Twins})
		paper, _, _ := muxesFor(t, w, Policy{Algorithm: Greedy})
		if ananta := Muxes(result.Total, muxRate); ananta < 80*weir || paper < 4*weir {
			t.Errorf("%d software muxes with twins, %d of the paper's greedy, %d without switches; want a fourth and an eightieth", weir, paper, ananta)
		}
	})
}
