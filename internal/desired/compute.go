package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/bucket"
	"github.com/weirlb/weir/internal/model"
)

// FreeFor says how long the slot of a retired row has been free, by the clock of the present leader: Row.Freed is by
// the clock of an earlier one. nil: for no time yet.
type FreeFor func(model.EndpointKey, Row) time.Duration

// RetireTime is how long a freed slot names no other backend at least. It is longer where flows are
// remembered longer: a segment of an old connection may carry the slot for as long.
const RetireTime = time.Hour

func retireTime(e model.Endpoint) time.Duration { return max(RetireTime, e.Idle()) }

// RetireTime is the longest time for which a slot freed now is reserved.
func (s State) RetireTime() time.Duration {
	longest := RetireTime
	for vip := range s.VIPs.Values() {
		for _, e := range vip.Endpoints {
			longest = max(longest, retireTime(e))
		}
	}
	return longest
}

// reservedSlots is how many free slots of an endpoint are not allocated for a while after a restore. Slots are
// allocated from the lowest free one on, so these may have gone to backends that were added after the backup, and
// segments of open connections may still carry them.
const reservedSlots = 64

// passOver is how many free slots of an endpoint that has rows are passed over. It differs from restore to restore of
// one backup.
func (r Restored) passOver(rows []Row) int {
	if r.At == 0 || len(rows) == 0 {
		return 0
	}
	return reservedSlots + int(r.At%reservedSlots)
}

// ChangedTables computes vip's tables and returns those that differ from the ones in s. Moves in ended are over.
func (s State) ChangedTables(vip model.VIP, now time.Time, ended Ended, free FreeFor) map[model.EndpointKey]Table {
	changed := map[model.EndpointKey]Table{}
	for _, e := range vip.Endpoints {
		key := Key(vip, e)
		old, had := s.Tables.Get(key)
		if !had {
			old.Cookies = fresh
		}
		isReserved := func(r Row) bool { return free == nil || free(key, r) < retireTime(e) }
		table := Table{Rows: assignRows(old.Rows, e.Backends, now, isReserved, s.Restored)}
		table.compute(&s, vip, e, old, now, ended[key])
		if !had || !table.Equal(old) {
			changed[key] = table
		}
	}
	return changed
}

// RemovedEndpoints returns the endpoints of old that are not in vip.
func RemovedEndpoints(old, vip model.VIP) []model.EndpointKey {
	var gone []model.EndpointKey
	for _, e := range old.Endpoints {
		key := Key(old, e)
		if !slices.ContainsFunc(vip.Endpoints, func(kept model.Endpoint) bool { return Key(vip, kept) == key }) {
			gone = append(gone, key)
		}
	}
	return gone
}

// compute makes a table with rows the one of e that follows old.
func (t *Table) compute(s *State, vip model.VIP, e model.Endpoint, old Table, now time.Time, ended map[model.Slot]time.Time) {
	t.Cookies, t.Settles = cookies(vip, e, old, now)
	effective := effectOf(s, vip, e)
	ailing := mark(s, t.Rows, vip, e, effective.kept)
	members := t.members(effective.members)
	waiting := t.waiting(old, overByTime(vip, e, now), ended)
	if len(members) == 0 {
		// Nobody takes new connections. What the buckets named is kept: those that are open may live by it
		// when somebody does again.
		t.Buckets, t.Moves, t.Closed = old.Buckets, waiting, true
		return
	}
	size := bucket.Size(len(old.Buckets), len(members))
	t.Buckets = assign(*t, ailing, old.Buckets, waiting, members, size)
	t.Moves = t.moves(old.Buckets, ailing, waiting, now)
}

// slots is a set of them.
type slots map[model.Slot]bool

// keepsPrevious says whether a bucket that moves from left to next still names from, its slot before: if there was one,
// and left is unhealthy while from is not.
func (ailing slots) keepsPrevious(from, left, next model.Slot) bool {
	return from != 0 && from != next && ailing[left] && !ailing[from]
}

// assign returns the buckets that follow old. Those that wait go back to where they came from, or stay,
// unless their backend is down or ailing. What moves can make room for another to go back: this is done until
// none does. It ends, as each round leaves less that a backend has above its share.
func assign(rows Table, ailing slots, old []model.Slot, waiting []Move, members []bucket.Backend, size int) []model.Slot {
	if len(waiting) == 0 {
		next, _ := bucket.Assign(old, nil, members, size)
		return next
	}
	table, previous, pinned := bucket.Grow(old, size), make([]model.Slot, size), make([]bool, size)
	for _, m := range waiting {
		for i := int(m.Bucket); i < size; i += len(old) {
			previous[i] = m.From
		}
	}
	// follow takes next over, and notes what its buckets named before.
	follow := func(next []model.Slot) {
		for i, was := range table {
			switch {
			case next[i] != was && !rows.down(was):
				if !ailing.keepsPrevious(previous[i], was, next[i]) {
					previous[i] = was
				}
			case next[i] == previous[i]:
				previous[i] = 0
			}
			pinned[i] = previous[i] != 0 && !rows.down(next[i]) && !ailing[next[i]]
		}
		table = next
	}
	for {
		returned := bucket.Return(table, previous, members)
		same := slices.Equal(returned, table)
		follow(returned)
		next, moved := bucket.Assign(table, pinned, members, size)
		if same && moved == 0 {
			return next
		}
		follow(next)
	}
}

// members are the slots of the backends, with their weights.
func (t Table) members(backends []model.Backend) []bucket.Backend {
	slots := t.Slots()
	members := make([]bucket.Backend, 0, len(backends))
	for _, b := range backends {
		members = append(members, bucket.Backend{Slot: slots[b.AddrPort()], Weight: b.Weight})
	}
	return members
}

// mark marks rows as down: those of backends that were removed or whose host is silent or has not joined, and for UDP
// unhealthy ones. It returns the other unhealthy ones. A false alarm must not break TCP connections: if the backend's
// process is dead, its kernel resets them. A UDP client gets no such sign. If the policy keeps all backends the check
// itself may be broken: then none is down because of it.
func mark(s *State, rows []Row, vip model.VIP, e model.Endpoint, kept bool) (ailing slots) {
	down, unhealthy := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for _, b := range e.Backends {
		said := HealthOf(s, vip, e, b)
		if said.Health == model.HealthPending {
			down[b.AddrPort()] = true
			continue
		}
		if kept || said.Health != model.HealthUnhealthy {
			continue
		}
		down[b.AddrPort()] = said.Silent || e.Protocol != model.TCP
		unhealthy[b.AddrPort()] = !down[b.AddrPort()]
	}
	ailing = slots{}
	for i := range rows {
		rows[i].Down = rows[i].Retired() || down[rows[i].Backend]
		if unhealthy[rows[i].Backend] && !rows[i].Down {
			ailing[rows[i].Slot] = true
		}
	}
	return ailing
}

// effect is which backends of an endpoint take new flows.
type effect struct {
	members []model.Backend
	kept    bool // none is healthy, and the policy is to send to all of them
}

// effectOf chooses the backends with a weight that are healthy or have no check. If there is none,
// the endpoint's policy decides: all with a weight whose hosts have joined, or none.
func effectOf(s *State, vip model.VIP, e model.Endpoint) effect {
	var healthy, weighted []model.Backend
	for _, b := range e.Backends {
		health := HealthOf(s, vip, e, b).Health
		if b.Weight == 0 || health == model.HealthPending {
			continue
		}
		weighted = append(weighted, b)
		if health == model.HealthHealthy || health == model.HealthUnchecked {
			healthy = append(healthy, b)
		}
	}
	if len(healthy) > 0 || e.AllUnhealthy == model.Refuse {
		return effect{members: healthy}
	}
	return effect{members: weighted, kept: len(weighted) > 0}
}

// assignRows gives each backend a row: its old one if it has any, even a retired one, else a free slot.
// Rows without a backend retire, and are forgotten when their slot is reserved no longer.
func assignRows(old []Row, backends []model.Backend, now time.Time, isReserved func(Row) bool, restored Restored) []Row {
	wanted := make(map[netip.AddrPort]model.Backend, len(backends))
	for _, b := range backends {
		wanted[b.AddrPort()] = b
	}
	var rows []Row
	for _, r := range old {
		b, kept := wanted[r.Backend]
		switch {
		case kept:
			rows = append(rows, Row{Slot: r.Slot, Backend: r.Backend, Tunnel: b.TunnelAddress()})
			delete(wanted, r.Backend)
		case !r.Retired():
			r.Freed = now
			rows = append(rows, r)
		case isReserved(r):
			rows = append(rows, r)
		}
	}
	var fresh []model.Backend
	for _, b := range backends {
		if _, without := wanted[b.AddrPort()]; without {
			fresh = append(fresh, b)
		}
	}
	rows, free := vacate(rows, len(fresh), restored.passOver(rows))
	for i, b := range fresh {
		rows = append(rows, Row{Slot: free[i], Backend: b.AddrPort(), Tunnel: b.TunnelAddress()})
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Slot, b.Slot) })
	return rows
}

// vacate returns n slots that no row has, the lowest but for the first ones, which are passed over as far as there are
// enough. If too few are free, the rows that retired first give up theirs.
func vacate(rows []Row, n, passOver int) ([]Row, []model.Slot) {
	for excess := len(rows) + n - model.MaxBackends; excess > 0; excess-- {
		oldest := -1
		for i, r := range rows {
			if r.Retired() && (oldest < 0 || r.Freed.Before(rows[oldest].Freed)) {
				oldest = i
			}
		}
		rows = slices.Delete(rows, oldest, oldest+1)
	}
	taken := make([]bool, model.MaxBackends+1)
	for _, r := range rows {
		taken[r.Slot] = true
	}
	passOver = min(passOver, model.MaxBackends-len(rows)-n)
	free := make([]model.Slot, 0, n)
	for slot := model.Slot(1); len(free) < n; slot++ {
		switch {
		case taken[slot]:
		case passOver > 0:
			passOver--
		default:
			free = append(free, slot)
		}
	}
	return rows, free
}
