package manager

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/store"
)

// reconcile recomputes the tables whose backends' health changed, until ctx ends. Changes that come
// while it writes are taken together. Its first round looks at every VIP, so that a manager which
// died between a report and its tables leaves nothing behind.
func (m *Manager) reconcile(ctx context.Context) error {
	var last *store.State
	for {
		state, changed := m.store.Watch()
		if err := m.recompute(ctx, dirty(last, state)); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			m.log.Warn("tables do not follow the backends' health, trying again", "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
			continue
		}
		last = state
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// recomputeMost is how many VIPs' tables are computed in one go, so that users' changes get in between.
const recomputeMost = 500

// recompute writes the tables of the VIPs where they are not what they should be.
func (m *Manager) recompute(ctx context.Context, vips []string) error {
	for some := range slices.Chunk(vips, recomputeMost) {
		if len(m.follow(m.store.State(), some, nil).Tables) == 0 {
			continue // as mostly: who writes a VIP computes its tables with it
		}
		wrote := false
		generation, err := m.store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			change := m.follow(s, some, nil)
			wrote = len(change.Tables) > 0
			return change, nil
		})
		if err != nil {
			return err
		}
		if wrote {
			m.log.Info("tables follow the backends' health", "vips", some, "generation", generation)
		}
	}
	return nil
}

// dirty returns the names of the VIPs that were written after last, or that have a backend whose health
// changed since; of all VIPs if last is nil.
func dirty(last, state *store.State) []string {
	if last == nil {
		return slices.Collect(state.VIPs.Keys())
	}
	delta := state.Since(last)
	vips := map[string]bool{}
	for name := range delta.VIPs {
		vips[name] = true
	}
	for host := range delta.Health {
		before, after := last.Health.At(host), state.Health.At(host)
		for _, side := range []desired.HostHealth{before, after} {
			for key := range side {
				if before[key] == after[key] {
					continue
				}
				if vip, there := state.VIPAt(key.Endpoint.VIP); there {
					vips[vip.Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(vips))
}
