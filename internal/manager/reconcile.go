package manager

import (
	"context"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// reconcile recomputes the tables whose backends' health changed, until ctx ends. Changes that come
// while it writes are taken together. Its first round looks at every VIP, so that a manager which
// died between a report and its tables leaves nothing behind.
func (m *Manager) reconcile(ctx context.Context) error {
	last := &store.State{}
	for {
		state, changed := m.store.Watch()
		if err := m.recompute(ctx, last, state); err != nil {
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

// recompute writes the tables of those VIPs whose text or backends' health is another than in last.
func (m *Manager) recompute(ctx context.Context, last, state *store.State) error {
	dirty := touched(last, state)
	if len(dirty) == 0 {
		return nil
	}
	generation, err := m.store.Update(ctx, func(s *store.State) (store.Change, error) {
		return m.follow(s, dirty, nil), nil
	})
	if err == nil && generation != state.Generation {
		m.log.Info("tables follow the backends' health", "vips", dirty, "generation", generation)
	}
	return err
}

// touched returns the names of the VIPs that were written after last, or that have a backend on a
// host that reported health after last.
func touched(last, state *store.State) []string {
	var dirty []string
	for _, vip := range state.SortedVIPs() {
		if last.Written.At(vip.Name) != state.Written.At(vip.Name) || reported(vip, last, state) {
			dirty = append(dirty, vip.Name)
		}
	}
	return dirty
}

func reported(vip model.VIP, last, state *store.State) bool {
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if last.Reported.At(b.Host) != state.Reported.At(b.Host) {
				return true
			}
		}
	}
	return false
}
