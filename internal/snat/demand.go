package snat

import (
	"time"

	"github.com/weirlb/weir/internal/model"
)

// Bounds of a prediction: requests that come closer together than Window get more at a time, twice as much
// each time, up to MaxGrant ranges and a part of what is free.
const (
	Window    = 5 * time.Second
	MaxGrant  = 32
	freeShare = 16
)

// Demand is what is known of a workload's requests. Its zero value is nothing.
type Demand struct {
	last time.Time
	gave int // ranges
}

// Idle says whether the demand foretells nothing any more.
func (d Demand) Idle(now time.Time) bool { return now.Sub(d.last) >= Window }

// Next is how many ranges a request gets that needs some ports at once, if so many are free in the VIP and
// the workload may have so many more. It does not note that they were given.
func (d Demand) Next(now time.Time, need uint32, free, allowed int) int {
	least := int(min((uint64(need)+model.RangePorts-1)/model.RangePorts, MaxGrant))
	n := 1
	if !d.Idle(now) {
		n = min(2*d.gave, MaxGrant, free/freeShare)
	}
	return min(max(n, least, 1), free, allowed)
}

// Gave notes that a request got some ranges.
func (d Demand) Gave(now time.Time, ranges int) Demand { return Demand{last: now, gave: ranges} }
