package placementpolicy

import (
	"fmt"
	"slices"
)

// Part is which of the parts of a VIP's members, of equal weight, a switch has. The zero value is all of them.
type Part struct {
	Number uint32 `json:"number,omitempty"` // from 1
	Of     uint32 `json:"of,omitempty"`
}

// String is as "2/3"; empty: all.
func (p Part) String() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.Number, p.Of)
}

// Serves says whether the switch serves the VIP, or is about to.
func (p Phase) Serves() bool {
	return p == Preparing || p == Programming || p == Announcing || p == Hardware
}

// Share gives each of the switches that a VIP names its part of the members, in a State that is being made. Those that serve
// the VIP, or are about to, share all of them; one that is silent may be dead, so the others have its part too. Where that
// has no room, each that is named has one part, and what is of those that do not serve no switch brings packets to. A part
// of a switch that does not serve stays as it was. fits says whether a switch has room for a part.
func (s State) Share(named []string, silent func(name string) bool, fits func(name string, p Part) bool) {
	named = slices.Sorted(slices.Values(named))
	serving := slices.DeleteFunc(slices.Clone(named), func(name string) bool { return !s.Places[name].Phase.Serves() || silent(name) })
	next := s.parts(serving)
	for name, part := range next {
		was := s.Places[name]
		has := was.Phase.Held() && was.Part == part
		if len(serving) < len(named) && !has && !fits(name, part) {
			next = s.parts(named)
			break
		}
	}
	s.set(next)
}

// Whole gives each of the switches that a VIP names all members.
func (s State) Whole(named []string) {
	whole := map[string]Part{}
	for _, name := range named {
		whole[name] = Part{}
	}
	s.set(whole)
}

// parts divides the members among switches.
func (s State) parts(among []string) map[string]Part {
	parts := map[string]Part{}
	for i, name := range among {
		parts[name] = Part{uint32(i + 1), uint32(len(among))}
	}
	if len(among) == 1 {
		parts[among[0]] = Part{}
	}
	return parts
}

// set changes the parts of switches that have a place and may serve.
func (s State) set(parts map[string]Part) {
	for name, part := range parts {
		if place, there := s.Places[name]; there && place.Phase.Serves() {
			place.Part = part
			s.Places[name] = place
		}
	}
}
