package desired

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// Restored is the state of a recent restore from a backup. Ranges of ports, addresses of pools and slots that were
// allocated after the backup are not in the store, and must not be allocated again.
type Restored struct {
	At      model.Generation // of the newest step of the restore; 0: there is none
	Settled bool             // the nodes have reported what they hold: ranges and addresses are allocated again
}

// Pending says whether nothing may be allocated, because what nodes hold is not known yet.
func (r Restored) Pending() bool { return r.At != 0 && !r.Settled }

// reservedSlots is how many free slots of an endpoint are not allocated for a while after a restore. Slots are
// allocated from the lowest free one on, so these may have gone to backends that were added after the backup, and
// segments of open connections may still carry them.
const reservedSlots = 64

// passOver is how many free slots of an endpoint that has rows are passed over. It differs from restore to restore of
// one backup.
func (r Restored) passOver(rows []Row) int {
	if r.At == 0 || len(rows) == 0 {
		return 0
	}
	return reservedSlots + int(r.At%reservedSlots)
}

// ReportedPorts are the ranges that a host says a workload has. Ranges of a workload that the host says it has none of
// are empty, but there.
type ReportedPorts struct {
	Host   string
	Ranges []model.Range
}

// RestorePorts returns the port allocations of the VIP at an address after a restore. What a host reports of its
// workload counts, as it is newer than the backup and no two hosts ever had one range. Of a workload without a report
// the backup counts, except for ranges that others have. Ranges that only the backup has go into quarantine, and so do
// those that a host reports of a workload that is not its own.
func (s State) RestorePorts(address netip.Addr, told map[model.SNATKey][]ReportedPorts, now time.Time) map[model.SNATKey]PortAllocation {
	t := takeOver{State: s, owner: map[model.Range]model.SNATKey{}, next: map[model.SNATKey]PortAllocation{}, told: map[model.SNATKey]bool{}}
	keys := slices.SortedFunc(maps.Keys(told), model.SNATKey.Compare)
	for _, confirmed := range []bool{true, false} { // what backup and host agree on goes first
		for _, key := range keys {
			if key.VIP == address {
				t.own(key, told[key], confirmed)
			}
		}
	}
	for key, backup := range s.PortAllocations(address) {
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
	State
	owner map[model.Range]model.SNATKey // of ranges that are held or in quarantine
	next  map[model.SNATKey]PortAllocation
	told  map[model.SNATKey]bool // keys that their own host reported
}

// own allocates the ranges that its host reports to the workload of a key, up to its limit: those that the backup has
// too if confirmed, else the others.
func (t *takeOver) own(key model.SNATKey, told []ReportedPorts, confirmed bool) {
	vip, w, listed := t.SNATClientWithVIP(key)
	if !listed {
		return
	}
	backup := t.Ports.At(key)
	for _, one := range told {
		if one.Host != w.Host {
			continue
		}
		t.told[key] = true
		h := t.next[key]
		h.Host = w.Host
		for _, r := range one.Ranges {
			_, had := slices.BinarySearch(backup.Ranges, r)
			if _, taken := t.owner[r]; taken || had != confirmed || r == 0 || !had && len(h.Ranges) >= int(vip.SNAT.MaxPorts)/model.RangePorts {
				continue
			}
			t.owner[r] = key
			h.Ranges = append(h.Ranges, r)
		}
		t.next[key] = h
	}
}

// complete gives a workload what is left to it of the backup.
func (t *takeOver) complete(key model.SNATKey, backup PortAllocation, now time.Time) {
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
func (t *takeOver) quarantineStrays(address netip.Addr, keys []model.SNATKey, told map[model.SNATKey][]ReportedPorts, now time.Time) {
	vip, _ := t.VIPAt(address)
	most := snat.Ranges
	if vip.SNAT != nil {
		most = int(vip.SNAT.MaxPorts) / model.RangePorts
	}
	for _, key := range keys {
		if key.VIP != address {
			continue
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
