package fabric

import (
	"fmt"
	"slices"
)

// Uneven says where packets begin that do not reach all of these switches alike, if all announce an address: routers take
// the shortest paths. Empty: there is no such place, or the fabric does not have all of the switches.
func (f *Fabric) Uneven(names []string) string {
	var members []int32
	for _, name := range names {
		i := slices.IndexFunc(f.Switches, func(s Switch) bool { return s.Name == name })
		if i < 0 {
			return ""
		}
		if !f.Switches[i].Down {
			members = append(members, int32(i))
		}
	}
	if len(members) < 2 {
		return ""
	}
	for _, m := range members {
		if f.Switches[m].Leaf >= 0 {
			return fmt.Sprintf("hosts below %s reach it before the others", f.Switches[m].Name)
		}
	}
	routes := NewRouter(f).Routes(members)
	if !isEven(routes.outside.arrive) {
		return "packets from outside do not reach all alike"
	}
	for class, way := range routes.in {
		if !isEven(way.arrive) {
			i := slices.IndexFunc(f.Racks, func(r Rack) bool { return f.leaves[r.Leaf].class == int32(class) })
			return fmt.Sprintf("packets of rack %s do not reach all alike", f.Racks[i].Name)
		}
	}
	return ""
}
