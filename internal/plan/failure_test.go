package plan

import (
	"math"
	"testing"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// network is a small fabric of four containers with as much traffic as most of its links take.
func network(t *testing.T, policy placement.Policy) (Network, *placement.Result) {
	t.Helper()
	spec, err := fabric.Clos{Containers: 4, TorsPerContainer: 4, AggsPerContainer: 2, Cores: 4, TorUplink: 1e7, AggUplink: 2e7}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	demands, err := traffic.Workload{VIPs: 300, Racks: len(f.Racks), Total: 5e7}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	result, err := placement.Place(t.Context(), f, demands, nil, policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Placed) < 100 {
		t.Fatalf("%d VIPs are placed", len(result.Placed))
	}
	return Network{Fabric: f, Demands: demands, Placed: result.Placed, MuxRacks: MuxRacks(f, 4)}, result
}

// container is the switches of one.
func container(f *fabric.Fabric, number int32) (switches []int32) {
	for i, s := range f.Switches {
		if s.Container == number {
			switches = append(switches, int32(i))
		}
	}
	return switches
}

// With no failure, loads are those that the placement has, and what is not placed is on software muxes.
func TestNoFailureIsThePlacement(t *testing.T) {
	n, result := network(t, placement.Policy{})
	n.MuxRacks = nil
	got, err := n.Fail()
	if err != nil {
		t.Fatal(err)
	}
	hot := result.HotLinks[0]
	if want := hot.Utilisation * 0.8; math.Abs(got.Utilisation-want) > 1e-6 || got.Gone != 0 || got.Software != result.Total-result.Hardware {
		t.Errorf("%+v, want %s at %.6f and %d in software", got, hot.Name, want, result.Total-result.Hardware)
	}
}

// A dead container takes its clients and backends along; of single switches the VIPs fall to software, of twins none.
func TestFailureOfAContainer(t *testing.T) {
	single, result := network(t, placement.Policy{})
	twins, withTwins := network(t, placement.Policy{Spread: placement.Twins, FailureBudget: 1})
	var sums [2]traffic.Rate
	for i, n := range []Network{single, twins} {
		for k := range int32(4) {
			got, err := n.Fail(container(n.Fabric, k)...)
			if err != nil {
				t.Fatal(err)
			}
			if got.Gone <= 0 || got.Gone >= result.Total || got.Hottest == "" {
				t.Errorf("container %d: %+v", k, got)
			}
			sums[i] += got.Software
		}
	}
	fell := sums[0] - 4*(result.Total-result.Hardware)
	if fell <= 0 {
		t.Errorf("no traffic falls from dead switches to software: %d", fell)
	}
	if most := 4 * (withTwins.Total - withTwins.Hardware); sums[1] > most {
		t.Errorf("with twins %d fall to software, want at most the %d that are there", sums[1], most)
	}
}

// What is on software muxes loads links, more where there are fewer muxes.
func TestSoftwareMuxesLoadTheirRacks(t *testing.T) {
	n, _ := network(t, placement.Policy{})
	n.Placed = nil
	few, many := n, n
	few.MuxRacks, many.MuxRacks = MuxRacks(n.Fabric, 1), MuxRacks(n.Fabric, 100)
	if len(few.MuxRacks) != 1 || len(many.MuxRacks) != 16 {
		t.Fatalf("racks of muxes: %v and %v", few.MuxRacks, many.MuxRacks)
	}
	one, err := few.Fail()
	if err != nil {
		t.Fatal(err)
	}
	all, err := many.Fail()
	if err != nil {
		t.Fatal(err)
	}
	if one.Utilisation < 2*all.Utilisation || all.Utilisation == 0 {
		t.Errorf("a mux in one rack loads a link to %.2f, in all racks to %.2f", one.Utilisation, all.Utilisation)
	}
}
