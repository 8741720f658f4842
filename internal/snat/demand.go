package snat

import (
	"time"

	"github.com/weirlb/weir/internal/model"
)

// Bounds of the prediction: each request that follows within Window gets twice as many ranges as the last, up to
// MaxGrant and a part of the free ones.
const (
	Window    = 5 * time.Second
	MaxGrant  = 32
	freeShare = 16
)

// Bounds of what is added to a host's port block: each request that follows within BlockWindow gets twice as many ranges
// as the last, from MinBlock to MaxBlock. A block of a VIP with few ports grows by single ranges.
const (
	BlockWindow = time.Minute
	MinBlock    = 8
	MaxBlock    = 64
)

// Demand predicts the demand of a workload from its last request. The zero value predicts none.
type Demand struct {
	last time.Time
	gave int // ranges
}

// Idle says whether the last request is too old for a prediction.
func (d Demand) Idle(now time.Time) bool { return now.Sub(d.last) >= Window }

// Next is how many ranges a request for need ports gets, with free ranges left in the VIP and at most allowed more for
// the workload. It records nothing: see Gave.
func (d Demand) Next(now time.Time, need uint32, free, allowed int) int {
	least := int(min((uint64(need)+model.RangePorts-1)/model.RangePorts, MaxGrant))
	n := 1
	if !d.Idle(now) {
		n = min(2*d.gave, MaxGrant, free/freeShare)
	}
	return min(max(n, least, 1), free, allowed)
}

// Allocated returns the demand after a request got ranges.
func (d Demand) Allocated(now time.Time, ranges int) Demand { return Demand{last: now, gave: ranges} }

// NextBlock is how many ranges a host's port block gets that needs some ports, with free ranges left in a VIP that so
// many hosts share, and at most allowed more for the host: it leaves half of what is free to the others.
func (d Demand) NextBlock(now time.Time, need uint32, free, hosts, allowed int) int {
	n := MinBlock
	if now.Sub(d.last) < BlockWindow {
		n = max(2*d.gave, MinBlock)
	}
	n = max(n, int(min((uint64(need)+model.RangePorts-1)/model.RangePorts, MaxBlock)))
	return min(n, MaxBlock, max(1, free/(2*max(1, hosts))), free, allowed)
}
