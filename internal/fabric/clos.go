package fabric

import (
	"fmt"

	"github.com/weirlb/weir/internal/traffic"
)

// Clos describes a fabric of three tiers by parameters. Each aggregation switch of a container is in a plane of its own,
// and has a link to each core of that plane. With no aggregation switches it has two tiers: each switch of a rack has a
// link to each core.
type Clos struct {
	Containers       int
	TorsPerContainer int
	AggsPerContainer int
	Cores            int
	TorUplink        traffic.Rate
	AggUplink        traffic.Rate
	Limits           *Limits // of each switch; nil: DefaultLimits
}

// PaperClos is the fabric of the paper's simulation (section 8.1).
var PaperClos = Clos{
	Containers: 40, TorsPerContainer: 40, AggsPerContainer: 4, Cores: 40, TorUplink: 10_000_000, AggUplink: 40_000_000,
}

// maxSwitches bounds a fabric that parameters can ask for.
const maxSwitches = 1 << 17

// Spec lists the switches and links.
func (c Clos) Spec() (Spec, error) {
	switch {
	case c.Containers < 1 || c.TorsPerContainer < 1 || c.Cores < 1 || c.AggsPerContainer < 0:
		return Spec{}, fmt.Errorf("clos: %d containers of %d ToRs and %d aggregation switches, %d cores: "+
			"use at least one container, ToR and core", c.Containers, c.TorsPerContainer, c.AggsPerContainer, c.Cores)
	case c.AggsPerContainer > 0 && c.Cores%c.AggsPerContainer != 0:
		return Spec{}, fmt.Errorf("clos: %d cores do not divide among %d aggregation switches of a container: "+
			"make cores a multiple of aggsPerContainer, or list the links", c.Cores, c.AggsPerContainer)
	case c.Containers > maxSwitches || c.TorsPerContainer > maxSwitches || c.AggsPerContainer > maxSwitches ||
		c.Cores > maxSwitches || c.Containers*(c.TorsPerContainer+c.AggsPerContainer)+c.Cores > maxSwitches:
		return Spec{}, fmt.Errorf("clos: more than %d switches: make it smaller", maxSwitches)
	}
	var s Spec
	for i := range c.Cores {
		s.Switches = append(s.Switches, SwitchSpec{Name: fmt.Sprintf("core-%d", i+1), Limits: c.Limits})
	}
	for k := range c.Containers {
		c.addContainer(&s, k)
	}
	return s, nil
}

func (c Clos) addContainer(s *Spec, k int) {
	perPlane := c.Cores
	if c.AggsPerContainer > 0 {
		perPlane = c.Cores / c.AggsPerContainer
	}
	for p := range c.AggsPerContainer {
		name := fmt.Sprintf("agg-%d-%d", k+1, p+1)
		s.Switches = append(s.Switches, SwitchSpec{Name: name, Limits: c.Limits})
		for i := range perPlane {
			s.Links = append(s.Links, LinkSpec{A: name, B: fmt.Sprintf("core-%d", p*perPlane+i+1), Rate: c.AggUplink})
		}
	}
	for t := range c.TorsPerContainer {
		name := fmt.Sprintf("tor-%d-%d", k+1, t+1)
		s.Switches = append(s.Switches, SwitchSpec{Name: name, Limits: c.Limits})
		s.Racks = append(s.Racks, RackSpec{Name: fmt.Sprintf("rack-%d-%d", k+1, t+1), Switch: name})
		for p := range c.AggsPerContainer {
			s.Links = append(s.Links, LinkSpec{A: name, B: fmt.Sprintf("agg-%d-%d", k+1, p+1), Rate: c.TorUplink})
		}
		for i := range perPlane {
			if c.AggsPerContainer == 0 {
				s.Links = append(s.Links, LinkSpec{A: name, B: fmt.Sprintf("core-%d", i+1), Rate: c.TorUplink})
			}
		}
	}
}
