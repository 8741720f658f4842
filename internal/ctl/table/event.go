package table

import (
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/elapsed"
)

// Events has a row for each event.
func Events(indent string, events []*weirv1.Event, now time.Time) *Table {
	t := New(indent, "no events", "LAST", "SEVERITY", "OBJECT", "REASON", "COUNT", "SOURCE", "MESSAGE")
	for _, e := range events {
		t.Add(elapsed.Ago(e.GetLastTime(), now), e.GetSeverity(), EventObject(e), e.GetReason(), e.GetCount(), e.GetSource(),
			e.GetMessage())
	}
	return t
}

// EventObject is "vip shop" or "mux mux1".
func EventObject(e *weirv1.Event) string {
	switch e.GetKind() {
	case "VIP":
		return "vip " + e.GetObject()
	case "AddressPool":
		return "pool " + e.GetObject()
	case "VirtualNetwork":
		return "network " + e.GetObject()
	}
	return e.GetKind() + " " + e.GetObject()
}
