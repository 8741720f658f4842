package desired

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// slotsIn are the slots that a table's buckets name.
func slotsIn(t Table) map[model.Slot]bool {
	named := map[model.Slot]bool{}
	for _, slot := range t.MuxBuckets() {
		named[slot] = true
	}
	return named
}

// A backend whose host has not joined is in no bucket, whatever becomes of the others; when the host joins it is one as any.
func TestABackendWaitsForItsHost(t *testing.T) {
	for _, checked := range []bool{false, true} {
		w := newWorld()
		here, away := backend(1, 1), backend(2, 1)
		away.Host = "host9"
		vip := shop(checked, here, away)
		if checked {
			w.report(vip, here, model.HealthHealthy)
			w.report(vip, away, model.HealthHealthy) // of nobody: the host is not there
		}
		table := w.apply(vip)
		slots := table.Slots()
		if named := slotsIn(table); len(named) != 1 || !named[slots[here.AddrPort()]] {
			t.Fatalf("checked %v: buckets name %v, want slot %d alone", checked, named, slots[here.AddrPort()])
		}
		if row, _ := table.Row(slots[away.AddrPort()]); !row.Down || len(table.Moves) > 0 {
			t.Errorf("checked %v: the row of the absent host is %+v, moves %v", checked, row, table.Moves)
		}
		if checked { // nobody is well: the policy keeps those whose hosts are there
			w.report(vip, here, model.HealthUnhealthy)
			if named := slotsIn(w.apply(vip)); len(named) != 1 || !named[slots[here.AddrPort()]] {
				t.Errorf("with no healthy backend buckets name %v, want slot %d alone", named, slots[here.AddrPort()])
			}
			w.report(vip, here, model.HealthHealthy)
			w.apply(vip)
		}
		w.PutNode(model.Node{Name: "host9", Role: model.RoleHost})
		table = w.apply(vip)
		if named := slotsIn(table); len(named) != 2 {
			t.Errorf("checked %v: the host joined, and buckets name %v", checked, named)
		}
		if row, _ := table.Row(slots[away.AddrPort()]); row.Down {
			t.Errorf("checked %v: the host joined, and its row is down", checked)
		}
	}
}

// Without any host that has joined nothing is served, and the first one that joins serves alone.
func TestAllHostsAreAway(t *testing.T) {
	w := newWorld()
	a, b := backend(1, 1), backend(2, 1)
	a.Host, b.Host = "host8", "host9"
	vip := shop(false, a, b)
	if table := w.apply(vip); len(table.MuxBuckets()) != 0 || !table.Closed {
		t.Errorf("nobody is there, and buckets are %v", slotsIn(table))
	}
	w.PutNode(model.Node{Name: "host8", Role: model.RoleMux}) // a mux of the name serves nothing
	if table := w.apply(vip); len(table.MuxBuckets()) != 0 {
		t.Errorf("a mux serves %v", slotsIn(table))
	}
	w.PutNode(model.Node{Name: "host9", Role: model.RoleHost})
	if named := slotsIn(w.apply(vip)); len(named) != 1 {
		t.Errorf("one host joined, and buckets name %v", named)
	}
	if got, want := PendingHosts(&w.State, vip), []string{"host8 is a mux, not a host"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// However many hosts are named, ten lines say so.
func TestPendingHostsAreToldBriefly(t *testing.T) {
	var s State
	vip := model.VIP{Name: "crowd", SNAT: &model.SNAT{Workloads: []model.SNATWorkload{{Host: "zz"}}}}
	for n := range 1000 {
		vip.Endpoints = append(vip.Endpoints, model.Endpoint{Backends: []model.Backend{{Host: fmt.Sprintf("host%04d", n)}, {Host: "host0000"}}})
	}
	lines := PendingHosts(&s, vip)
	if len(lines) != MaxPending || lines[0] != "host host0000 has not joined" || lines[MaxPending-1] != "992 more hosts have not joined" {
		t.Errorf("told %d lines: %s", len(lines), strings.Join(lines, "\n"))
	}
}
