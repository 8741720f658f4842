package clos

import (
	"fmt"
	"slices"
	"strings"
)

// Picture lists from the border down what is below each router: switches, and machines of racks as they are given.
func (f Fabric) Picture(border uint32, beside string, racks map[string][]string) string {
	var b strings.Builder
	for _, name := range slices.Backward(append(slices.Clone(f.Switches), f.border)) {
		var below []string
		for _, l := range f.Links {
			if l.Upper == name {
				below = append(below, l.Lower)
			}
		}
		text := strings.Join(append(below, racks[name]...), ", ")
		if name == f.border {
			text += "; beside it: " + beside
		}
		fmt.Fprintf(&b, "  %-8s  AS %d  above %s\n", name, f.AS(name, border), text)
	}
	return b.String()
}
