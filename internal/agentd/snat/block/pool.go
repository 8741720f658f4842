package block

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// Pool is the port block of one VIP. The zero value has no ranges, and was told of none.
type Pool struct {
	ranges map[model.Range]*entry
	told   bool // the manager has told which ranges these are
}

// entry is a range of the block.
type entry struct {
	owner     netip.Addr // invalid: nobody's
	last      rest       // before it was nobody's
	reclaimed bool       // by the manager: for no new connection
	offered   bool       // to the manager, which may have taken it already
}

// rest is of a range that a workload has returned.
type rest struct {
	owner netip.Addr    // invalid: not known, or nobody ever
	until time.Duration // for others than owner
}

func (p *Pool) init() {
	if p.ranges == nil {
		p.ranges = make(map[model.Range]*entry)
	}
}

// Adopt takes over that a workload has ranges, as the tables show. One that two workloads have is the first one's; before
// the manager has told of the block they are taken for its own.
func (p *Pool) Adopt(workload netip.Addr, ranges []model.Range) {
	p.init()
	for _, r := range ranges {
		e := p.ranges[r]
		if e == nil && !p.told {
			e = &entry{}
			p.ranges[r] = e
		}
		if e != nil && !e.owner.IsValid() {
			e.owner = workload
		}
	}
}

// Told says whether the manager has told of the block.
func (p *Pool) Told() bool { return p.told }

// Replace takes over which ranges the block has, and which of them the manager reclaims. Those that are new rest; those
// that are gone are nobody's here.
func (p *Pool) Replace(ranges, reclaim []model.Range, now time.Duration) {
	p.init()
	held := make(map[model.Range]bool, len(ranges))
	for _, r := range ranges {
		held[r] = true
		if p.ranges[r] == nil {
			p.ranges[r] = &entry{last: rest{until: now + snatport.QuarantineTime}}
		}
		p.ranges[r].reclaimed = false
	}
	for _, r := range reclaim {
		if e := p.ranges[r]; e != nil {
			e.reclaimed = true
		}
	}
	maps.DeleteFunc(p.ranges, func(r model.Range, _ *entry) bool { return !held[r] })
	p.told = true
}

// Refresh takes over that an answer of the manager has freshly given ranges: nobody had them for the quarantine time,
// unless a workload here had.
func (p *Pool) Refresh(given []model.Range, now time.Duration) {
	for _, r := range given {
		if e := p.ranges[r]; e != nil && !e.owner.IsValid() && !e.last.owner.IsValid() {
			e.last.until = min(e.last.until, now)
		}
	}
}

// Rest has all that is nobody's rest anew.
func (p *Pool) Rest(now time.Duration) {
	for _, e := range p.ranges {
		if !e.owner.IsValid() {
			e.last.until = now + snatport.QuarantineTime
		}
	}
}

// end has the range be nobody's: it rests.
func (e *entry) end(now time.Duration) {
	if e.owner.IsValid() {
		e.last, e.owner = rest{owner: e.owner, until: now + snatport.QuarantineTime}, netip.Addr{}
	}
}

// isFree says whether a workload can have the range now.
func (e *entry) isFree(workload netip.Addr, now time.Duration) bool {
	return !e.owner.IsValid() && !e.reclaimed && !e.offered && (e.last.until <= now || e.last.owner == workload && workload.IsValid())
}

// Give gives a workload up to n ranges more, and returns which: its own that rest first, then those that have rested
// longest.
func (p *Pool) Give(workload netip.Addr, n int, now time.Duration) []model.Range {
	var free []model.Range
	for r, e := range p.ranges {
		if p.told && e.isFree(workload, now) {
			free = append(free, r)
		}
	}
	slices.SortFunc(free, func(a, b model.Range) int {
		return cmp.Or(-compareBools(p.ranges[a].last.owner == workload, p.ranges[b].last.owner == workload),
			cmp.Compare(p.ranges[a].last.until, p.ranges[b].last.until), cmp.Compare(a, b))
	})
	free = free[:min(len(free), max(n, 0))]
	for _, r := range free {
		p.ranges[r].owner = workload
	}
	slices.Sort(free)
	return free
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Return takes ranges back from a workload. What it does not have is passed over.
func (p *Pool) Return(workload netip.Addr, ranges []model.Range, now time.Duration) {
	for _, r := range ranges {
		if e := p.ranges[r]; e != nil && e.owner == workload {
			e.end(now)
		}
	}
}

// Of are the ranges that a workload has, in order, and those of them that the manager reclaims.
func (p *Pool) Of(workload netip.Addr) (ranges, reclaim []model.Range) {
	for r, e := range p.ranges {
		if e.owner != workload {
			continue
		}
		if ranges = append(ranges, r); e.reclaimed {
			reclaim = append(reclaim, r)
		}
	}
	slices.Sort(ranges)
	slices.Sort(reclaim)
	return ranges, reclaim
}

// Ranges are all of the block, in order, and how many of them workloads have.
func (p *Pool) Ranges() (all []model.Range, lent int) {
	for _, e := range p.ranges {
		if e.owner.IsValid() {
			lent++
		}
	}
	return slices.Sorted(maps.Keys(p.ranges)), lent
}

// Has says whether a range is of the block.
func (p *Pool) Has(r model.Range) bool { return p.ranges[r] != nil }

// Free is how many ranges any workload can have now.
func (p *Pool) Free(now time.Duration) (n int) {
	for _, e := range p.ranges {
		if e.isFree(netip.Addr{}, now) {
			n++
		}
	}
	return n
}

// minStock is how many ranges a host that has asked for some keeps free at least, as far as it got so many.
const minStock = 8

// Stock is how many ranges the host is to have free, which last got so many: as many as its workloads have, and no more
// than that. More are given back when they are idle.
func (p *Pool) Stock(granted int) int {
	_, lent := p.Ranges()
	return min(granted, max(lent, minStock))
}

// IsLow says whether more are to be asked for ahead of need: less than half of the stock is free.
func (p *Pool) IsLow(granted int, now time.Duration) bool { return 2*p.Free(now) < p.Stock(granted) }

// Offer returns what the manager is to have back, and gives it to nobody from then on: what it reclaims, what was offered
// and not answered, and what has been free for longer than idle, but for the last keep.
func (p *Pool) Offer(keep int, idle, now time.Duration) []model.Range {
	var offered, unused []model.Range
	for r, e := range p.ranges {
		switch {
		case e.owner.IsValid():
		case e.reclaimed || e.offered:
			offered = append(offered, r)
		case e.last.until+idle <= now:
			unused = append(unused, r)
		}
	}
	slices.Sort(unused)
	if surplus := p.Free(now) - keep; surplus > 0 {
		offered = append(offered, unused[len(unused)-min(surplus, len(unused)):]...)
	}
	slices.Sort(offered)
	for _, r := range offered {
		p.ranges[r].offered = true
	}
	return offered
}
