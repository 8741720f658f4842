package table

import (
	"maps"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/fabric/cabling"
)

// Fabrics has a row for each network of a data center.
func Fabrics(fabrics []*weirv1.Fabric) *Table {
	t := New("", "no fabric: weir apply -f FILE makes one", "NAME", "SWITCHES", "LINKS", "RACKS", "LINK SHARE")
	for _, m := range fabrics {
		f, err := compile.Fabric(m)
		if err != nil { // of a newer release
			t.Add(m.GetName(), "", "", "", "")
			continue
		}
		t.Add(m.GetName(), len(f.Switches), len(f.Links)/2, len(f.Racks), f.LinkShare)
	}
	return t
}

// FabricLinks has a row for each two switches whose links are other than declared.
func FabricLinks(known map[cabling.Pair]cabling.Difference) *Table {
	t := New("  ", "nothing that is known", "SWITCHES", "MISSING", "DOWN", "UNEXPECTED", "PORT")
	for _, pair := range slices.SortedFunc(maps.Keys(known), cabling.Pair.Compare) {
		if d := known[pair]; d != (cabling.Difference{}) {
			t.Add(pair, d.Missing, d.Down, d.Unexpected, d.Port)
		}
	}
	return t
}
