package manager

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

// fence takes muxes that do not answer out of the pool, and back in when they do. The store has the last word, so
// that two managers leave one in, and one that is cut off from the others takes nobody out.
func (h *hub) fence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	slept := h.slept()
	for f := range h.muxes {
		if slept > 0 && !f.waits.IsZero() {
			f.waits = f.waits.Add(slept)
		}
		bound := h.patience
		if !f.first {
			bound *= snapshotPatience
		}
		serves := ""
		if !f.waits.IsZero() && h.now().Sub(f.waits) > bound {
			serves = h.serves(f.mux)
		}
		if f.out = serves != ""; f.out {
			h.store.Fence(f.mux, fmt.Sprintf("it did not answer for %s", bound), serves)
		} else {
			h.store.Admit(f.mux)
		}
	}
	h.tellFenced(h.store.State())
}

// tellFenced tells muxes that were taken out to take their routes back, and those that are in again to announce
// them; who does not even read that has lost its BGP sessions, or loses them with its process.
func (h *hub) tellFenced(s *store.State) {
	for f := range h.muxes {
		if out := f.out && s.Fenced.Has(f.mux); out != f.withdraw {
			f.withdraw = out
			f.soon()
		}
	}
}

// slept is how long this manager itself stood still since it last looked: that silence is no mux's.
func (h *hub) slept() time.Duration {
	now := h.now()
	since := now.Sub(h.looked)
	first := h.looked.IsZero()
	h.looked = now
	if first || since < h.patience/2 {
		return 0
	}
	return since
}

// serves is a mux beside that one that is connected, with any manager, and in the pool; empty if there is none:
// the last one is left in, as old tables are better than no routes.
func (h *hub) serves(mux string) string {
	s := h.store.State()
	out := map[string]bool{mux: true} // which the State may not show yet
	for f := range h.muxes {
		out[f.mux] = out[f.mux] || f.out
	}
	for name := range s.Streams.All() {
		if !out[name] && s.Nodes.At(name).Role == model.RoleMux && !s.Fenced.Has(name) {
			return name
		}
	}
	return ""
}

// watchMuxes fences until ctx ends.
func (h *hub) watchMuxes(ctx context.Context) error {
	tick := time.NewTicker(h.patience / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.fence()
		}
	}
}

// standing says how a node with a stream here stands; empty if it has none.
func (h *hub) standing(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.hosts[name] {
		if f.late {
			return syncBehind
		}
		return syncCurrent
	}
	for f := range h.muxes {
		if f.mux != name {
			continue
		}
		if !f.waits.IsZero() && h.now().Sub(f.waits) > h.grace {
			return syncBehind
		}
		return syncCurrent
	}
	return ""
}

// How a node stands.
const (
	syncCurrent = "current"
	syncBehind  = "behind"
	syncOut     = "out"
)

// sync says how a node stands, whoever holds its stream: of those of others, what they noted.
func (m *Manager) sync(s *store.State, node model.Node) string {
	if !s.Streams.At(node.Name) {
		return ""
	}
	if s.Fenced.Has(node.Name) {
		return syncOut
	}
	if here := m.hub.standing(node.Name); here != "" {
		return here
	}
	published, _ := m.hub.reached()
	if said := s.Status.At(node.Name); node.Role == model.RoleMux && max(said.Generation, said.Rejected) < published {
		return syncBehind
	}
	return syncCurrent
}
