package hardware

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// Bounds of what is told of ports.
const (
	MaxPorts    = 512
	maxPortText = 255 // bytes; LLDP has no longer ones
)

// Ports are those of a switch, by name.
type Ports struct {
	All      []Port
	Warnings []string // what an operator should set up otherwise
}

// Port is a port of a switch. Its counters begin anew whenever the switch likes.
type Port struct {
	Name     string
	Up       bool
	MbitPerS uint64 // 0: unknown
	// Neighbour and NeighbourPort are what LLDP says is at the other end. Whoever is there may say what they like.
	Neighbour, NeighbourPort string
	Received, Sent           uint64 // bytes
	Errors                   uint64 // frames with errors, both ways, and those dropped for want of room
}

// NewPorts puts ports in order, and bounds what is told of them: neighbours choose texts.
func NewPorts(all []Port, warnings ...string) Ports {
	for i := range all {
		p := &all[i]
		p.Name, p.Neighbour, p.NeighbourPort = portText(p.Name), portText(p.Neighbour), portText(p.NeighbourPort)
	}
	slices.SortFunc(all, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	if len(all) > MaxPorts {
		all = all[:MaxPorts]
		warnings = append(warnings, "there are more ports than are told of")
	}
	return Ports{all, warnings}
}

// portText is a text without what would disturb a terminal, within its bound.
func portText(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, s[:min(len(s), maxPortText)])
}
