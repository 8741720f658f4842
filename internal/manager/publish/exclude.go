package publish

import (
	"context"
	"fmt"
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

// excludeSilent takes muxes that do not answer out of the pool, and back in when they do. The store has the last word, so
// that two managers leave one in, and one that is cut off from the others takes nobody out.
func (h *Hub) excludeSilent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	slept := h.slept()
	for f := range h.muxes {
		if slept > 0 && !f.waits.IsZero() {
			f.waits = f.waits.Add(slept)
		}
		bound := h.Patience
		if !f.first {
			bound *= snapshotPatience
		}
		serves := ""
		if !f.waits.IsZero() && h.now().Sub(f.waits) > bound {
			serves = h.serves(f.mux)
		}
		if f.out = serves != ""; f.out {
			h.store.Exclude(f.mux, fmt.Sprintf("it did not answer for %s", bound), serves)
		} else {
			h.store.Admit(f.mux)
		}
	}
	h.tellExcluded(h.store.State())
}

// tellExcluded tells muxes that were taken out to take their routes back, and those that are in again to announce
// them; who does not even read that has lost its BGP sessions, or loses them with its process.
func (h *Hub) tellExcluded(s *store.State) {
	for f := range h.muxes {
		if out := f.out && s.Excluded.Has(f.mux); out != f.withdraw {
			f.withdraw = out
			f.soon()
		}
	}
}

// slept is how long this manager itself stood still since it last looked: that silence is no mux's.
func (h *Hub) slept() time.Duration {
	now := h.now()
	since := now.Sub(h.looked)
	first := h.looked.IsZero()
	h.looked = now
	if first || since < h.Patience/2 {
		return 0
	}
	return since
}

// serves is a mux beside that one that is connected, with any manager, and in the pool; empty if there is none:
// the last one is left in, as old tables are better than no routes.
func (h *Hub) serves(mux string) string {
	s := h.store.State()
	out := map[string]bool{mux: true} // which the State may not show yet
	for f := range h.muxes {
		out[f.mux] = out[f.mux] || f.out
	}
	for name := range s.Streams.All() {
		if !out[name] && s.Nodes.At(name).Role == model.RoleMux && !s.Excluded.Has(name) {
			return name
		}
	}
	return ""
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
			h.excludeSilent()
		}
	}
}

// Stands says whether a node has a stream here, and whether it has what it was told, or had not long to.
func (h *Hub) Stands(name string) (current, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.hosts[name] {
		return !f.late, true
	}
	for f := range h.muxes {
		if f.mux == name {
			return f.waits.IsZero() || h.now().Sub(f.waits) <= h.Grace, true
		}
	}
	return false, false
}
