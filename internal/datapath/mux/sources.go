package mux

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// listDigest tells lists of sources apart by what is in them; all zero: there is none.
type listDigest [sha256.Size]byte

// sourceLists are those that an endpoint has: of sources that may come, and that may not.
type sourceLists [2]listDigest

// sourceList is a list in the table sources. Endpoints with the same prefixes share one.
type sourceList struct {
	id       uint32
	prefixes []netip.Prefix // in order, each once
	digest   listDigest
	uses     int
}

// sources knows the lists that endpoints name.
type sources struct {
	lists   map[listDigest]*sourceList
	ids     *alloc.IDs
	rows    int // of the table that lists have, those that are retired too
	most    int
	retired []*sourceList // packets may still read these

	named       map[string]*namedList
	sets        map[listDigest]*sourceSet
	rowsOfSets  *alloc.IDs
	retiredSets []*sourceSet // packets may still read these
	leaving     []*namedList // that go when nobody names them
	guards      []uint64     // the table guards as the kernel has it, shared with packets; nil until it is needed
	raw         [][]byte
}

// newSources has numbers for two lists of each endpoint, and for two more while they change, and for all prefix lists.
func newSources(endpoints uint32, most int) *sources {
	return &sources{
		lists: map[listDigest]*sourceList{}, ids: alloc.NewIDs("lists of sources", 4*endpoints+2*model.MaxPrefixLists), most: most,
		named: map[string]*namedList{}, sets: map[listDigest]*sourceSet{}, rowsOfSets: alloc.NewIDs("source_sets", bpf.SourceSetRows*endpoints),
	}
}

// openGuards shares the table with packets, once.
func (d *Datapath) openGuards() (err error) {
	if d.sources.guards != nil {
		return nil
	}
	if d.sources.guards, err = bpf.MapRows[uint64](&d.sources.raw, d.tables.ACLs); err != nil {
		return fmt.Errorf("map table guards: %w", err)
	}
	return nil
}

func (s *sources) close() {
	for _, raw := range s.raw {
		_ = unix.Munmap(raw)
	}
	s.guards, s.raw = nil, nil
}

// canonical is the list in order, each prefix once, and what tells it from others.
func canonical(list []netip.Prefix) ([]netip.Prefix, listDigest) {
	if len(list) == 0 {
		return nil, listDigest{}
	}
	if !slices.IsSortedFunc(list, netip.Prefix.Compare) {
		list = slices.Clone(list)
		slices.SortFunc(list, netip.Prefix.Compare)
	}
	list = slices.Compact(slices.Clone(list))
	hash := sha256.New()
	for _, p := range list {
		text, _ := p.MarshalBinary() // fails never
		hash.Write(append(text, byte(len(text))))
	}
	return list, listDigest(hash.Sum(nil))
}

func checkSources(e model.MuxEndpoint) error {
	for _, list := range [][]netip.Prefix{e.Allow, e.Deny} {
		for _, p := range list {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4() != e.Key.VIP.Is4() || p.Addr().Is4In6() {
				return fmt.Errorf("%q is no prefix of sources of its family", p)
			}
		}
	}
	return nil
}

// holdLists notes for each change the lists that its next endpoint names, and fills those that are new: no
// packet reads them yet.
func (d *Datapath) holdLists(changes []change) error {
	for i := range changes {
		c := &changes[i]
		if c.next == nil {
			continue
		}
		for j, side := range c.sides {
			if err := d.holdSide(side); err != nil {
				for _, held := range c.next.lists[:j] {
					d.releaseList(held)
				}
				d.releaseLists(changes[:i])
				return fmt.Errorf("change endpoint %s: %w", c.key, err)
			}
		}
	}
	return nil
}

// releaseLists takes back what holdLists held.
func (d *Datapath) releaseLists(changes []change) {
	for i := range changes {
		if next := changes[i].next; next != nil {
			d.releaseListsOf(next)
		}
	}
}

func (d *Datapath) releaseListsOf(e *liveEndpoint) {
	for _, digest := range e.lists {
		d.releaseList(digest)
	}
}

func (d *Datapath) holdList(digest listDigest, prefixes []netip.Prefix) error {
	if digest == (listDigest{}) {
		return nil
	}
	if held := d.sources.lists[digest]; held != nil {
		held.uses++
		return nil
	}
	if err := d.sourceRoom(len(prefixes)); err != nil {
		return err
	}
	id, err := d.sources.ids.Take()
	if err != nil {
		return err
	}
	list := &sourceList{id: id, prefixes: prefixes, digest: digest, uses: 1}
	d.sources.rows += len(prefixes)
	if err := writeList(&d.tables, list); err != nil {
		d.sources.retired = append(d.sources.retired, list)
		return err
	}
	d.sources.lists[digest] = list
	return nil
}

// sourceRoom holds that so many rows are free.
func (d *Datapath) sourceRoom(rows int) error {
	if d.sources.rows+rows > d.sources.most {
		if err := d.purgeLists(); err != nil {
			return err
		}
	}
	if d.sources.rows+rows > d.sources.most {
		return fmt.Errorf("no room in table sources: a list needs %d rows, %d are free: raise --max-source-prefixes",
			rows, d.sources.most-d.sources.rows)
	}
	return nil
}

func (d *Datapath) releaseList(digest listDigest) {
	if set := d.sources.sets[digest]; set != nil {
		d.releaseSet(set)
		return
	}
	list := d.sources.lists[digest]
	if list == nil {
		return
	}
	if list.uses--; list.uses == 0 {
		delete(d.sources.lists, digest)
		d.sources.retired = append(d.sources.retired, list)
	}
}

// purgeLists takes lists that nobody names out of the table, once no packet reads them.
func (d *Datapath) purgeLists() error {
	if len(d.sources.retired)+len(d.sources.retiredSets)+len(d.sources.leaving) == 0 {
		return nil
	}
	if err := bpf.Quiesce(); err != nil {
		return err
	}
	d.purgeSets()
	if err := d.purgeNamed(); err != nil {
		return err
	}
	for len(d.sources.retired) > 0 {
		list := d.sources.retired[0]
		if err := deleteList(&d.tables, list); err != nil {
			return err
		}
		d.sources.retired = d.sources.retired[1:]
		d.sources.rows -= len(list.prefixes)
		d.sources.ids.Put(list.id)
	}
	return nil
}

// writeACL writes the endpoint's row of acls.
func (d *Datapath) writeACL(id uint32, lists sourceLists) error {
	if lists == (sourceLists{}) {
		return nil // its row says so
	}
	if err := d.openGuards(); err != nil {
		return err
	}
	atomic.StoreUint64(&d.sources.guards[id], guardWord(d.sources.id(lists[0]), d.sources.id(lists[1])))
	return nil
}

// guardWord is how packets find an endpoint's lists.
func guardWord(allow, deny uint32) uint64 { return uint64(allow) | uint64(deny)<<32 }

func (s *sources) id(digest listDigest) uint32 {
	if set := s.sets[digest]; set != nil {
		return muxSourceSetFlag | set.row
	}
	if list := s.lists[digest]; list != nil {
		return list.id
	}
	return 0
}

// sourceKey is the row's key. A prefix of IPv4 has its address in the first word.
func sourceKey(list uint32, p netip.Prefix) bpf.MuxSourceKey {
	key := bpf.MuxSourceKey{List: list << muxSourceListShift, Length: uint32(32 + p.Bits())}
	words := abi.Words(p.Addr())
	if p.Addr().Is4() {
		key.List |= muxSourceListV4
		words = [4]uint32{words[3]}
	}
	key.Address.Words = words
	return key
}

// The layout of source_key.list.
const (
	muxSourceListShift = bpf.MuxSourceListLayoutSOURCE_LIST_SHIFT
	muxSourceListV4    = uint32(bpf.MuxSourceListLayoutSOURCE_LIST_V4)
	muxSourceSetFlag   = uint32(bpf.MuxSourceSetLayoutSOURCE_SET) // of guard.lists
)

// fromSourceKey is what sourceKey wrote.
func fromSourceKey(key bpf.MuxSourceKey) (list uint32, p netip.Prefix) {
	list = key.List >> muxSourceListShift
	bytes := *(*[16]byte)(unsafe.Pointer(&key.Address.Words))
	if key.List&muxSourceListV4 != 0 {
		return list, netip.PrefixFrom(netip.AddrFrom4([4]byte(bytes[:4])), int(key.Length)-32)
	}
	return list, netip.PrefixFrom(netip.AddrFrom16(bytes), int(key.Length)-32)
}

// sourceBatch is how many rows of a list are written at once.
const sourceBatch = 4096

func writeList(t *bpf.Tables, list *sourceList) error { return writeSources(t, list.id, list.prefixes) }

// writeSources adds rows to a list.
func writeSources(t *bpf.Tables, list uint32, prefixes []netip.Prefix) error {
	values := make([]uint8, min(sourceBatch, len(prefixes)))
	for part := range slices.Chunk(prefixes, sourceBatch) {
		keys := make([]bpf.MuxSourceKey, len(part))
		for i, p := range part {
			keys[i] = sourceKey(list, p)
		}
		if _, err := t.Sources.BatchUpdate(keys, values[:len(keys)], nil); err != nil {
			return fmt.Errorf("write a list of %d sources: %w", len(prefixes), err)
		}
	}
	return nil
}

// deleteList removes the rows of a list, of one that was written in part too.
func deleteList(t *bpf.Tables, list *sourceList) error {
	return deleteSources(t, list.id, list.prefixes)
}

// deleteSources removes rows of a list, as far as they are there.
func deleteSources(t *bpf.Tables, list uint32, prefixes []netip.Prefix) error {
	for part := range slices.Chunk(prefixes, sourceBatch) {
		keys := make([]bpf.MuxSourceKey, len(part))
		for i, p := range part {
			keys[i] = sourceKey(list, p)
		}
		for len(keys) > 0 {
			n, err := t.Sources.BatchDelete(keys, nil)
			if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("delete a list of %d sources: %w", len(prefixes), err)
			}
			if err == nil {
				n--
			}
			keys = keys[n+1:]
		}
	}
	return nil
}

// adoptSources restores the lists of adopted tables. What belongs to none that an endpoint names was on its
// way when its process ended: it goes.
func (d *Datapath) adoptSources() error {
	if err := d.openGuards(); err != nil {
		return err
	}
	byID, err := readLists(&d.tables)
	if err != nil {
		return err
	}
	used := map[uint32]bool{}
	if err := d.adoptNamed(byID, used); err != nil {
		return err
	}
	rowsOfSets := map[uint32]bool{}
	for id, list := range byID {
		list.prefixes, list.digest = canonical(list.prefixes)
		d.sources.rows += len(list.prefixes)
		used[id] = true
	}
	for _, live := range d.live {
		if live.row.Flags&bpf.MuxEndpointFlagENDPOINT_SOURCES == 0 {
			continue
		}
		word := &d.sources.guards[live.row.Id]
		old := *word
		var ids [2]uint32
		for i, id := range []uint32{uint32(old), uint32(old >> 32)} {
			if id&muxSourceSetFlag != 0 {
				if ids[i], live.lists[i], err = d.adoptSet(id&^muxSourceSetFlag, byID); err != nil {
					return err
				}
				rowsOfSets[ids[i]&^muxSourceSetFlag] = true
				continue
			}
			ids[i], live.lists[i] = d.adoptList(id, byID[id])
		}
		if now := guardWord(ids[0], ids[1]); now != old {
			atomic.StoreUint64(word, now)
		}
	}
	d.sources.ids.Claim(used)
	d.sources.rowsOfSets.Claim(rowsOfSets)
	for _, list := range byID {
		if list.uses == 0 {
			d.sources.retired = append(d.sources.retired, list)
		}
	}
	return d.purgeLists()
}

// adoptList notes that an endpoint names a list that was found. Of two with the same prefixes one stays, and the
// other is nobody's.
func (d *Datapath) adoptList(id uint32, found *sourceList) (uint32, listDigest) {
	if found == nil {
		return id, listDigest{}
	}
	kept := d.sources.lists[found.digest]
	if kept == nil {
		kept = found
		d.sources.lists[found.digest] = found
	}
	kept.uses++
	return kept.id, kept.digest
}

// readLists reads all lists, by number.
func readLists(t *bpf.Tables) (map[uint32]*sourceList, error) {
	lists := map[uint32]*sourceList{}
	var key bpf.MuxSourceKey
	var value uint8
	entries := t.Sources.Iterate()
	for entries.Next(&key, &value) {
		id, p := fromSourceKey(key)
		if lists[id] == nil {
			lists[id] = &sourceList{id: id}
		}
		lists[id].prefixes = append(lists[id].prefixes, p)
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read table sources: %w", err)
	}
	return lists, nil
}
