package placement

import (
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// Failures is the traffic that fails over to software muxes: a VIP's, once all its switches are dead.
type Failures struct {
	Container      traffic.Rate // of the container that costs most
	ContainerIndex int32
	Switches       traffic.Rate // of the three switches that cost most
	WorstSwitches  []int32
	Random         traffic.Rate // of three switches drawn at random, the most of the draws
}

// Worst is the most that software muxes must take over.
func (f Failures) Worst() traffic.Rate { return max(f.Container, f.Switches) }

// FindFailures computes what failures cost. The draws of random switches follow from the seed.
func FindFailures(f *fabric.Fabric, placed []Placed, draws int, seed uint64) Failures {
	byContainer := make([]traffic.Rate, len(f.Switches)+1)
	single := make([]traffic.Rate, len(f.Switches))
	var sets []Placed // of two or three switches
	for _, p := range placed {
		container := f.Switches[p.Switches[0]].Container
		for _, sw := range p.Switches {
			if f.Switches[sw].Container != container {
				container = -1
			}
		}
		if container >= 0 {
			byContainer[container] += p.Rate
		}
		switch n := len(p.Switches); {
		case n == 1:
			single[p.Switches[0]] += p.Rate
		case n <= smallSet:
			sets = append(sets, p)
		}
	}
	var out Failures
	for i, rate := range byContainer {
		if rate > out.Container {
			out.Container, out.ContainerIndex = rate, int32(i)
		}
	}
	sets = mergeSets(sets)
	out.Switches, out.WorstSwitches = worstSwitches(single, sets)
	for i := range uint64(max(draws, 0)) {
		dead := make([]int32, smallSet)
		for j := range dead {
			dead[j] = int32(mix(mix(seed)+i*smallSet+uint64(j)) % uint64(len(single)))
		}
		out.Random = max(out.Random, cost(single, sets, dead))
	}
	return out
}

// mergeSets adds up the VIPs of equal sets.
func mergeSets(sets []Placed) []Placed {
	slices.SortFunc(sets, func(a, b Placed) int { return slices.Compare(a.Switches, b.Switches) })
	var merged []Placed
	for _, s := range sets {
		if n := len(merged); n > 0 && slices.Equal(merged[n-1].Switches, s.Switches) {
			merged[n-1].Rate += s.Rate
		} else {
			merged = append(merged, Placed{Rate: s.Rate, Switches: s.Switches})
		}
	}
	return merged
}

// cost is the traffic of VIPs of which all switches are dead.
func cost(single []traffic.Rate, sets []Placed, dead []int32) traffic.Rate {
	var sum traffic.Rate
	for i, sw := range dead {
		if !slices.Contains(dead[:i], sw) {
			sum += single[sw]
		}
	}
	for _, s := range sets {
		if !slices.ContainsFunc(s.Switches, func(sw int32) bool { return !slices.Contains(dead, sw) }) {
			sum += s.Rate
		}
	}
	return sum
}

// worstSwitches finds the three switches that cost most: those with most VIPs of their own, or a set and any third.
func worstSwitches(single []traffic.Rate, sets []Placed) (traffic.Rate, []int32) {
	order := make([]int32, len(single))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		if single[a] != single[b] {
			if single[a] > single[b] {
				return -1
			}
			return 1
		}
		return 0
	})
	best := slices.Clone(order[:min(smallSet, len(order))])
	most := cost(single, sets, best)
	for _, s := range sets {
		thirds := []int32{s.Switches[0]}
		if len(s.Switches) < smallSet {
			thirds = append(slices.Clone(order[:min(len(order), smallSet)]), membersOf(sets)...)
		}
		for _, third := range thirds {
			dead := append(slices.Clone(s.Switches), third)
			if c := cost(single, sets, dead); c > most {
				most, best = c, dead
			}
		}
	}
	slices.Sort(best)
	return most, slices.Compact(best)
}

// membersOf lists the switches of sets once.
func membersOf(sets []Placed) []int32 {
	var out []int32
	for _, s := range sets {
		out = append(out, s.Switches...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
