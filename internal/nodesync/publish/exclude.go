package publish

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// muxPatience is how long a mux may take to answer before it is taken out of the pool; for a snapshot, it gets
// snapshotPatience times as long.
const (
	muxPatience      = 5 * time.Second
	snapshotPatience = 12
)

// exclusion takes muxes that do not acknowledge out of the pool, and back in when they do. The store decides, so that
// two managers leave one in, and a partitioned manager takes none out.
type exclusion struct {
	store     *store.Store
	checkedAt time.Time
}

// check marks the feeds of silent muxes.
func (e *exclusion) check(feeds iter.Seq[*MuxFeed], patience time.Duration, now time.Time) {
	slept := e.suspendedFor(patience, now)
	for f := range feeds {
		if slept > 0 && !f.waits.IsZero() {
			f.waits = f.waits.Add(slept)
		}
		bound := patience
		if !f.answered {
			bound *= snapshotPatience
		}
		serves := ""
		if !f.waits.IsZero() && now.Sub(f.waits) > bound {
			serves = e.anotherServingMux(feeds, f.mux)
		}
		if f.silent = serves != ""; f.silent {
			e.store.Presence.Exclude(f.mux, fmt.Sprintf("it did not answer for %s", bound), serves)
		} else {
			e.store.Presence.Admit(f.mux)
		}
	}
}

// suspendedFor is how long this process stood still since the last check: that time does not count as a mux's silence.
func (e *exclusion) suspendedFor(patience time.Duration, now time.Time) time.Duration {
	since, first := now.Sub(e.checkedAt), e.checkedAt.IsZero()
	e.checkedAt = now
	if first || since < patience/2 {
		return 0
	}
	return since
}

// anotherServingMux is another mux that is connected, with any manager, and in the pool; empty: there is none. The last
// mux is not excluded, because old tables are better than no routes.
func (e *exclusion) anotherServingMux(feeds iter.Seq[*MuxFeed], mux string) string {
	s := e.store.State()
	out := map[string]bool{mux: true} // which the State may not show yet
	for f := range feeds {
		out[f.mux] = out[f.mux] || f.silent
	}
	for name := range s.Streams.All() {
		if !out[name] && s.Nodes.At(name).Role == model.RoleMux && !s.Excluded.Has(name) {
			return name
		}
	}
	return ""
}

// notifyExcluded has muxes that were excluded withdraw their routes, and those that are in again announce them. A mux
// that does not even read that has lost its BGP sessions, or loses them with its process.
func (h *Hub) notifyExcluded(s *store.State) {
	for f := range h.muxes.all() {
		if out := f.silent && s.Excluded.Has(f.mux); out != f.withdraw {
			f.withdraw = out
			f.schedule()
		}
	}
}

// WatchMuxes excludes muxes that do not answer until ctx ends.
func (h *Hub) WatchMuxes(ctx context.Context) error {
	tick := time.NewTicker(h.Patience / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.mu.Lock()
			h.exclusion.check(h.muxes.all(), h.Patience, h.now())
			h.notifyExcluded(h.store.State())
			h.mu.Unlock()
		}
	}
}

// NodeIsCurrent says whether a node has a stream here, and whether it has what it was told, or had not long to.
func (h *Hub) NodeIsCurrent(name string) (current, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.hosts[name] {
		return !f.late, true
	}
	for f := range h.muxes[name] {
		return f.waits.IsZero() || h.now().Sub(f.waits) <= h.Grace, true
	}
	return false, false
}
