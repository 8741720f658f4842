package desired

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overloadpolicy"
	"github.com/weirlb/weir/internal/sorted"
)

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

// State is all that tables are computed from, with what finds them by address and by host. A copy that was
// not made by Clone is read only.
type State struct {
	VIPs   sorted.Map[string, model.VIP]
	Tables sorted.Map[model.EndpointKey, Table]
	Nodes  sorted.Map[string, model.Node]
	Health sorted.Map[string, HostHealth] // by host
	Pools  sorted.Map[string, model.AddressPool]
	Ports  sorted.Map[model.SNATKey, PortAllocation]
	Steps  sorted.Map[string, overloadpolicy.State] // of overload policies, by VIP

	PrefixLists sorted.Map[string, model.PrefixList]

	Restored Restored

	index
}

// HostHealth is what one host's agent said last of each backend.
type HostHealth map[HealthKey]model.BackendHealth

// HealthKey names a backend of an endpoint.
type HealthKey struct {
	Endpoint model.EndpointKey
	Backend  netip.AddrPort
}

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
	Backend netip.AddrPort
	Tunnel  netip.Addr
	Freed   time.Time // when the backend was removed, by the clock of the leader of then; zero: in use
	Down    bool      // its flows are chosen anew: see mark
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
	shares := make(map[model.Slot]int, len(t.Rows))
	for _, slot := range t.MuxBuckets() {
		shares[slot]++
	}
	return shares
}

// Key is the key of endpoint e of vip.
func Key(vip model.VIP, e model.Endpoint) model.EndpointKey {
	return model.EndpointKey{VIP: vip.Address, Protocol: e.Protocol, Port: e.Port}
}

// BackendHealth is the health of backend b of endpoint e, and why.
func (s State) BackendHealth(vip model.VIP, e model.Endpoint, b model.Backend) (model.Health, string) {
	if e.HealthCheck == nil {
		return model.HealthUnchecked, ""
	}
	reported, ok := s.reported(vip, e, b)
	if !ok {
		return model.HealthUnknown, ""
	}
	return reported.Health, reported.Reason
}

func (s State) reported(vip model.VIP, e model.Endpoint, b model.Backend) (model.BackendHealth, bool) {
	reported, ok := s.Health.At(b.Host)[HealthKey{Endpoint: Key(vip, e), Backend: b.AddrPort()}]
	return reported, ok
}
