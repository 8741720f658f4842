package table

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
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
