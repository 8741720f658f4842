package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
)

// outage is switches and links that may fail at once.
type outage struct {
	kind, name      string
	switches, links []int32
	weight          float64 // by which those of a group are ordered
}

// findOutages lists, of containers, of switches of each tier and of cables between two tiers, those that carry most;
// a negative number takes all.
func findOutages(f *fabric.Fabric, loads *fabric.Loads, most int) []outage {
	carried := make([]float64, len(f.Switches))
	for i, l := range f.Links {
		carried[l.From] += float64(loads.ByLink[i])
		carried[l.To] += float64(loads.ByLink[i])
	}
	var all []outage
	for _, group := range slices.Concat(containerOutages(f, carried), switchOutages(f, carried), linkOutages(f, loads)) {
		slices.SortFunc(group, func(a, b outage) int {
			return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name))
		})
		if most >= 0 {
			group = group[:min(most, len(group))]
		}
		all = append(all, group...)
	}
	return all
}

// containerOutages is one group, of containers, if there are several.
func containerOutages(f *fabric.Fabric, carried []float64) [][]outage {
	var group []outage
	at := map[int32]int{} // by container
	for i, s := range f.Switches {
		if s.Down || s.Container < 0 {
			continue
		}
		n, ok := at[s.Container]
		if !ok {
			n = len(group)
			at[s.Container] = n
			group = append(group, outage{kind: "container", name: "of " + s.Name})
		}
		group[n].switches = append(group[n].switches, int32(i))
		group[n].weight += carried[i]
	}
	if len(group) < 2 {
		return nil
	}
	return [][]outage{group}
}

// switchOutages is a group for each tier, the lowest first.
func switchOutages(f *fabric.Fabric, carried []float64) [][]outage {
	groups := make([][]outage, f.Tiers)
	for i, s := range f.Switches {
		if !s.Down {
			o := outage{kind: "switch", name: s.Name, switches: []int32{int32(i)}, weight: carried[i]}
			groups[s.Tier] = append(groups[s.Tier], o)
		}
	}
	return groups
}

// linkOutages is a group for each two tiers that cables join.
func linkOutages(f *fabric.Fabric, loads *fabric.Loads) [][]outage {
	var groups [][]outage
	at := map[string]int{} // by tiers
	for i := 0; i < len(f.Links); i += 2 {
		l, back := f.Links[i], f.Links[i+1]
		if l.Down {
			continue
		}
		a, b := f.Switches[l.From], f.Switches[l.To]
		key := fmt.Sprint(min(a.Tier, b.Tier), max(a.Tier, b.Tier))
		n, ok := at[key]
		if !ok {
			n = len(groups)
			at[key] = n
			groups = append(groups, nil)
		}
		used := max(float64(loads.ByLink[i])/float64(l.Rate), float64(loads.ByLink[i+1])/float64(back.Rate))
		groups[n] = append(groups[n], outage{
			kind: "link", name: a.Name + " to " + b.Name, links: []int32{int32(i)}, weight: used,
		})
	}
	return groups
}
