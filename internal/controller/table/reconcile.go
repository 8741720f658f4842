package table

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
)

// Reconcile recomputes the tables whose backends' health changed, until ctx ends. Changes that come
// while it writes are taken together. Beside them it looks once at every VIP, in pieces, so that a manager which
// died between a report and its tables leaves nothing behind.
func (c *Controller) Reconcile(ctx context.Context) error {
	var r rounds
	for {
		state, changed := c.Store.Watch()
		err := c.recompute(ctx, r.news(state))
		if err == nil {
			r.did(state)
			if err = c.recompute(ctx, r.piece()); err == nil && r.swept() {
				continue
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			c.Log.Warn("tables do not follow the backends' health, trying again", "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// rounds are those of a term: what is new in each, and a piece of all that there was at its begin.
type rounds struct {
	last *store.State
	left []string // VIPs that were not looked at yet
}

// news are the VIPs of which something is new, since the last round.
func (r *rounds) news(state *store.State) []string {
	if r.last == nil {
		r.left = slices.Collect(state.VIPs.Keys())
		return nil
	}
	return dirty(r.last, state)
}

// did notes that what was new up to state is done.
func (r *rounds) did(state *store.State) { r.last = state }

// piece are some of the VIPs that were not looked at.
func (r *rounds) piece() []string { return r.left[:min(len(r.left), recomputeMost)] }

// swept notes that the piece was looked at, and says whether some are left.
func (r *rounds) swept() bool {
	r.left = r.left[len(r.piece()):]
	return len(r.left) > 0
}

// recomputeMost is how many VIPs' tables are computed in one go, so that users' changes get in between.
const recomputeMost = 500

// recompute writes the tables of the VIPs where they are not what they should be.
func (c *Controller) recompute(ctx context.Context, vips []string) error {
	for some := range slices.Chunk(vips, recomputeMost) {
		// Mostly there is nothing: who writes a VIP computes its tables with it.
		if err := c.write(ctx, "tables follow the backends' health", some, nil); err != nil {
			return err
		}
	}
	return nil
}

// write writes what the tables of the VIPs should be by now, if they are not. Writes at once become one transaction where
// etcd takes it.
func (c *Controller) write(ctx context.Context, what string, vips []string, ended desired.Ended) error {
	var writes errgroup.Group
	for _, some := range c.pieces(c.Store.State(), vips, ended) {
		writes.Go(func() error {
			for more := true; more; {
				wrote := false
				generation, err := c.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
					change := c.follow(s, some, ended)
					more = cut(change)
					wrote = len(change.Tables) > 0
					return change, nil
				})
				if err != nil {
					return err
				}
				if wrote {
					c.Log.Info(what, "vips", some, "generation", generation)
				}
			}
			return nil
		})
	}
	return writes.Wait()
}

// cut leaves of a change what any etcd takes in one transaction, and says whether there was more: a VIP may have more endpoints
// than that. Each table is right by itself.
func cut(change store.Change) (more bool) {
	room := etcd.SafeOperations
	maps.DeleteFunc(change.Tables, func(model.EndpointKey, desired.Table) bool {
		room--
		return room < 0
	})
	maps.DeleteFunc(change.Ports, func(model.SNATKey, snatport.Allocation) bool {
		room--
		return room < 0
	})
	return room < 0
}

// pieces are the VIPs whose tables are to be written, as many together as any etcd takes in one transaction. One that has more
// is a piece of its own.
func (c *Controller) pieces(s *store.State, vips []string, ended desired.Ended) (pieces [][]string) {
	room := 0
	for _, vip := range vips {
		change := c.follow(s, []string{vip}, ended)
		if len(change.Tables) == 0 && len(change.Ports) == 0 {
			continue
		}
		n := len(change.Tables) + len(change.Ports)
		if n > room {
			pieces, room = append(pieces, nil), etcd.SafeOperations
		}
		last := len(pieces) - 1
		pieces[last], room = append(pieces[last], vip), room-n
	}
	return pieces
}

// dirty returns the names of the VIPs that were written after last, or that have a backend whose health
// changed since, or whose host has joined.
func dirty(last, state *store.State) []string {
	delta := state.DeltaSince(last)
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
	for name := range delta.Nodes {
		if desired.IsPending(&last.State, name) == desired.IsPending(&state.State, name) {
			continue
		}
		for vip := range state.VIPsOn(name) { // its backends were waited for
			vips[vip.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(vips))
}
