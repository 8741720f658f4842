package endpoint

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
	"github.com/weirlb/weir/internal/model"
)

// Live is an endpoint as the tables have it. Buckets and backends are kept in the form
// that a read of the tables gives.
type Live struct {
	Row      bpf.MuxEndpoint
	Settings settings
	Mode     model.SYNCookies // not in the tables: empty until the control plane says so
	Tenant   string           // likewise
	Buckets  []model.Slot
	Previous []model.Slot       // as long as buckets, or empty when there is none
	Backends []model.MuxBackend // by slot; Backend is not in the tables and zero
	Lists    acl.Pair
	moves    moves
	longest  uint32 // idle timeout in ticks that a flow of it may be remembered with; of adopted tables, from then on
}

// backends are those of an endpoint that may be none.
func (e *Live) backends() []model.MuxBackend {
	if e == nil {
		return nil
	}
	return e.Backends
}

// change is one endpoint's way from old to next; either may be nil. Slices that next does not
// share with old are reserved for it.
type change struct {
	key       model.EndpointKey
	old, next *Live

	buckets, backends alloc.Span
	newBuckets        bool // next has buckets, or previous ones, of its own, to be written
	newBackends       bool
	sides             [2]acl.Side // of next's lists
}

// Update is a change of the tables.
type Update struct {
	Snapshot    bool // these are all: others go
	Endpoints   []model.MuxEndpoint
	Removed     []model.EndpointKey
	SNAT        []model.MuxSNAT // whole; a range may go from one to another in one step
	SNATRemoved []model.SNATKey
	// KeepSNAT lets no workload lose a range: SNAT adds those that are nobody's, a snapshot's too.
	KeepSNAT bool
	// Lists are those that endpoints name, whole; what is in them already is not written again.
	Lists        []model.MuxPrefixList
	ListsRemoved []string
}

// Update brings endpoints, and the ranges of workloads, to what they say. Packets see each as it was or
// as it will be. When the tables lack room for all of them nothing is changed. What is so already is not
// touched.
func (t *Table) Update(u Update) error {
	if u.Snapshot {
		u.Removed = t.missing(u.Endpoints)
	}
	return t.apply(u)
}

// missing lists the live endpoints that all does not have.
func (t *Table) missing(all []model.MuxEndpoint) (missing []model.EndpointKey) {
	kept := map[model.EndpointKey]bool{}
	for _, endpoint := range all {
		kept[endpoint.Key] = true
	}
	for key := range t.Live {
		if !kept[key] {
			missing = append(missing, key)
		}
	}
	return missing
}

func (t *Table) apply(u Update) error {
	t.Weights = nil
	changes, err := t.plan(u.Endpoints, u.Removed)
	if err != nil {
		return err
	}
	if err := t.Rows.Index.Open(); err != nil {
		return err
	}
	ranges, err := t.SNAT.Plan(snat.Update{Snapshot: u.Snapshot, Workloads: u.SNAT, Removed: u.SNATRemoved, Keep: u.KeepSNAT})
	if err != nil {
		return err
	}
	if err := t.room.reserve(changes); err != nil {
		t.SNAT.Undo(ranges)
		return err
	}
	lists, err := t.Lists.Grow(acl.Update{Snapshot: u.Snapshot, Lists: u.Lists, Removed: u.ListsRemoved})
	if err == nil {
		err = t.holdLists(changes)
	}
	if err != nil {
		t.room.release(changes)
		t.SNAT.Undo(ranges)
		return errors.Join(err, t.Lists.Undo(lists))
	}
	if err := t.carryOutAll(changes, ranges); err != nil {
		return err
	}
	if err := t.Lists.Shrink(lists); err != nil {
		return err
	}
	if err := t.Lists.Purge(); err != nil {
		t.log.Warn("old lists of sources stay in their table for now", "err", err)
	}
	return nil
}

func (t *Table) carryOutAll(changes []change, ranges *snat.Plan) error {
	for i := range changes {
		if err := t.carryOut(&changes[i]); err != nil {
			t.room.release(changes[i+1:])
			releaseLists(t.Lists, changes[i+1:])
			return fmt.Errorf("change endpoint %s: %w", changes[i].key, err)
		}
	}
	if err := t.SNAT.CarryOut(ranges); err != nil {
		return err
	}
	return t.Pool.NoteFlags(t.allPorts > 0, t.SNAT.Len() > 0)
}

// plan finds what differs from the live tables.
func (t *Table) plan(upserts []model.MuxEndpoint, removed []model.EndpointKey) ([]change, error) {
	var changes []change
	seen := map[model.EndpointKey]bool{}
	for _, endpoint := range upserts {
		if seen[endpoint.Key] {
			return nil, fmt.Errorf("endpoint %s is given twice", endpoint.Key)
		}
		seen[endpoint.Key] = true
		if err := check(endpoint); err != nil {
			return nil, fmt.Errorf("check endpoint %s: %w", endpoint.Key, err)
		}
		old, next := t.Live[endpoint.Key], t.newLive(endpoint)
		c := change{key: endpoint.Key, old: old, next: next}
		c.sides = [2]acl.Side{acl.NewSide(endpoint.Allow, endpoint.AllowLists), acl.NewSide(endpoint.Deny, endpoint.DenyLists)}
		next.Lists = acl.Pair{c.sides[0].Digest, c.sides[1].Digest}
		c.newBuckets = old == nil || !slices.Equal(old.Buckets, next.Buckets) || !slices.Equal(old.Previous, next.Previous) || rehashes(old, next)
		c.newBackends = old == nil || !slices.EqualFunc(old.Backends, next.Backends, sameRow)
		if c.newBuckets || c.newBackends || old.Settings != next.Settings || old.Lists != next.Lists {
			changes = append(changes, c)
		} else {
			old.Mode, old.Tenant, old.Backends = next.Mode, next.Tenant, next.Backends
		}
	}
	for _, key := range removed {
		if old := t.Live[key]; old != nil && !seen[key] {
			seen[key] = true
			changes = append(changes, change{key: key, old: old})
		}
	}
	return changes, nil
}

// sameRow says whether both are the same in the tables, which do not know which backends are retired.
func sameRow(a, b model.MuxBackend) bool {
	a.Retired, b.Retired = false, false
	return a == b
}

// newLive is the endpoint in the form that reading the tables gives.
func (t *Table) newLive(e model.MuxEndpoint) *Live {
	next := &Live{
		Settings: t.settingsOf(e), Mode: e.SYNCookies, Tenant: e.Tenant, Buckets: slices.Clone(e.Buckets), Backends: slices.Clone(e.Backends),
	}
	if slices.ContainsFunc(e.Previous, func(slot model.Slot) bool { return slot != 0 }) {
		next.Previous = slices.Clone(e.Previous)
	}
	for i := range next.Backends {
		next.Backends[i].Backend = model.MuxBackend{}.Backend
	}
	slices.SortFunc(next.Backends, func(a, b model.MuxBackend) int { return int(a.Slot) - int(b.Slot) })
	return next
}

const maxBucketBits = 16 // the flow hash has more, but no table needs them

func check(e model.MuxEndpoint) error {
	n := len(e.Buckets)
	if n&(n-1) != 0 || n > 1<<maxBucketBits {
		return fmt.Errorf("has %d buckets, must be a power of two up to %d", n, 1<<maxBucketBits)
	}
	if err := acl.Check(e); err != nil {
		return err
	}
	known := map[model.Slot]bool{}
	for _, b := range e.Backends {
		switch {
		case b.Slot == 0 || b.Slot > model.MaxBackends:
			return fmt.Errorf("slot %d is not between 1 and %d", b.Slot, model.MaxBackends)
		case known[b.Slot]:
			return fmt.Errorf("slot %d is given twice", b.Slot)
		case !b.Tunnel.IsValid() || b.Tunnel.Is4In6() || b.Tunnel.Zone() != "":
			return fmt.Errorf("slot %d has no usable tunnel address: %q", b.Slot, b.Tunnel)
		case b.Host >= 1<<24:
			return fmt.Errorf("slot %d is on host %d, numbers end at %d", b.Slot, b.Host, 1<<24-1)
		}
		known[b.Slot] = true
	}
	for i, slot := range e.Buckets {
		if !known[slot] {
			return fmt.Errorf("bucket %d names slot %d, which has no backend", i, slot)
		}
	}
	return checkPrevious(e)
}

func checkPrevious(e model.MuxEndpoint) error {
	if len(e.Previous) != 0 && len(e.Previous) != len(e.Buckets) {
		return fmt.Errorf("names %d previous slots for %d buckets", len(e.Previous), len(e.Buckets))
	}
	for i, slot := range e.Previous {
		if slot > model.MaxBackends {
			return fmt.Errorf("bucket %d names previous slot %d, must be at most %d", i, slot, model.MaxBackends)
		}
	}
	return nil
}

// bucketRowBits is the size of the slice of buckets: twice what they need when there are previous ones.
func (e *Live) bucketRowBits() int {
	rows := max(0, bits.Len(uint(len(e.Buckets)))-1-bits.Len(uint(bpf.RowBuckets-1)))
	if len(e.Previous) > 0 {
		rows++
	}
	return rows
}

// slotBits is the size of the slice of backends: room for its highest slot.
func (e *Live) slotBits() int {
	if len(e.Backends) == 0 {
		return 0
	}
	return bits.Len(uint(e.Backends[len(e.Backends)-1].Slot))
}

// carryOut writes what is new, then switches the endpoint's row over, then retires the old.
func (t *Table) carryOut(c *change) error {
	if c.next == nil {
		return t.removeEndpoint(c)
	}
	var pair bpf.SlicePair
	if c.old != nil {
		c.next.Row, c.next.moves, c.next.longest = c.old.Row, c.old.moves, max(c.old.longest, c.old.Settings.idle)
		pair = bpf.UnpackSlices(c.old.Row.Slices)
	} else if err := t.initialise(c); err != nil {
		return err
	}
	index, err := t.Rows.Hold(c.key.VIP, c.next.Settings.flags, c.old == nil)
	if err != nil {
		return err
	}
	c.next.Row.Vip = index
	if c.newBuckets {
		pair.FirstBucketRow, pair.BucketBits = c.buckets.First, bpf.NoBuckets
		if c.old != nil && (moved(c.old.Buckets, c.next.Buckets) || rehashes(c.old, c.next)) {
			c.next.Row.Flags |= bpf.MuxEndpointFlagENDPOINT_REMAPPED
		}
		if n := len(c.next.Buckets); n > 0 {
			pair.BucketBits = bits.Len(uint(n)) - 1
		}
		c.next.moves = nextMoves(c.old, c.next)
		if err := t.room.writeBuckets(c.buckets, c.next); err != nil {
			return err
		}
	}
	if c.newBackends {
		pair.Backends = c.backends
		if err := t.writeBackends(c.backends, c.next.Backends); err != nil {
			return err
		}
	}
	c.next.Row.Slices = pair.Pack()
	c.next.Settings.write(&c.next.Row)
	if err := t.Lists.WriteRow(c.next.Row.Id, c.next.Lists); err != nil {
		return err
	}
	if err := t.Policers.Write(c.next.Row.Vip, c.next.Settings.limits); err != nil {
		return err
	}
	if err := c.writeRow(t.Tables.Endpoints); err != nil {
		return fmt.Errorf("write row of endpoints: %w", err)
	}
	t.Rows.Index.Put(bpf.ToKey(c.key), c.next.Row)
	t.Live[c.key] = c.next
	t.Tunnels.Replace(c.old.backends(), c.next.backends())
	if err := t.relays.replace(c.key.VIP, c.old, c.next); err != nil {
		return err
	}
	if c.old == nil && c.key.Port == model.AllPorts {
		t.allPorts++
	}
	t.retire(c)
	return nil
}

// rehashes says whether flows have other buckets now, though none moved: by another part of what they are known by.
func rehashes(old, next *Live) bool {
	return old != nil && (old.Settings.flags^next.Settings.flags)&bpf.MuxEndpointFlagENDPOINT_AFFINITY != 0
}

// writeRow switches the endpoint over. If it rehashes, packets see the marks before they hash anew: they read the slices first.
func (c *change) writeRow(endpoints *ebpf.Map) error {
	if rehashes(c.old, c.next) {
		marked := c.next.Row
		marked.Flags ^= bpf.MuxEndpointFlagENDPOINT_AFFINITY
		if err := errors.Join(endpoints.Put(bpf.ToKey(c.key), marked), abi.Quiesce()); err != nil {
			return err
		}
	}
	return endpoints.Put(bpf.ToKey(c.key), c.next.Row)
}

// moved says whether a flow may have another bucket's backend now. A table that only doubles
// moves none.
func moved(old, next []model.Slot) bool {
	if len(old) == 0 {
		return false // it forwarded nothing
	}
	if len(next) < len(old) {
		return true
	}
	for i, slot := range next {
		if slot != old[i%len(old)] {
			return true
		}
	}
	return false
}

// initialise gives a new endpoint its id and its salt.
func (t *Table) initialise(c *change) error {
	id, err := t.Rows.NewID()
	if err != nil {
		return err
	}
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails
	c.next.Row.Id, c.next.Row.Salt = id, binary.LittleEndian.Uint64(salt[:])
	return nil
}

func (t *Table) removeEndpoint(c *change) error {
	t.Rows.Index.Remove(bpf.ToKey(c.key), c.old.Row.Id)
	if err := t.Tables.Endpoints.Delete(bpf.ToKey(c.key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete row of endpoints: %w", err)
	}
	delete(t.Live, c.key)
	t.Tunnels.Replace(c.old.backends(), nil)
	if err := t.relays.replace(c.key.VIP, c.old, nil); err != nil {
		return err
	}
	if c.key.Port == model.AllPorts {
		t.allPorts--
	}
	t.Rows.IDs.Put(c.old.Row.Id)
	if err := t.Rows.Release(c.key.VIP); err != nil {
		return err
	}
	c.newBuckets, c.newBackends = true, true
	t.retire(c)
	return nil
}

// retire gives back the old slices that c replaced.
func (t *Table) retire(c *change) {
	if c.old == nil {
		return
	}
	releaseListsOf(t.Lists, c.old)
	pair := bpf.UnpackSlices(c.old.Row.Slices)
	if rows, ok := pair.BucketSpan(len(c.old.Previous) > 0); ok && c.newBuckets {
		t.room.buckets.Retire(rows)
	}
	if c.newBackends {
		t.room.backends.Retire(pair.Backends)
	}
}
