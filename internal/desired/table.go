package desired

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

var _ = sorted.Register(model.EndpointKey.Compare)

// Key is the key of endpoint e of vip.
func Key(vip model.VIP, e model.Endpoint) model.EndpointKey {
	return model.EndpointKey{VIP: vip.Address, Protocol: e.Protocol, Port: e.Port}
}

// Tables are those of all endpoints. A copy that was not made by Clone is read only.
type Tables struct {
	sorted.Map[model.EndpointKey, Table]
	moving, freed sorted.Map[model.EndpointKey, none]
}

// Clone returns Tables that may be written to.
func (t Tables) Clone() Tables { return Tables{t.Map.Clone(), t.moving.Clone(), t.freed.Clone()} }

// Set adds or replaces a table.
func (t *Tables) Set(key model.EndpointKey, table Table) {
	t.Map.Set(key, table)
	note(&t.moving, key, table.InTransition())
	note(&t.freed, key, slices.ContainsFunc(table.Rows, Row.Retired))
}

func note(keys *sorted.Map[model.EndpointKey, none], key model.EndpointKey, is bool) {
	if is {
		keys.Set(key, none{})
	} else {
		keys.Delete(key)
	}
}

// Delete forgets a table.
func (t *Tables) Delete(key model.EndpointKey) {
	t.Map.Delete(key)
	t.moving.Delete(key)
	t.freed.Delete(key)
}

// Moving are the endpoints whose table is in transition.
func (t Tables) Moving() iter.Seq[model.EndpointKey] { return t.moving.Keys() }

// WithFreedSlots are the endpoints whose table has slots of backends that were removed.
func (t Tables) WithFreedSlots() iter.Seq[model.EndpointKey] { return t.freed.Keys() }

// Table is an endpoint's table with its history.
type Table struct {
	Rows    []Row        // by slot; those in use and those retired
	Buckets []model.Slot // a power of two of them, or none
	Closed  bool         // no backend takes new connections: muxes get no buckets
	Moves   []Move       // by bucket; those that connections from before may still live by
	Cookies model.Cookies
	Settles time.Time // when Cookies began to be settling; zero: they are not
}

// Move is a bucket's change of slot. Until it ends, hosts forward older connections without a cookie to From (daisy
// chaining).
type Move struct {
	Bucket uint32
	From   model.Slot
	Since  time.Time
}

// Row is a slot's backend.
type Row struct {
	Slot    model.Slot
	Down    bool // its flows are chosen anew: see mark
	Backend netip.AddrPort
	Tunnel  netip.Addr
	Freed   time.Time // when the backend was removed, by the clock of the leader of then; zero: in use
}

// Retired says whether the row's backend was removed.
func (r Row) Retired() bool { return !r.Freed.IsZero() }

// Equal says whether both are the same table.
func (t Table) Equal(other Table) bool {
	return slices.Equal(t.Buckets, other.Buckets) && t.Closed == other.Closed && slices.EqualFunc(t.Rows, other.Rows, func(a, b Row) bool {
		return a.Slot == b.Slot && a.Backend == b.Backend && a.Tunnel == b.Tunnel && a.Down == b.Down && a.Freed.Equal(b.Freed)
	}) && t.Cookies == other.Cookies && t.Settles.Equal(other.Settles) &&
		slices.EqualFunc(t.Moves, other.Moves, func(a, b Move) bool {
			return a.Bucket == b.Bucket && a.From == b.From && a.Since.Equal(b.Since)
		})
}

// InTransition says whether the table will change by itself: with time, or by reports of hosts.
func (t Table) InTransition() bool { return len(t.Moves) > 0 || t.Cookies == model.CookiesSettling }

// Draining are, by slot, the buckets with a move away from it, in order.
func (t Table) Draining() map[model.Slot][]uint32 {
	draining := map[model.Slot][]uint32{}
	for _, m := range t.Moves {
		draining[m.From] = append(draining[m.From], m.Bucket)
	}
	return draining
}

// Row returns the row of slot.
func (t Table) Row(slot model.Slot) (Row, bool) {
	i, found := slices.BinarySearchFunc(t.Rows, slot, func(r Row, s model.Slot) int { return int(r.Slot) - int(s) })
	if !found {
		return Row{}, false
	}
	return t.Rows[i], true
}

// Slots are the slots of the backends in use.
func (t Table) Slots() map[netip.AddrPort]model.Slot {
	slots := make(map[netip.AddrPort]model.Slot, len(t.Rows))
	for _, r := range t.Rows {
		if !r.Retired() {
			slots[r.Backend] = r.Slot
		}
	}
	return slots
}

// MuxBuckets are the buckets as muxes get them: none when no backend takes new connections.
func (t Table) MuxBuckets() []model.Slot {
	if t.Closed {
		return nil
	}
	return t.Buckets
}

// Shares are how many buckets of muxes name each slot.
func (t Table) Shares() map[model.Slot]int {
	shares, buckets := make(map[model.Slot]int, len(t.Rows)), t.MuxBuckets()
	if len(buckets) == 0 {
		return shares
	}
	counts := make([]int, slices.Max(buckets)+1) // no map: there may be tens of thousands of buckets
	for _, slot := range buckets {
		counts[slot]++
	}
	for slot, n := range counts {
		if n > 0 {
			shares[model.Slot(slot)] = n
		}
	}
	return shares
}
