// Package live streams what changes all the time: nodes, what needs attention, and rates of traffic.
//
//	WatchNodes   ─▶ look: all nodes, once for all watches, and redacted once ─▶ those that differ from what this watch was told
//	WatchStatus  ─▶ the sums of GetStatus, and package warning, once for all who may see the whole cluster ─▶ if they differ
//	WatchRates   ─▶ muxrate.Meter: the samples of all managers ─▶ what the caller asks for, and may see
//
// Invariants:
//   - a watch holds what it told last and nothing that waits: a slow one skips, and is cut off when it reads nothing;
//   - a caller is shown what Redact leaves of it, and VIPs of its tenants, in samples of the past too;
//   - what watches share is made for callers who may see the same: the whole cluster, or nodes without what is the cluster's.
//     The sums of a tenant are made for each caller anew;
//   - what all share takes a small part of a CPU (Rest), however large the cluster is and however many watch;
//   - counters of nodes are not watched: they would differ all the time.
package live

import (
	"context"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/nodesync/muxrate"
	"github.com/weirlb/weir/internal/store"
)

// Config is what Streams work with.
type Config struct {
	Store *store.Store
	View  func() *store.State // as users are shown it
	// Nodes are all of them, with their status, and Status the answer of GetStatus without them. Both are new each time.
	Nodes    func(*store.State) []*weirv1.Node
	Status   func(context.Context) *weirv1.GetStatusResponse
	Rates    *muxrate.Meter
	Watches  *Watches
	Now      func() time.Time
	Stopping <-chan struct{} // closed when watches shall end
}

// Streams serves WatchNodes, WatchStatus and WatchRates.
type Streams struct {
	*Config

	look  look
	whole wholeStatus
}

// New makes Streams.
func New(c *Config) *Streams { return &Streams{Config: c} }

// BookmarkInterval is the time between two messages of a watch that has nothing to tell.
const BookmarkInterval = 30 * time.Second

// Times of a watch that looks whether something differs.
const (
	lookInterval = time.Second            // at most, for not all that nodes say is in the store
	lookPause    = 250 * time.Millisecond // at least
	longPause    = 2 * time.Second        // at least, after much was told
	much         = 64                     // nodes
)

// For how many times what it took to make something for all callers it is used.
const (
	restShare   = 200              // times, but
	restLongest = 5 * time.Second  // at most, and
	restLeast   = 20               // times in any case, but for
	restMost    = 10 * time.Second // as what was slow once, in a stall of the machine, is not kept for minutes
)

// Rest is for how long what all callers share is used, of what it took to make: the making takes a small part of a CPU,
// however large the cluster is.
func Rest(took, atLeast time.Duration) time.Duration {
	return max(atLeast, min(max(restLeast*took, min(restShare*took, restLongest)), restMost))
}

// next waits until it is time to look again: after a pause, when the store has changed or an interval is over.
func (s *Streams) next(ctx context.Context, changed <-chan struct{}, pause time.Duration) error {
	least := time.NewTimer(pause)
	defer least.Stop()
	most := time.NewTimer(max(pause, lookInterval))
	defer most.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Stopping:
		return errStops
	}
	select {
	case <-changed:
	case <-most.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Stopping:
		return errStops
	}
	return nil
}
