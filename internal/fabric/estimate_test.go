package fabric

import (
	"math/rand/v2"
	"testing"
)

// worst is the utilisation of the most used link that a flow touches, without a short cut.
func worst(f *Fabric, u *Usage, flow *Flow, r *Routes) float64 {
	loads := f.NewLoads()
	loads.Add(flow, r)
	top := 0.0
	for _, link := range loads.Touched {
		top = max(top, u.Utilisation(link, float64(loads.ByLink[link])))
	}
	return top
}

// drawUsage puts some load on every link, more or less than there was.
func drawUsage(r *rand.Rand, f *Fabric, u *Usage) {
	for i, load := range u.Load {
		u.Add(int32(i), Load(r.Int64N(int64(f.Capacity(int32(i)))))-load)
	}
}

func newEstimator(t *testing.T, f *Fabric, router *Router, u *Usage, sets []*Routes) *Estimator {
	t.Helper()
	e, err := NewEstimator(t.Context(), f, router, u, sets)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Every estimate is at most what the routes give, and in a regular Clos most that fit are exactly that.
func TestEstimatesAreNeverAboveTheLoads(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	regular, err := Clos{Containers: 5, TorsPerContainer: 4, AggsPerContainer: 2, Cores: 6, TorUplink: 1e7, AggUplink: 4e7}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		f, err := New(regular)
		if err != nil {
			t.Fatal(err)
		}
		if n >= 20 {
			f = drawFabric(r)
		}
		router := NewRouter(f)
		var sets []*Routes
		for range 8 {
			if m := drawMembers(r, f); f.Switches[m[0]].Leaf < 0 {
				sets = append(sets, router.Routes(m))
			}
		}
		u := f.NewUsage()
		e := newEstimator(t, f, router, u, sets)
		bounds := make([]float64, len(sets)+len(f.leaves))
		exact, all := 0, 0
		for v := range 5 {
			flow, err := f.NewFlow(randomDemand(r, f, v))
			if err != nil {
				t.Fatal(err)
			}
			drawUsage(r, f, u)
			clear(bounds)
			e.Estimate(flow, bounds, v%2*3)
			for i, bound := range bounds {
				if i >= len(sets) && f.leaves[i-len(sets)].ways == nil || i < len(sets) && sets[i].uneven {
					continue
				}
				var routes *Routes
				if i < len(sets) {
					routes = sets[i]
				} else {
					routes = router.Routes([]int32{f.leaves[i-len(sets)].sw})
				}
				want := worst(f, u, flow, routes)
				if bound > want*(1+1e-9) {
					t.Fatalf("set %v: estimate %g is above %g", routes.Members, bound, want)
				}
				if v%2 == 1 || want > 1 { // only the lowest were asked for, or it does not fit
					continue
				}
				if all++; bound > want*(1-1e-9) {
					exact++
				}
			}
		}
		if n < 20 && exact*10 < all*7 {
			t.Errorf("only %d of %d estimates are exact in a regular Clos", exact, all)
		}
	}
}
