package fabric

import (
	"encoding/binary"
	"slices"
)

// Usage is the load and the inverse of the capacity of each link, in loads. It knows the highest load of groups of
// links with the same capacity, so that many links that get the same amount are evaluated as one.
type Usage struct {
	Load    []Load    // by link; changed by Add alone
	Inverse []float64 // 1 / Capacity; unusable where there is none

	most    []Load // by group
	inverse []float64
	links   [][]int32
	byLink  [][]int32 // groups of a link
	byKey   map[string]int32
}

// unusable makes the utilisation of a link without capacity enormous, yet finite.
const unusable = 1e18

// NewUsage is that of an idle fabric.
func (f *Fabric) NewUsage() *Usage {
	u := &Usage{
		Load: make([]Load, len(f.Links)), Inverse: make([]float64, len(f.Links)),
		byLink: make([][]int32, len(f.Links)), byKey: map[string]int32{},
	}
	for i := range f.Links {
		u.Inverse[i] = unusable
		if c := f.Capacity(int32(i)); c > 0 {
			u.Inverse[i] = 1 / float64(c)
		}
	}
	return u
}

// Add adds a load to a link; a negative one takes load away.
func (u *Usage) Add(link int32, load Load) {
	before := u.Load[link]
	u.Load[link] += load
	for _, g := range u.byLink[link] {
		switch {
		case u.Load[link] > u.most[g]:
			u.most[g] = u.Load[link]
		case load < 0 && before == u.most[g]:
			u.most[g] = u.highest(u.links[g])
		}
	}
}

func (u *Usage) highest(links []int32) Load {
	var most Load
	for _, link := range links {
		most = max(most, u.Load[link])
	}
	return most
}

// Utilisation is that of a link with some more load. The same on every machine: nothing here can be fused.
func (u *Usage) Utilisation(link int32, more float64) float64 {
	return (float64(u.Load[link]) + more) * u.Inverse[link]
}

// of is the utilisation of the most used link of a group, each with some more load.
func (u *Usage) of(group int32, more float64) float64 {
	return (float64(u.most[group]) + more) * u.inverse[group]
}

// groups divides links into groups by capacity.
func (u *Usage) groups(links []int32) []int32 {
	var groups []int32
	for len(links) > 0 {
		var same, others []int32
		for _, link := range links {
			if u.Inverse[link] == u.Inverse[links[0]] {
				same = append(same, link)
			} else {
				others = append(others, link)
			}
		}
		groups = append(groups, u.group(same))
		links = others
	}
	return groups
}

// group is the index of links with the same capacity among all groups.
func (u *Usage) group(links []int32) int32 {
	links = slices.Clone(links)
	slices.Sort(links)
	var key []byte
	for _, link := range links {
		key = binary.AppendVarint(key, int64(link))
	}
	g, ok := u.byKey[string(key)]
	if !ok {
		g = int32(len(u.most))
		u.byKey[string(key)] = g
		u.most = append(u.most, u.highest(links))
		u.inverse = append(u.inverse, u.Inverse[links[0]])
		u.links = append(u.links, links)
		for _, link := range links {
			u.byLink[link] = append(u.byLink[link], g)
		}
	}
	return g
}
