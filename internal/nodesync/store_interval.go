package nodesync

import (
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// RefreshInterval bounds the age of what the store has of a node that nobody reads there: it says when the node was last
// heard of.
const RefreshInterval = 5 * time.Minute

// storeDue says whether the store shall have a report that is no news, of a node of which it was given one before. Somebody
// reads what it has while a manager does not follow the reports of this one, as it is of an older release, is down or has just
// started; and while the leader waits for the connections of a host that buckets move away from.
// One with a count goes before those between two counts: those would take its turn.
func storeDue(n *Service, s *store.State, role model.Role, name string, before, now time.Time, counts bool) bool {
	turn := func(interval time.Duration) bool {
		return refreshes(name, now, interval) != refreshes(name, before, interval)
	}
	if role == model.RoleHost && n.draining.has(s, name, now) {
		return now.Sub(before) >= 2*n.TellInterval || counts && now.Sub(before) >= n.TellInterval
	}
	if !n.Reports.AllFollow(s, n.Name) {
		return turn(n.TellInterval)
	}
	return turn(RefreshInterval)
}

// refreshes is how often the store has been refreshed of a node up to a time. Nodes take turns: they have not all connected at
// different times.
func refreshes(name string, at time.Time, interval time.Duration) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	turn := time.Duration(h.Sum64() % uint64(interval))
	return at.Add(turn).UnixNano() / int64(interval)
}

// drainingHosts are the hosts that buckets move away from. A move ends when its host has counted no connection of it since,
// and the leader may read that count in the store alone.
type drainingHosts struct {
	found  atomic.Pointer[draining]
	search sync.Mutex
}

// draining is what drainingHosts found at a time.
type draining struct {
	of    model.Generation
	at    time.Time
	hosts map[string]bool
}

// drainingPause is for how long the same are used in any case: what is looked through grows with the moves.
const drainingPause = time.Second

// has says whether buckets move away from a host. One report looks through what has changed; others do not wait for it, and
// are answered from what was found before.
func (d *drainingHosts) has(s *store.State, host string, now time.Time) bool {
	found := d.found.Load()
	if !found.holds(s, now) && d.search.TryLock() {
		if found = d.found.Load(); !found.holds(s, now) {
			found = &draining{s.Generation, now, hostsDraining(s)}
			d.found.Store(found)
		}
		d.search.Unlock()
	}
	return found != nil && found.hosts[host]
}

func (d *draining) holds(s *store.State, now time.Time) bool {
	if d == nil {
		return false
	}
	since := now.Sub(d.at)
	return d.of == s.Generation || since >= 0 && since < drainingPause
}

func hostsDraining(s *store.State) map[string]bool {
	hosts := map[string]bool{}
	for key := range s.Tables.Moving() {
		_, e, there := s.EndpointAt(key)
		if !there {
			continue
		}
		table := s.Tables.At(key)
		from := map[model.Slot]bool{}
		for _, move := range table.Moves {
			from[move.From] = true
		}
		slots := table.Slots()
		for _, b := range e.Backends {
			if from[slots[b.AddrPort()]] {
				hosts[b.Host] = true
			}
		}
	}
	return hosts
}
