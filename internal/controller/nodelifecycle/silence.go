package nodelifecycle

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// DefaultSilence is how long a host's stream may be gone before its checked backends count as
// unhealthy: longer than an agent takes to restart.
const DefaultSilence = 5 * time.Second

// Run takes the backends of hosts that died out of the buckets, until ctx ends. Nobody is
// left there to say that they are gone. What a manager knows of a host's silence begins with its own
// start, so that its restart takes out nobody.
func (c *Controller) Run(ctx context.Context) error {
	known := newSilence()
	tick := time.NewTicker(c.Silence / 5)
	defer tick.Stop()
	defer c.Ignored.Set(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		state := c.Store.State()
		before := known.most
		silent := known.hosts(state, c.Now(), c.Silence)
		c.Ignored.Set(0)
		if known.most && len(known.word) > 0 {
			c.Ignored.Set(1)
			if !before {
				c.Log.Warn("most hosts are silent: none is taken out, as it is this manager that seems to be cut off")
			}
		}
		for _, host := range silent {
			if err := c.takeOut(ctx, host); err != nil && ctx.Err() == nil {
				c.Log.Warn("can't take the backends of a silent host out, trying again", "node", host, "err", err)
			}
		}
	}
}

// staleAfter is how long a host is without a word before it does not count among those whose silence says that the manager is
// cut off: it was replaced, and nobody deleted it.
const staleAfter = time.Hour

// silence is what a manager knows of hosts that say nothing, in its term.
type silence struct {
	since map[string]time.Time // when each host's stream was first seen to be gone
	word  map[string]time.Time // when each host was last heard of, or was cut off with most others
	most  bool                 // most hosts are silent
}

func newSilence() *silence {
	return &silence{since: map[string]time.Time{}, word: map[string]time.Time{}}
}

// hosts returns the hosts that have been without a stream for as long as bound. When most of those that are in
// use are, it is the manager that is cut off: it returns none, and the time begins anew once they are back, so that the
// last to reconnect is not taken for dead.
func (q *silence) hosts(s *store.State, now time.Time, bound time.Duration) []string {
	var silent, gone []string
	used, connected := 0, 0
	for name, node := range s.Nodes.All() {
		if node.Role != model.RoleHost {
			continue
		}
		if s.Streams.At(name) {
			connected++
			used++
			delete(q.since, name)
			q.word[name] = now
			continue
		}
		if q.since[name].IsZero() {
			q.since[name] = now
		}
		if q.word[name].IsZero() {
			q.word[name] = s.Status.At(name).Seen
		}
		if now.Sub(q.word[name]) < staleAfter {
			used++
			gone = append(gone, name)
		}
		if now.Sub(q.since[name]) >= bound {
			silent = append(silent, name)
		}
	}
	for _, all := range []map[string]time.Time{q.since, q.word} {
		maps.DeleteFunc(all, func(name string, _ time.Time) bool { _, there := s.Nodes.Get(name); return !there })
	}
	if q.most = connected == 0 || 2*len(gone) > used; q.most {
		clear(q.since)
		for _, name := range gone {
			q.word[name] = now
		}
		return nil
	}
	return silent
}

// takeOut makes the checked backends of a host unhealthy. Its agent's first report after it is back
// says how they really are.
func (c *Controller) takeOut(ctx context.Context, host string) error {
	reason := fmt.Sprintf("no word from the agent of %s", host)
	marked := 0
	err := c.Store.Health.UpdateSilent(ctx, host, func(s *store.State) desired.HostHealth {
		before := s.Health.At(host)
		if s.Streams.At(host) {
			marked = 0
			return before
		}
		marked = 0
		health := maps.Clone(before)
		for key := range nodeconfig.CheckedOn(s.State, host) {
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
		c.Log.Warn("a host is silent: its backends are taken out", "node", host, "backends", marked)
	}
	return err
}
