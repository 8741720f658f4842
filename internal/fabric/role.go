package fabric

import (
	"fmt"
	"slices"
)

// distances counts hops of each switch to the nearest target; -1 where there is no way.
func (f *Fabric) distances(targets []int32) []int32 {
	distance := make([]int32, len(f.Switches))
	for i := range distance {
		distance[i] = -1
	}
	queue := slices.Clone(targets)
	for _, t := range targets {
		distance[t] = 0
	}
	for i := 0; i < len(queue); i++ {
		for _, h := range f.adjacent[queue[i]] { // links are up or down in both directions
			if distance[h.peer] < 0 {
				distance[h.peer] = distance[queue[i]] + 1
				queue = append(queue, h.peer)
			}
		}
	}
	return distance
}

// findRoles sets tiers, containers and planes.
func (f *Fabric) findRoles() error {
	var above []int32
	for _, l := range f.leaves {
		above = append(above, l.sw)
	}
	reached := f.distances(above[:1])
	tiers := f.distances(above)
	for i := range f.Switches {
		s := &f.Switches[i]
		if s.Down {
			continue
		}
		if reached[i] < 0 {
			return fmt.Errorf("the fabric is in parts: switch %q has no way to %q: add the missing link, or mark the switch as down",
				s.Name, f.Switches[above[0]].Name)
		}
		s.Tier = tiers[i]
		f.Tiers = max(f.Tiers, s.Tier+1)
	}
	f.findParts(func(s *Switch) bool { return s.Tier < f.Tiers-1 || f.Tiers == 1 }, func(s *Switch) *int32 { return &s.Container })
	f.findParts(func(s *Switch) bool { return s.Tier > 0 }, func(s *Switch) *int32 { return &s.Plane })
	return nil
}

// findParts numbers the connected parts of the switches that are in.
func (f *Fabric) findParts(in func(*Switch) bool, number func(*Switch) *int32) {
	next := int32(0)
	for i := range f.Switches {
		if s := &f.Switches[i]; s.Down || !in(s) || *number(s) >= 0 {
			continue
		}
		*number(&f.Switches[i]) = next
		queue := []int32{int32(i)}
		for j := 0; j < len(queue); j++ {
			for _, h := range f.adjacent[queue[j]] {
				if peer := &f.Switches[h.peer]; in(peer) && *number(peer) < 0 {
					*number(peer) = next
					queue = append(queue, h.peer)
				}
			}
		}
		next++
	}
}

// findClasses groups the leaves by their neighbours.
func (f *Fabric) findClasses() {
	byKey := map[string]int32{}
	for i := range f.leaves {
		l := &f.leaves[i]
		l.ways = f.adjacent[l.sw]
		hops, key := l.ways, []byte{}
		if slices.ContainsFunc(hops, func(h hop) bool { return f.hasRack[h.peer] }) || len(hops) == 0 {
			hops, key, l.ways = []hop{{peer: l.sw}}, []byte{0}, nil
			f.Switches[l.sw].Leaf = -1
		}
		for _, h := range hops {
			key = append(key, byte(h.peer), byte(h.peer>>8), byte(h.peer>>16), byte(h.peer>>24))
		}
		c, ok := byKey[string(key)]
		if !ok {
			c = int32(len(f.classes))
			byKey[string(key)] = c
			f.classes = append(f.classes, f.newClass(hops))
		}
		l.class = c
	}
}

func (f *Fabric) newClass(hops []hop) class {
	var c class
	for _, h := range hops {
		if n := len(c.neighbours); n == 0 || c.neighbours[n-1] != h.peer {
			c.neighbours = append(c.neighbours, h.peer)
			c.parallel = append(c.parallel, 0)
		}
		c.uplinks = append(c.uplinks, int32(len(c.neighbours)-1))
		c.parallel[len(c.neighbours)-1]++
	}
	c.distance = f.distances(c.neighbours)
	return c
}
