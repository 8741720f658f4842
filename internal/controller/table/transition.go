package table

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// UncountedTime is for how long a move of a VIP that switches may serve waits for its host to count connections.
const UncountedTime = 15 * time.Minute

// transitions knows since when the muxes run each move that goes on. It is made anew by a manager that
// restarts: moves then last a little longer.
type transitions struct {
	settle time.Duration
	marks  map[moved]mark
	seen   map[string]sighting // by host: counts in the store
	began  time.Time           // when this manager first looked
}

// sighting is when a count was first seen in the store. Managers' clocks may differ, so at which time another
// one was told it does not matter.
type sighting struct {
	nodestatus.SessionCount
	at time.Time
}

// moved are the buckets of an endpoint that moved at one time.
type moved struct {
	endpoint model.EndpointKey
	since    int64
}

// mark is when all connected muxes were first seen to run a move, and the generation that they ran.
type mark struct {
	at       time.Time
	computed model.Generation
}

func newTransitions(settle time.Duration) *transitions {
	return &transitions{settle: settle, marks: map[moved]mark{}, seen: map[string]sighting{}}
}

// observe reads the session counts of hosts from the store: another manager may have received them.
func (t *transitions) observe(s *store.State, now time.Time) {
	seen := map[string]sighting{}
	for name, status := range s.Status.All() {
		if before := t.seen[name]; !before.at.IsZero() && before.Equal(status.SessionCount) {
			seen[name] = before
		} else if !status.SessionCount.At.IsZero() {
			seen[name] = sighting{status.SessionCount, now}
		}
	}
	t.seen = seen
}

// newest is the last count of a host's connections, told here or to another manager.
func (t *transitions) newest(host string, told sessioncount.Counts) (sessioncount.Count, bool) {
	c, said := told.Get(host)
	stored, there := t.seen[host]
	if !there || said && !c.At.Before(stored.at) {
		return c, said
	}
	if said && stored.Equal(nodestatus.SessionCount{At: c.At, Generation: c.Generation}) {
		return c, true
	}
	c = sessioncount.Count{At: stored.at, Generation: stored.Generation, Of: map[model.HostBackendKey]model.BackendSessions{}}
	for _, key := range stored.Draining {
		c.Of[key] = model.BackendSessions{Key: key, Draining: 1}
	}
	return c, true
}

// EndMoves ends moves that no connection lives by any more, until ctx ends.
func (c *Controller) EndMoves(ctx context.Context) error {
	t := newTransitions(c.Settle)
	tick := time.NewTicker(c.Settle / 15)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due, ended := t.due(c.View(), c.Sessions, c.Now())
		if err := c.write(ctx, "moves of buckets ended", due, ended); err != nil && ctx.Err() == nil {
			c.Log.Warn("moves of buckets do not end, trying again", "vips", due, "err", err)
		}
	}
}

// follow is the change that makes the tables of the VIPs what they should be by now.
func (c *Controller) follow(s *store.State, vips []string, ended desired.Ended) store.Change {
	change := store.Change{Tables: map[model.EndpointKey]desired.Table{}, Ports: map[model.SNATKey]snatport.Allocation{}}
	for _, name := range vips {
		if vip, there := s.VIPs.Get(name); there {
			maps.Copy(change.Tables, s.ChangedTables(vip, c.Now(), ended, c.FreeFor))
			if vip.SNAT != nil {
				maps.Copy(change.Ports, s.ChangedPorts(vip.Address, c.Now()))
			}
		}
	}
	return change
}

// due returns the VIPs that have a move which is over, or cookies that settled, and those of the moves
// that ended because no connection is left.
func (t *transitions) due(s *store.State, counted sessioncount.Counts, now time.Time) ([]string, desired.Ended) {
	t.observe(s, now)
	if t.began.IsZero() {
		t.began = now
	}
	due := map[string]bool{}
	ended, marks := desired.Ended{}, map[moved]mark{}
	lowest, muxes := slowestMux(s)
	for key := range s.Tables.Moving() {
		vip, e, there := s.EndpointAt(key)
		if !there {
			continue
		}
		table, current := s.Tables.At(key), muxes && lowest >= s.Computed.At(key)
		t.mark(marks, s, key, current, now)
		over := map[model.Slot]time.Time{}
		if current {
			over = t.over(vip, e, table, marks, counted)
		}
		if vip.MayBeInHardware() && now.Sub(t.began) >= UncountedTime {
			t.uncounted(e, table, counted, now, over)
		}
		if len(over) > 0 {
			ended[key] = over
		}
		if len(over) > 0 || table.Expired(vip, e, now) {
			due[vip.Name] = true
		}
	}
	t.marks = marks
	return slices.Sorted(maps.Keys(due)), ended
}

// mark notes the moves of an endpoint that all muxes run, as of now if they were not noted before.
func (t *transitions) mark(marks map[moved]mark, s *store.State, key model.EndpointKey, current bool, now time.Time) {
	for _, move := range s.Tables.At(key).Moves {
		at := moved{key, move.Since.UnixNano()}
		if before, marked := t.marks[at]; marked {
			marks[at] = before
		} else if current {
			marks[at] = mark{now, s.Computed.At(key)}
			t.marks[at] = marks[at]
		}
	}
}

// slowestMux is the lowest generation that a connected mux runs, if there is any.
func slowestMux(s *store.State) (lowest model.Generation, any bool) {
	for node := range s.MuxNodes() {
		if !s.Streams.At(node.Name) {
			continue
		}
		if g := s.Status.At(node.Name).Generation; !any || g < lowest {
			lowest, any = g, true
		}
	}
	return lowest, any
}

// over are the slots that buckets moved away from and whose host has said since that no connection
// lives by them, with the time of the last such move.
func (t *transitions) over(
	vip model.VIP, e model.Endpoint, table desired.Table, marks map[moved]mark, counted sessioncount.Counts,
) map[model.Slot]time.Time {
	counts := map[model.Slot]sessioncount.Count{} // those that say so
	slots := table.Slots()
	for _, b := range e.Backends {
		c, said := t.newest(b.Host, counted)
		if said && c.Of[model.HostBackendKey{Endpoint: desired.Key(vip, e), Tunnel: b.TunnelAddress()}].Draining == 0 {
			counts[slots[b.AddrPort()]] = c
		}
	}
	over := map[model.Slot]time.Time{}
	for _, move := range table.Moves {
		c, said := counts[move.From]
		mark, marked := marks[moved{desired.Key(vip, e), move.Since.UnixNano()}]
		if !said || !marked || c.Generation < mark.computed {
			continue
		}
		if c.At.Sub(mark.at) >= t.settle && c.At.Sub(move.Since) >= t.settle && move.Since.After(over[move.From]) {
			over[move.From] = move.Since
		}
	}
	return over
}

// uncounted adds to over the slots that buckets moved away from long ago and whose host has counted nothing for
// UncountedTime: nobody knows whether a connection lives by them. Hosts that are known to be silent are down already.
func (t *transitions) uncounted(
	e model.Endpoint, table desired.Table, counted sessioncount.Counts, now time.Time, over map[model.Slot]time.Time,
) {
	slots, counts := table.Slots(), map[model.Slot]bool{}
	for _, b := range e.Backends {
		c, said := t.newest(b.Host, counted)
		counts[slots[b.AddrPort()]] = said && now.Sub(c.At) < UncountedTime
	}
	for _, move := range table.Moves {
		if !counts[move.From] && now.Sub(move.Since) >= max(UncountedTime, e.Idle()) && move.Since.After(over[move.From]) {
			over[move.From] = move.Since
		}
	}
}
