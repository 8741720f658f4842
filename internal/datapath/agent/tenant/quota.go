package tenant

import (
	"slices"

	"github.com/weirlb/weir/internal/fairshare"
)

// Quota is how many rows of a table a VIP or a tenant may have.
type Quota struct {
	Guaranteed int // in any case
	Limit      int // as long as others leave room
}

// ShareTable divides a table's rows: half of them are guaranteed to the parties by weight; the rest they borrow, each up
// to its part by weight once that does not do for all. With lendIdle, half of what a party does not use of its guaranteed
// share is lent, too; the other half is for what begins until the next sweep.
func ShareTable(rows int, lendIdle bool, parties []fairshare.Claim[int]) (each []Quota, lent int) {
	weights := 0
	for _, p := range parties {
		weights += p.Weight
	}
	each, lent = make([]Quota, len(parties)), rows
	beyond := slices.Clone(parties)
	for i, p := range parties {
		guaranteed := rows / 2 * p.Weight / weights
		if lendIdle {
			guaranteed -= max(guaranteed-p.Want, 0) / 2
		}
		each[i].Guaranteed = guaranteed
		beyond[i].Want = max(p.Want-guaranteed, 0)
		lent -= guaranteed
	}
	borrows, left := fairshare.Divide(lent, beyond)
	for i := range each {
		each[i].Limit = each[i].Guaranteed + borrows[i] + left
	}
	return each, lent
}
