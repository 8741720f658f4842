// Package hostnumber gives the hosts of virtual networks their numbers while a manager leads.
//
// Invariant: a number is one host's from when it has to do with a network until network.NumberQuarantine after it has not.
package hostnumber

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store"
)

// Controller gives numbers.
type Controller struct {
	Store *store.Store
	Now   func() time.Time
	Log   *slog.Logger

	without int // hosts that there was no number for
}

const (
	// pause is how long after one look at the hosts the next one begins: what is written meanwhile is looked at together.
	pause = 50 * time.Millisecond
	// sweep is how often numbers are freed whose time is over.
	sweep = 10 * time.Minute
)

// Run has the numbers follow the networks, VIPs and hosts until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var last *store.State
	ticker := time.NewTicker(sweep)
	defer ticker.Stop()
	for {
		state, changed := c.Store.Watch()
		if last == nil || concerns(last, state) {
			if err := c.follow(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				c.Log.Warn("hosts of virtual networks do not get numbers, trying again", "err", err)
				state = nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
		}
		if last = state; last == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
			last = nil
		}
	}
}

// concerns says whether what was written between two States may give a host a number, or take it.
func concerns(last, state *store.State) bool {
	if !last.Networks.Wants() && !state.Networks.Wants() {
		return false
	}
	delta := state.DeltaSince(last)
	if len(delta.Networks)+len(delta.Nodes) > 0 || delta.Overlay || last.Restored != state.Restored {
		return true
	}
	for name := range delta.VIPs {
		if last.Networks.HasAttachments(name) || state.Networks.HasAttachments(name) {
			return true
		}
	}
	return false
}

// changes are those that s needs.
func (c *Controller) changes(s *store.State) (change map[string]network.Number, without []string) {
	return s.Networks.Numbers.Allocate(nodeconfig.NetworkHosts(s.State), !s.Restored.Pending(), c.Now())
}

// follow writes the numbers that are to change.
func (c *Controller) follow(ctx context.Context) error {
	for {
		change, without := c.changes(c.Store.State())
		if len(without) != c.without && len(without) > 0 {
			c.Log.Warn("some hosts of virtual networks have no number: clients and backends there are not reached", "nodes", len(without), "node", without[0])
		}
		c.without = len(without)
		if len(change) == 0 {
			return nil
		}
		_, err := c.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			all, _ := c.changes(s)
			some := map[string]network.Number{}
			for host, n := range all {
				if len(some) < etcd.SafeOperations {
					some[host] = n
				}
			}
			return store.Change{HostNumbers: some}, nil
		})
		if err != nil {
			return err
		}
	}
}
