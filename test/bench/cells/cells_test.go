package main

import (
	"strings"
	"testing"
)

// In worlds of random failures no VIP is served by two cells, quotas hold, and nothing that a cell has is withdrawn; without
// failures everything comes to its place.
func TestCells(t *testing.T) {
	t.Parallel()
	var sum counts
	for seed := range uint64(300) {
		w := newWorld(seed, faults{})
		if err := w.run(600); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.add(w.counts)
	}
	t.Logf("%+v", sum)
	for what, n := range map[string]int{
		"handed over": sum.Handed, "cancelled": sum.Cancelled, "admitted": sum.Admitted, "admitted by a cell that was cut off": sum.CutOff,
		"refused": sum.Refused, "deleted": sum.Deleted, "quotas changed": sum.Quotas, "messages lost": sum.Lost,
	} {
		if n < 1000 {
			t.Errorf("%d %s: the worlds are idle", n, what)
		}
	}
}

// Each part of the design is needed: without it the oracle finds what goes wrong.
func TestOracleFindsFaults(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		faults faults
		want   string // one of them, parted by |
	}{
		"a release of another epoch counts":         {faults{epochsIgnored: true}, "both own|both serve"},
		"views are taken in any order":              {faults{versionsIgnored: true}, "both own|both serve|may use"},
		"a part of another lease counts":            {faults{numbersIgnored: true}, "may use|are leased"},
		"muxes that are cut off are not waited for": {faults{muxesNotAwaited: true}, "both serve"},
		"an address that comes back was never away": {faults{returnsForgot: true}, "cells have"},
		"what a silent cell has is given away":      {faults{silentReplaced: true}, "both own|both serve"},
		"what ran out is leased again":              {faults{expiredCounted: true}, "may use|are leased"},
		"a cell that is cut off withdraws":          {faults{cutOffWithdraws: true}, "withdrew"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(300) {
				err := newWorld(seed, c.faults).run(600)
				if err == nil {
					continue
				}
				for want := range strings.SplitSeq(c.want, "|") {
					if strings.Contains(err.Error(), want) {
						return
					}
				}
				t.Fatalf("seed %d: %v, want %q", seed, err, c.want)
			}
			t.Error("the oracle finds nothing")
		})
	}
}
