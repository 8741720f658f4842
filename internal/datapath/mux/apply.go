package mux

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// liveEndpoint is an endpoint as the tables have it. Buckets and backends are kept in the form
// that a read of the tables gives.
type liveEndpoint struct {
	row      bpf.MuxEndpoint
	settings endpointSettings
	mode     model.SYNCookies // not in the tables: empty until the control plane says so
	tenant   string           // likewise
	buckets  []model.Slot
	previous []model.Slot       // as long as buckets, or empty when there is none
	backends []model.MuxBackend // by slot; Backend is not in the tables and zero
	lists    sourceLists
}

// change is one endpoint's way from old to next; either may be nil. Slices that next does not
// share with old are reserved for it.
type change struct {
	key       model.EndpointKey
	old, next *liveEndpoint

	buckets, backends alloc.Span
	newBuckets        bool // next has buckets, or previous ones, of its own, to be written
	newBackends       bool
	sides             [2]sourceSide // of next's lists
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
func (d *Datapath) Update(u Update) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.Snapshot {
		u.Removed = d.missing(u.Endpoints)
	}
	return d.apply(u)
}

// missing lists the live endpoints that all does not have.
func (d *Datapath) missing(all []model.MuxEndpoint) (missing []model.EndpointKey) {
	kept := map[model.EndpointKey]bool{}
	for _, endpoint := range all {
		kept[endpoint.Key] = true
	}
	for key := range d.live {
		if !kept[key] {
			missing = append(missing, key)
		}
	}
	return missing
}

// Apply is an Update of endpoints alone.
func (d *Datapath) Apply(upserts []model.MuxEndpoint, removed []model.EndpointKey) error {
	return d.Update(Update{Endpoints: upserts, Removed: removed})
}

// Replace is an Update by a snapshot without source NAT.
func (d *Datapath) Replace(all []model.MuxEndpoint) error {
	return d.Update(Update{Snapshot: true, Endpoints: all})
}

func (d *Datapath) apply(u Update) error {
	d.weights = nil
	changes, err := d.plan(u.Endpoints, u.Removed)
	if err != nil {
		return err
	}
	if err := d.openEndpointIndex(); err != nil {
		return err
	}
	snat, err := d.planSNAT(u)
	if err != nil {
		return err
	}
	if err := d.reserve(changes); err != nil {
		d.undoSNAT(snat)
		return err
	}
	lists, err := d.growLists(u)
	if err == nil {
		err = d.holdLists(changes)
	}
	if err != nil {
		d.release(changes)
		d.undoSNAT(snat)
		return errors.Join(err, d.undoLists(lists))
	}
	if err := d.carryOutAll(changes, snat); err != nil {
		return err
	}
	if err := d.shrinkLists(lists); err != nil {
		return err
	}
	if err := d.purgeLists(); err != nil {
		d.log.Warn("old lists of sources stay in their table for now", "err", err)
	}
	return nil
}

func (d *Datapath) carryOutAll(changes []change, snat *snatPlan) error {
	for i := range changes {
		if err := d.carryOut(&changes[i]); err != nil {
			d.release(changes[i+1:])
			d.releaseLists(changes[i+1:])
			return fmt.Errorf("change endpoint %s: %w", changes[i].key, err)
		}
	}
	if err := d.carryOutSNAT(snat); err != nil {
		return err
	}
	return d.noteFlags()
}

// plan finds what differs from the live tables.
func (d *Datapath) plan(upserts []model.MuxEndpoint, removed []model.EndpointKey) ([]change, error) {
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
		old, next := d.live[endpoint.Key], d.newLiveEndpoint(endpoint)
		c := change{key: endpoint.Key, old: old, next: next}
		c.sides = [2]sourceSide{newSourceSide(endpoint.Allow, endpoint.AllowLists), newSourceSide(endpoint.Deny, endpoint.DenyLists)}
		next.lists = sourceLists{c.sides[0].digest, c.sides[1].digest}
		c.newBuckets = old == nil || !slices.Equal(old.buckets, next.buckets) || !slices.Equal(old.previous, next.previous)
		c.newBackends = old == nil || !slices.EqualFunc(old.backends, next.backends, sameRow)
		if c.newBuckets || c.newBackends || old.settings != next.settings || old.lists != next.lists {
			changes = append(changes, c)
		} else {
			old.mode, old.tenant, old.backends = next.mode, next.tenant, next.backends
		}
	}
	for _, key := range removed {
		if old := d.live[key]; old != nil && !seen[key] {
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

// newLiveEndpoint is the endpoint in the form that reading the tables gives.
func (d *Datapath) newLiveEndpoint(e model.MuxEndpoint) *liveEndpoint {
	next := &liveEndpoint{
		settings: d.settingsOf(e), mode: e.SYNCookies, tenant: e.Tenant, buckets: slices.Clone(e.Buckets), backends: slices.Clone(e.Backends),
	}
	if slices.ContainsFunc(e.Previous, func(slot model.Slot) bool { return slot != 0 }) {
		next.previous = slices.Clone(e.Previous)
	}
	for i := range next.backends {
		next.backends[i].Backend = model.MuxBackend{}.Backend
	}
	slices.SortFunc(next.backends, func(a, b model.MuxBackend) int { return int(a.Slot) - int(b.Slot) })
	return next
}

const maxBucketBits = 16 // the flow hash has more, but no table needs them

func check(e model.MuxEndpoint) error {
	n := len(e.Buckets)
	if n&(n-1) != 0 || n > 1<<maxBucketBits {
		return fmt.Errorf("has %d buckets, must be a power of two up to %d", n, 1<<maxBucketBits)
	}
	if err := checkSources(e); err != nil {
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

// reserve finds room for everything that changes write, or for nothing. Room that was given
// back is reused only once no packet can read it any more.
func (d *Datapath) reserve(changes []change) error {
	if err := d.tryReserve(changes); err == nil {
		return nil
	}
	if err := bpf.Quiesce(); err != nil {
		return err
	}
	d.bucketSlices.Reclaim()
	d.backendSlices.Reclaim()
	return d.tryReserve(changes)
}

func (d *Datapath) tryReserve(changes []change) error {
	fresh, gone := 0, 0
	for i := range changes {
		c := &changes[i]
		switch {
		case c.next == nil:
			gone++
			continue
		case c.old == nil:
			fresh++
		}
		if err := d.reserveSlices(c); err != nil {
			d.release(changes[:i])
			return err
		}
	}
	if room := len(d.ids.Free); fresh > room {
		d.release(changes)
		return fmt.Errorf("no room in table endpoints: %d new ones, %d rows free, %d to be removed: raise --max-endpoints",
			fresh, room, gone)
	}
	return nil
}

func (d *Datapath) reserveSlices(c *change) error {
	var ok bool
	if c.newBuckets && len(c.next.buckets) > 0 {
		want := c.next.bucketRowBits()
		if c.buckets, ok = d.bucketSlices.Take(want); !ok {
			return noRoom(d.bucketSlices, c.key, want)
		}
	}
	if c.newBackends {
		want := c.next.slotBits()
		if c.backends, ok = d.backendSlices.Take(want); !ok {
			d.releaseBuckets(c)
			return noRoom(d.backendSlices, c.key, want)
		}
	}
	return nil
}

func noRoom(s *alloc.Rows, key model.EndpointKey, bits int) error {
	return fmt.Errorf("no room in table %s: endpoint %s needs %d rows in a row, %d are free in pieces: raise --max-%[1]s",
		s.Table, key, 1<<bits, s.Room())
}

// bucketRowBits is the size of the slice of buckets: twice what they need when there are previous ones.
func (e *liveEndpoint) bucketRowBits() int {
	rows := max(0, bits.Len(uint(len(e.buckets)))-1-bits.Len(uint(bpf.RowBuckets-1)))
	if len(e.previous) > 0 {
		rows++
	}
	return rows
}

// slotBits is the size of the slice of backends: room for its highest slot.
func (e *liveEndpoint) slotBits() int {
	if len(e.backends) == 0 {
		return 0
	}
	return bits.Len(uint(e.backends[len(e.backends)-1].Slot))
}

// release gives back what changes reserved and did not come to use.
func (d *Datapath) release(changes []change) {
	for i := range changes {
		c := &changes[i]
		if c.next == nil {
			continue
		}
		d.releaseBuckets(c)
		if c.newBackends {
			d.backendSlices.Put(c.backends)
		}
	}
}

func (d *Datapath) releaseBuckets(c *change) {
	if c.newBuckets && len(c.next.buckets) > 0 {
		d.bucketSlices.Put(c.buckets)
	}
}

// carryOut writes what is new, then switches the endpoint's row over, then retires the old.
func (d *Datapath) carryOut(c *change) error {
	if c.next == nil {
		return d.removeEndpoint(c)
	}
	var pair bpf.SlicePair
	if c.old != nil {
		c.next.row = c.old.row
		pair = bpf.UnpackSlices(c.old.row.Slices)
	} else if err := d.initialise(c); err != nil {
		return err
	}
	if err := d.holdVIP(c); err != nil {
		return err
	}
	if c.newBuckets {
		pair.FirstBucketRow, pair.BucketBits = c.buckets.First, bpf.NoBuckets
		if c.old != nil && moved(c.old.buckets, c.next.buckets) {
			c.next.row.Flags |= bpf.MuxEndpointFlagENDPOINT_REMAPPED
		}
		if n := len(c.next.buckets); n > 0 {
			pair.BucketBits = bits.Len(uint(n)) - 1
		}
		if err := d.writeBuckets(c.buckets, c.next.buckets, c.next.previous); err != nil {
			return err
		}
	}
	if c.newBackends {
		pair.Backends = c.backends
		if err := d.writeBackends(c.backends, c.next.backends); err != nil {
			return err
		}
	}
	c.next.row.Slices = pair.Pack()
	c.next.settings.write(&c.next.row)
	if err := d.writeACL(c.next.row.Id, c.next.lists); err != nil {
		return err
	}
	if err := d.writeLimits(c.next.row.Vip, c.next.settings.limits); err != nil {
		return err
	}
	if err := d.tables.Endpoints.Put(bpf.ToKey(c.key), c.next.row); err != nil {
		return fmt.Errorf("write row of endpoints: %w", err)
	}
	d.index.put(bpf.ToKey(c.key), c.next.row)
	d.live[c.key] = c.next
	d.tunnels.replace(c.old, c.next)
	if c.old == nil && c.key.Port == model.AllPorts {
		d.allPorts++
	}
	d.retire(c)
	return nil
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

// newID is a row's id, with counters at zero.
func (d *Datapath) newID() (uint32, error) {
	id, err := d.ids.Take()
	if err != nil {
		return 0, err
	}
	zero := make([]bpf.MuxCounter, ebpf.MustPossibleCPU())
	if err := d.tables.EndpointCounts.Put(id, zero); err != nil {
		d.ids.Put(id)
		return 0, fmt.Errorf("clear row of endpoint_counts: %w", err)
	}
	if err := d.tables.SYNCounters.Put(id, make([]bpf.MuxSynCounter, ebpf.MustPossibleCPU())); err != nil {
		d.ids.Put(id)
		return 0, fmt.Errorf("clear row of syn_counters: %w", err)
	}
	return id, nil
}

// initialise gives a new endpoint its id and its salt.
func (d *Datapath) initialise(c *change) error {
	id, err := d.newID()
	if err != nil {
		return err
	}
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails
	c.next.row.Id, c.next.row.Salt = id, binary.LittleEndian.Uint64(salt[:])
	return nil
}

func (d *Datapath) removeEndpoint(c *change) error {
	d.index.remove(bpf.ToKey(c.key), c.old.row.Id)
	if err := d.tables.Endpoints.Delete(bpf.ToKey(c.key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete row of endpoints: %w", err)
	}
	delete(d.live, c.key)
	d.tunnels.replace(c.old, nil)
	if c.key.Port == model.AllPorts {
		d.allPorts--
	}
	d.ids.Put(c.old.row.Id)
	if err := d.releaseVIP(c.key.VIP); err != nil {
		return err
	}
	c.newBuckets, c.newBackends = true, true
	d.retire(c)
	return nil
}

// retire gives back the old slices that c replaced.
func (d *Datapath) retire(c *change) {
	if c.old == nil {
		return
	}
	d.releaseListsOf(c.old)
	pair := bpf.UnpackSlices(c.old.row.Slices)
	if rows, ok := pair.BucketSpan(len(c.old.previous) > 0); ok && c.newBuckets {
		d.bucketSlices.Retire(rows)
	}
	if c.newBackends {
		d.backendSlices.Retire(pair.Backends)
	}
}
