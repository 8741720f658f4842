package snatport

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// Reported are the ranges that a host says a workload has. Ranges of a workload that the host says it has none of
// are empty, but there.
type Reported struct {
	Host   string
	Ranges []model.Range
}

// Restore returns the port allocations of the VIP at an address after a restore from a backup; vip is empty if none has the address. What a host reports of its
// workload counts, as it is newer than the backup and no two hosts ever had one range. Of a workload without a report
// the backup counts, except for ranges that others have. Ranges that only the backup has go into quarantine, and so do
// those that a host reports of a workload that is not its own.
func (a Allocations) Restore(address netip.Addr, vip model.VIP, told map[model.SNATKey][]Reported, now time.Time) map[model.SNATKey]Allocation {
	t := takeOver{Allocations: a, limits: a.Limits(vip), vip: vip, owner: map[model.Range]model.SNATKey{}, next: map[model.SNATKey]Allocation{}, told: map[model.SNATKey]bool{}}
	keys := slices.SortedFunc(maps.Keys(told), model.SNATKey.Compare)
	for _, confirmed := range []bool{true, false} { // what backup and host agree on goes first
		for _, key := range keys {
			if key.VIP == address {
				t.own(key, told[key], confirmed)
			}
		}
	}
	for key, backup := range a.Of(address) {
		t.complete(key, backup, now)
	}
	for key, h := range t.next {
		slices.Sort(h.Ranges)
		t.next[key] = h
	}
	t.quarantineStrays(address, keys, told, now)
	return t.next
}

type takeOver struct {
	Allocations
	limits map[model.SNATKey]int
	vip    model.VIP
	owner  map[model.Range]model.SNATKey // of ranges that are held or in quarantine
	next   map[model.SNATKey]Allocation
	told   map[model.SNATKey]bool // keys that their own host reported
}

// own allocates the ranges that its host reports to the workload of a key, up to its limit: those that the backup has
// too if confirmed, else the others.
func (t *takeOver) own(key model.SNATKey, told []Reported, confirmed bool) {
	w, listed := t.Client(key)
	if !listed {
		return
	}
	backup := t.At(key)
	for _, one := range told {
		if one.Host != w.Host {
			continue
		}
		t.told[key] = true
		h := t.next[key]
		h.Host = w.Host
		for _, r := range one.Ranges {
			_, had := slices.BinarySearch(backup.Ranges, r)
			if _, taken := t.owner[r]; taken || had != confirmed || r == 0 || !had && len(h.Ranges) >= t.limits[key] {
				continue
			}
			t.owner[r] = key
			h.Ranges = append(h.Ranges, r)
		}
		t.next[key] = h
	}
}

// complete gives a workload what is left to it of the backup.
func (t *takeOver) complete(key model.SNATKey, backup Allocation, now time.Time) {
	h := t.next[key]
	h.Host = cmp.Or(h.Host, backup.Host)
	free := func(ranges []model.Range) (left []model.Range) {
		for _, r := range ranges {
			if _, taken := t.owner[r]; !taken {
				t.owner[r] = key
				left = append(left, r)
			}
		}
		return left
	}
	left := free(backup.Ranges)
	if t.told[key] {
		if len(left) > 0 {
			h.Quarantined = append(h.Quarantined, Quarantined{Since: now, Ranges: left})
		}
	} else {
		h.Ranges = append(h.Ranges, left...)
	}
	for _, r := range backup.Quarantined {
		if left := free(r.Ranges); len(left) > 0 {
			h.Quarantined = append(h.Quarantined, Quarantined{Since: now, Ranges: left})
		}
	}
	for _, r := range backup.Reclaim {
		if slices.Contains(h.Ranges, r) {
			h.Reclaim = append(h.Reclaim, r)
		}
	}
	t.next[key] = h
}

// quarantineStrays puts ranges that hosts reported and no workload got into quarantine, up to what a workload may have.
func (t *takeOver) quarantineStrays(address netip.Addr, keys []model.SNATKey, told map[model.SNATKey][]Reported, now time.Time) {
	for _, key := range keys {
		if key.VIP != address {
			continue
		}
		most := snat.Ranges
		if limit, listed := t.limits[key]; listed {
			most = limit
		} else if t.vip.SNAT != nil {
			most = int(t.vip.SNAT.MaxPorts) / model.RangePorts
		}
		for _, one := range told[key] {
			var strays []model.Range
			for _, r := range one.Ranges {
				if _, taken := t.owner[r]; !taken && r != 0 && len(strays) < most {
					t.owner[r] = key
					strays = append(strays, r)
				}
			}
			if len(strays) == 0 {
				continue
			}
			slices.Sort(strays)
			h := t.next[key]
			h.Host = cmp.Or(h.Host, one.Host)
			h.Quarantined = append(h.Quarantined, Quarantined{Since: now, Ranges: strays})
			t.next[key] = h
		}
	}
}
