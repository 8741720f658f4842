package placement

import (
	"hash/fnv"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/fabric"
)

// candidate is a set of switches that may announce a VIP at once.
type candidate struct {
	members   []int32 // ascending
	routes    *fabric.Routes
	container int32 // that holds all members, -1 for none
	hash      uint64
	closed    bool   // for new VIPs
	kind      string // for people; empty if the set is only known from a current place or a pin
}

// candidateSet is switches that may announce a VIP at once.
type candidateSet struct {
	kind    string
	members []int32
}

// hashOf is a hash of names, the same in every run.
func hashOf(names ...string) uint64 {
	h := fnv.New64a()
	for _, name := range names {
		h.Write([]byte(name)) // never fails
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// mix spreads the bits of a hash (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// keyOf names a set of switches.
func keyOf(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return strings.Join(names, "\x00")
}

// names are those of switches.
func names(f *fabric.Fabric, members []int32) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = f.Switches[m].Name
	}
	return out
}

// Candidates lists the sets of switches that may announce a VIP: each switch alone, and what the spread allows.
func Candidates(f *fabric.Fabric, spread Spread) [][]int32 {
	var sets [][]int32
	for _, s := range candidateSets(f, spread) {
		sets = append(sets, s.members)
	}
	for _, sw := range f.LeafSwitches() {
		if sw >= 0 {
			sets = append(sets, []int32{sw})
		}
	}
	return sets
}

// newCandidate makes a candidate of switches that are up.
func newCandidate(f *fabric.Fabric, router *fabric.Router, members []int32) candidate {
	slices.Sort(members)
	c := candidate{members: members, routes: router.Routes(members), container: f.Switches[members[0]].Container}
	for _, m := range members {
		if f.Switches[m].Container != c.container {
			c.container = -1
		}
	}
	sorted := names(f, members)
	slices.Sort(sorted)
	c.hash = hashOf(sorted...)
	return c
}

// candidateSets lists sets without leaves: single switches, then those of several that the spread allows.
func candidateSets(f *fabric.Fabric, spread Spread) []candidateSet {
	var sets, several []candidateSet
	cores := map[int32][]int32{} // by plane
	aggs := map[int32][]int32{}  // by container
	var all []int32
	for i, s := range f.Switches {
		sw := int32(i)
		if s.Down || s.Leaf >= 0 {
			continue
		}
		kind := "aggregation switch"
		switch s.Tier {
		case 0: // a neighbour has racks, too
			kind = "ToR"
		case f.Tiers - 1:
			kind = "core"
			all = append(all, sw)
			cores[s.Plane] = append(cores[s.Plane], sw)
		case f.Tiers - 2:
			aggs[s.Container] = append(aggs[s.Container], sw)
		}
		sets = append(sets, candidateSet{kind, []int32{sw}})
	}
	if spread >= Anycast {
		for _, set := range onePerPlane(cores) {
			several = append(several, candidateSet{"core of each plane", set})
		}
		several = append(several, candidateSet{"all cores", all})
		for _, k := range sortedKeys(aggs) {
			several = append(several, candidateSet{"all aggregation switches of a container", aggs[k]})
		}
	}
	if spread >= Twins {
		keys := sortedKeys(aggs)
		for i := range len(keys) / 2 {
			twins := slices.Concat(aggs[keys[i]], aggs[keys[i+len(keys)/2]])
			several = append(several, candidateSet{"all aggregation switches of two containers", twins})
		}
	}
	seen := map[string]bool{}
	for _, s := range several {
		slices.Sort(s.members)
		if key := keyOf(names(f, s.members)); len(s.members) > 1 && !seen[key] {
			seen[key] = true
			sets = append(sets, s)
		}
	}
	return sets
}

func sortedKeys(m map[int32][]int32) []int32 {
	var keys []int32
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// onePerPlane takes the first core of each plane, then the second, as long as the smallest plane has some.
func onePerPlane(cores map[int32][]int32) [][]int32 {
	var sets [][]int32
	for i := 0; ; i++ {
		var set []int32
		for _, p := range sortedKeys(cores) {
			if i >= len(cores[p]) {
				return sets
			}
			set = append(set, cores[p][i])
		}
		if len(set) < 2 {
			return sets
		}
		sets = append(sets, set)
	}
}
