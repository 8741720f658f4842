package placement

import (
	"fmt"
	"testing"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// paperFabric is the network of the paper's simulation.
func paperFabric(t testing.TB) *fabric.Fabric {
	t.Helper()
	spec, err := fabric.PaperClos.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// workload is generated traffic of the paper's size.
func workload(t testing.TB, w traffic.Workload) []traffic.Demand {
	t.Helper()
	demands, err := w.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return demands
}

// A placement of 30 000 VIPs on 1 840 switches, from scratch and when it is repeated.
func BenchmarkPlace(b *testing.B) {
	f := paperFabric(b)
	for _, total := range []traffic.Rate{5e9, 10e9} {
		demands := workload(b, traffic.Workload{Total: total})
		for _, p := range []struct {
			name   string
			policy Policy
		}{
			{"single", Policy{}},
			{"anycast", Policy{Spread: Anycast, FailureBudget: 20_000}},
			{"twins", Policy{Spread: Twins, FailureBudget: 5_000}},
			{"greedy", Policy{Algorithm: Greedy}},
		} {
			b.Run(fmt.Sprintf("%s-%dT", p.name, total/1e9), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if _, err := Place(b.Context(), f, demands, nil, p.policy); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
