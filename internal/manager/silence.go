package manager

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// defaultSilence is how long a host's stream may be gone before its checked backends count as
// unhealthy: longer than an agent takes to restart.
const defaultSilence = 5 * time.Second

// watchSilence takes the backends of hosts that died out of the buckets, until ctx ends. Nobody is
// left there to say that they are gone. What a manager knows of a host's silence begins with its own
// start, so that its restart takes out nobody.
func (m *Manager) watchSilence(ctx context.Context) error {
	since := map[string]time.Time{} // when each host's stream was first seen to be gone
	tick := time.NewTicker(m.silence / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		state := m.store.State()
		for _, host := range silentHosts(state, since, m.now(), m.silence) {
			if err := m.takeOut(ctx, host); err != nil && ctx.Err() == nil {
				m.log.Warn("can't take the backends of a silent host out, trying again", "node", host, "err", err)
			}
		}
	}
}

// silentHosts returns the hosts that have been without a stream for as long as bound, and keeps since.
// When most hosts are, it is the manager that is cut off: it returns none, and the time begins anew once
// they are back, so that the last to reconnect is not taken for dead.
func silentHosts(s *store.State, since map[string]time.Time, now time.Time, bound time.Duration) []string {
	var silent []string
	hosts, gone := 0, 0
	for name, node := range s.Nodes.All() {
		if node.Role != model.RoleHost {
			continue
		}
		hosts++
		if s.Streams.At(name) {
			delete(since, name)
			continue
		}
		gone++
		if since[name].IsZero() {
			since[name] = now
		}
		if now.Sub(since[name]) >= bound {
			silent = append(silent, name)
		}
	}
	maps.DeleteFunc(since, func(name string, _ time.Time) bool { _, there := s.Nodes.Get(name); return !there })
	if 2*gone > hosts {
		clear(since)
		return nil
	}
	return silent
}

// takeOut makes the checked backends of a host unhealthy. Its agent's first report after it is back
// says how they really are.
func (m *Manager) takeOut(ctx context.Context, host string) error {
	reason := fmt.Sprintf("no word from the agent of %s", host)
	marked := 0
	err := m.store.UpdateHealth(ctx, host, func(s *store.State) desired.HostHealth {
		before := s.Health.At(host)
		if s.Streams.At(host) {
			marked = 0
			return before
		}
		marked = 0
		health := maps.Clone(before)
		for key := range s.CheckedOn(host) {
			if before[key].Silent {
				continue
			}
			if health == nil {
				health = desired.HostHealth{}
			}
			health[key] = model.BackendHealth{
				Endpoint: key.Endpoint, Backend: key.Backend, Health: model.HealthUnhealthy, Reason: reason, Silent: true,
			}
			marked++
		}
		return health
	})
	if err == nil && marked > 0 {
		m.log.Warn("a host is silent: its backends are taken out", "node", host, "backends", marked)
	}
	return err
}
