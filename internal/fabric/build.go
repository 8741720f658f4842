package fabric

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/traffic"
)

// maxRate bounds a bandwidth, so that sums of loads stay within 64 bits: 1 Pbit/s.
const maxRate traffic.Rate = 1e12

// New checks a description and finds tiers, containers, planes and classes from the links. Switches and links are
// numbered by their names, so that nothing depends on the order of the lists.
func New(spec Spec) (*Fabric, error) {
	f, err := build(spec.sorted())
	if err != nil {
		if _, listed := build(spec); listed != nil { // an error names the place in the list
			err = listed
		}
		return nil, err
	}
	return f, nil
}

// sorted is the same fabric with switches and links in the order of their names.
func (s Spec) sorted() Spec {
	s.Switches, s.Links = slices.Clone(s.Switches), slices.Clone(s.Links)
	slices.SortStableFunc(s.Switches, func(a, b SwitchSpec) int { return cmp.Compare(a.Name, b.Name) })
	for i, l := range s.Links {
		if l.A > l.B {
			l.A, l.B, l.Background, l.BackgroundBack = l.B, l.A, l.BackgroundBack, l.Background
			s.Links[i] = l
		}
	}
	isDown := func(l LinkSpec) int {
		if l.Down {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(s.Links, func(a, b LinkSpec) int {
		return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Background, b.Background),
			cmp.Compare(a.BackgroundBack, b.BackgroundBack), cmp.Compare(isDown(a), isDown(b)))
	})
	return s
}

// build makes the fabric of a description.
func build(spec Spec) (*Fabric, error) {
	f := &Fabric{LinkShare: spec.LinkShare}
	if f.LinkShare == 0 {
		f.LinkShare = 80
	}
	if f.LinkShare < 1 || f.LinkShare > 100 {
		return nil, fmt.Errorf("linkShare %d: must be from 1 to 100 percent", spec.LinkShare)
	}
	byName, err := f.addSwitches(spec.Switches)
	if err != nil {
		return nil, err
	}
	for i, l := range spec.Links {
		if err := f.addLink(i, l, byName); err != nil {
			return nil, err
		}
	}
	f.joinLinks()
	if err := f.addRacks(spec.Racks, byName); err != nil {
		return nil, err
	}
	if err := f.findRoles(); err != nil {
		return nil, err
	}
	if err := f.addExternal(spec.External, byName); err != nil {
		return nil, err
	}
	f.findClasses()
	return f, nil
}

func (f *Fabric) addSwitches(specs []SwitchSpec) (map[string]int32, error) {
	if len(specs) == 0 {
		return nil, fmt.Errorf("the fabric has no switches: list some, or give clos parameters")
	}
	byName := make(map[string]int32, len(specs))
	for i, s := range specs {
		if s.Name == "" {
			return nil, fmt.Errorf("switch %d has no name: give it one", i+1)
		}
		if _, ok := byName[s.Name]; ok {
			return nil, fmt.Errorf("switch %q is listed twice: remove one, or rename it", s.Name)
		}
		limits := DefaultLimits
		if s.Limits != nil {
			limits = *s.Limits
		}
		if limits.Hosts < 0 || limits.ECMP < 0 || limits.Tunnels < 0 || limits.Reserve < 0 || limits.Reserve > 100 {
			return nil, fmt.Errorf("switch %q: limits %+v: tables must not be negative, reserve must be from 0 to 100 percent", s.Name, limits)
		}
		byName[s.Name] = int32(i)
		f.Switches = append(f.Switches, Switch{Name: s.Name, Limits: limits, Down: s.Down, Container: -1, Plane: -1, Leaf: -1})
	}
	return byName, nil
}

func (f *Fabric) addLink(i int, l LinkSpec, byName map[string]int32) error {
	a, okA := byName[l.A]
	b, okB := byName[l.B]
	if missing := l.A; !okA || !okB {
		if okA {
			missing = l.B
		}
		return fmt.Errorf("link %d (%s to %s): there is no switch %q: list it among the switches, or correct the name", i+1, l.A, l.B, missing)
	}
	switch {
	case a == b:
		return fmt.Errorf("link %d joins switch %q with itself: remove it", i+1, l.A)
	case l.Rate <= 0 || l.Rate > maxRate:
		return fmt.Errorf("link %d (%s to %s): bandwidth of %d kbit/s: must be above 0 and at most %d; mark a dead link as down instead",
			i+1, l.A, l.B, l.Rate, maxRate)
	case l.Background < 0 || l.Background > l.Rate || l.BackgroundBack < 0 || l.BackgroundBack > l.Rate:
		return fmt.Errorf("link %d (%s to %s): background of %d and %d kbit/s on a bandwidth of %d: must be from 0 to the bandwidth",
			i+1, l.A, l.B, l.Background, l.BackgroundBack, l.Rate)
	}
	down := l.Down || f.Switches[a].Down || f.Switches[b].Down
	f.Links = append(f.Links,
		Link{From: a, To: b, Rate: l.Rate, Background: l.Background, Down: down},
		Link{From: b, To: a, Rate: l.Rate, Background: l.BackgroundBack, Down: down})
	usable := LoadOf(l.Rate) / 100 * Load(f.LinkShare)
	f.capacity = append(f.capacity, usable-LoadOf(l.Background), usable-LoadOf(l.BackgroundBack))
	return nil
}

// joinLinks lists the live ways out of each switch.
func (f *Fabric) joinLinks() {
	f.adjacent = make([][]hop, len(f.Switches))
	for i, l := range f.Links {
		if !l.Down {
			f.adjacent[l.From] = append(f.adjacent[l.From], hop{l.To, int32(i)})
		}
	}
	for _, hops := range f.adjacent {
		slices.SortFunc(hops, func(a, b hop) int { return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.link, b.link)) })
	}
}

func (f *Fabric) addRacks(racks []RackSpec, byName map[string]int32) error {
	if len(racks) == 0 {
		return fmt.Errorf("the fabric has no racks: name the switch above each rack")
	}
	f.hasRack = make([]bool, len(f.Switches))
	seen := make(map[string]bool, len(racks))
	for i, r := range racks {
		sw, ok := byName[r.Switch]
		switch {
		case r.Name == "":
			return fmt.Errorf("rack %d has no name: give it one", i+1)
		case seen[r.Name]:
			return fmt.Errorf("rack %q is listed twice: remove one, or rename it", r.Name)
		case !ok:
			return fmt.Errorf("rack %q is below switch %q, which is not listed: list it, or correct the name", r.Name, r.Switch)
		case f.Switches[sw].Down:
			return fmt.Errorf("rack %q is below switch %q, which is down: remove the rack while it can't be reached", r.Name, r.Switch)
		}
		seen[r.Name], f.hasRack[sw] = true, true
	}
	for sw, has := range f.hasRack {
		if has {
			f.Switches[sw].Leaf = int32(len(f.leaves))
			f.leaves = append(f.leaves, leaf{sw: int32(sw)})
		}
	}
	for _, r := range racks {
		f.Racks = append(f.Racks, Rack{Name: r.Name, Leaf: f.Switches[byName[r.Switch]].Leaf, Prefixes: r.Prefixes})
	}
	var err error
	f.byPrefix, err = newRackIndex(f.Racks)
	return err
}

func (f *Fabric) addExternal(names []string, byName map[string]int32) error {
	for _, name := range names {
		sw, ok := byName[name]
		if !ok {
			return fmt.Errorf("external: there is no switch %q: list it among the switches, or correct the name", name)
		}
		if slices.Contains(f.External, sw) {
			return fmt.Errorf("external: switch %q is listed twice: remove one", name)
		}
		if !f.Switches[sw].Down {
			f.External = append(f.External, sw)
		}
	}
	for i, s := range f.Switches {
		if len(names) == 0 && !s.Down && s.Tier == f.Tiers-1 {
			f.External = append(f.External, int32(i))
		}
	}
	if len(f.External) == 0 {
		return fmt.Errorf("external: all switches are down: traffic from outside can't enter; name one that is up")
	}
	slices.Sort(f.External)
	return nil
}
