package snat

import (
	"fmt"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Counts of source NAT are exact while the programs alone change tables and no workload changes its tenant. An upgrade
// or such a change puts them off, and the sweep, which counts rows, corrects them. Concurrent packets make single
// readings inexact: a count is corrected only if two consecutive sweeps see the same error.

// snatCount names a count that may be off: of a workload, of a tenant, or of what all have borrowed.
type snatCount struct {
	workload, tenant uint32 // one of them, or none
	table            int
}

// Off is by how much counts differ from what they count.
func (a Accounts) Off() map[snatCount]int32 {
	off := make(map[snatCount]int32)
	sums := make([][Tables]int32, len(a.Tenants))
	for number, state := range a.States {
		for table, rows := range state.Rows {
			if lacks := int32(state.Found[table] - rows); lacks != 0 && number != 0 {
				off[snatCount{workload: uint32(number), table: table}] = lacks
			}
			sums[state.Tenant][table] += int32(rows)
		}
	}
	var lent [Tables]int32
	for number, row := range a.Tenants[1:] {
		number++
		for table, rows := range row.Rows {
			if lacks := sums[number][table] - int32(rows); lacks != 0 {
				off[snatCount{tenant: uint32(number), table: table}] = lacks
			}
			lent[table] += max(int32(rows)-int32(row.Guaranteed[table]), 0)
		}
	}
	for table, rows := range a.Tenants[0].Rows {
		if lacks := lent[table] - int32(rows); lacks != 0 {
			off[snatCount{table: table}] = lacks
		}
	}
	return off
}

// reconcile corrects counts by errors that the last sweep has found, too.
func (t *Shares) reconcile(a Accounts) error {
	off := a.Off()
	for count, lacks := range off {
		if t.off[count] != lacks {
			continue
		}
		var err error
		if count.workload != 0 {
			err = bpf.Call(t.objects.SnatReconcile, &bpf.AgentSnatReconcileCall{Workload: count.workload, Table: uint32(count.table), Off: lacks})
		} else {
			row := a.Tenants[count.tenant]
			err = bpf.Call(t.objects.SnatShare, &bpf.AgentSnatShareCall{
				Tenant: count.tenant, Table: uint32(count.table), Guaranteed: row.Guaranteed[count.table], Limit: row.Limit[count.table], Off: lacks,
			})
		}
		if err != nil {
			return fmt.Errorf("mend counts of source NAT: %w", err)
		}
		delete(off, count)
	}
	t.off = off
	return nil
}
