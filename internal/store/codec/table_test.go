package codec

import (
	"fmt"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// A manager has each table in memory: rows take no more room than they need.
func TestADecodedTableHasNoSlack(t *testing.T) {
	var d TableDocument
	for i := range 10 {
		d.Rows = append(d.Rows, rowDocument{Slot: model.Slot(i + 1), Backend: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:80", i+1))})
	}
	table, err := d.Table()
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 10 || cap(table.Rows) != 10 {
		t.Errorf("%d rows have room for %d", len(table.Rows), cap(table.Rows))
	}
	if size := unsafe.Sizeof(desired.Row{}); size > 88 {
		t.Errorf("a row takes %d bytes: put its small fields together", size)
	}
	if size := unsafe.Sizeof(model.Backend{}); size > 88 {
		t.Errorf("a backend takes %d bytes: put its small fields together", size)
	}
	if empty, err := (TableDocument{}).Table(); err != nil || !empty.Equal(desired.Table{}) || empty.Rows != nil {
		t.Errorf("an empty document has the table %+v: %v", empty, err)
	}
}
