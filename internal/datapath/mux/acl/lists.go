package acl

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Digest tells lists of sources apart by what is in them; all zero: there is none.
type Digest [sha256.Size]byte

// Pair are those that an endpoint has: of sources that may come, and that may not.
type Pair [2]Digest

// List is a list in the table sources. Endpoints with the same prefixes share one.
type List struct {
	ID       uint32
	Prefixes []netip.Prefix // in order, each once
	digest   Digest
	uses     int
}

// Lists are the lists of sources in the tables: prefix lists by their names, and those that stand in endpoints. Endpoints
// with the same ones share them. The caller holds the data plane's lock.
type Lists struct {
	tables  *bpf.Tables
	lists   map[Digest]*List
	ids     *alloc.IDs
	Rows    int // of the table that lists have, those that are retired too
	most    int
	retired []*List // packets may still read these

	Named       map[string]*Named
	sets        map[Digest]*sourceSet
	rowsOfSets  *alloc.IDs
	retiredSets []*sourceSet // packets may still read these
	leaving     []*Named     // that go when nobody names them
	Words       []uint64     // the table guards as the kernel has it, shared with packets; nil until it is needed
	raw         [][]byte
}

// New has numbers for two lists of each endpoint, and for two more while they change, and for all prefix lists.
func New(tables *bpf.Tables, sizes bpf.Sizes) *Lists {
	endpoints, most := sizes.Rows(), int(sizes.SourceRows())
	return &Lists{
		tables: tables,
		lists:  map[Digest]*List{}, ids: alloc.NewIDs("lists of sources", 4*endpoints+2*model.MaxPrefixLists), most: most,
		Named: map[string]*Named{}, sets: map[Digest]*sourceSet{}, rowsOfSets: alloc.NewIDs("source_sets", bpf.SourceSetRows*endpoints),
	}
}

// open shares the table with packets, once.
func (l *Lists) open() (err error) {
	if l.Words != nil {
		return nil
	}
	if l.Words, err = abi.MapRows[uint64](&l.raw, l.tables.ACLs); err != nil {
		return fmt.Errorf("map table guards: %w", err)
	}
	return nil
}

// Close ends the sharing of memory with packets.
func (l *Lists) Close() {
	abi.Unmap(&l.raw)
	l.Words = nil
}

// canonical is the list in order, each prefix once, and what tells it from others.
func canonical(list []netip.Prefix) ([]netip.Prefix, Digest) {
	if len(list) == 0 {
		return nil, Digest{}
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
	return list, Digest(hash.Sum(nil))
}

// Check refuses lists that endpoints of the family can't have.
func Check(e model.MuxEndpoint) error {
	for _, list := range [][]netip.Prefix{e.Allow, e.Deny} {
		for _, p := range list {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4() != e.Key.VIP.Is4() || p.Addr().Is4In6() {
				return fmt.Errorf("%q is no prefix of sources of its family", p)
			}
		}
	}
	return nil
}

func (l *Lists) holdList(digest Digest, prefixes []netip.Prefix) error {
	if digest == (Digest{}) {
		return nil
	}
	if held := l.lists[digest]; held != nil {
		held.uses++
		return nil
	}
	if err := l.needRoom(len(prefixes)); err != nil {
		return err
	}
	id, err := l.ids.Take()
	if err != nil {
		return err
	}
	list := &List{ID: id, Prefixes: prefixes, digest: digest, uses: 1}
	l.Rows += len(prefixes)
	if err := Write(l.tables.Sources, list.ID, list.Prefixes); err != nil {
		l.retired = append(l.retired, list)
		return err
	}
	l.lists[digest] = list
	return nil
}

// needRoom holds that so many rows are free.
func (l *Lists) needRoom(rows int) error {
	if l.Rows+rows > l.most {
		if err := l.Purge(); err != nil {
			return err
		}
	}
	if l.Rows+rows > l.most {
		return fmt.Errorf("no room in table sources: a list needs %d rows, %d are free: raise --max-source-prefixes",
			rows, l.most-l.Rows)
	}
	return nil
}

// Release takes back a Hold.
func (l *Lists) Release(digest Digest) {
	if set := l.sets[digest]; set != nil {
		l.releaseSet(set)
		return
	}
	list := l.lists[digest]
	if list == nil {
		return
	}
	if list.uses--; list.uses == 0 {
		delete(l.lists, digest)
		l.retired = append(l.retired, list)
	}
}

// Purge takes lists that nobody names out of the table, once no packet reads them.
func (l *Lists) Purge() error {
	if len(l.retired)+len(l.retiredSets)+len(l.leaving) == 0 {
		return nil
	}
	if err := abi.Quiesce(); err != nil {
		return err
	}
	l.purgeSets()
	if err := l.purgeNamed(); err != nil {
		return err
	}
	for len(l.retired) > 0 {
		list := l.retired[0]
		if err := deleteSources(l.tables.Sources, list.ID, list.Prefixes); err != nil {
			return err
		}
		l.retired = l.retired[1:]
		l.Rows -= len(list.Prefixes)
		l.ids.Put(list.ID)
	}
	return nil
}

// WriteRow writes the endpoint's row of acls.
func (l *Lists) WriteRow(id uint32, lists Pair) error {
	if lists == (Pair{}) {
		return nil // its row says so
	}
	if err := l.open(); err != nil {
		return err
	}
	atomic.StoreUint64(&l.Words[id], Word(l.id(lists[0]), l.id(lists[1])))
	return nil
}

// Word is how packets find an endpoint's lists.
func Word(allow, deny uint32) uint64 { return uint64(allow) | uint64(deny)<<32 }

func (l *Lists) id(digest Digest) uint32 {
	if set := l.sets[digest]; set != nil {
		return muxSourceSetFlag | set.row
	}
	if list := l.lists[digest]; list != nil {
		return list.ID
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

// Write adds rows to a list.
func Write(table *ebpf.Map, list uint32, prefixes []netip.Prefix) error {
	values := make([]uint8, min(sourceBatch, len(prefixes)))
	for part := range slices.Chunk(prefixes, sourceBatch) {
		keys := make([]bpf.MuxSourceKey, len(part))
		for i, p := range part {
			keys[i] = sourceKey(list, p)
		}
		if _, err := table.BatchUpdate(keys, values[:len(keys)], nil); err != nil {
			return fmt.Errorf("write a list of %d sources: %w", len(prefixes), err)
		}
	}
	return nil
}

// deleteSources removes rows of a list, as far as they are there: of one that was written in part too.
func deleteSources(table *ebpf.Map, list uint32, prefixes []netip.Prefix) error {
	for part := range slices.Chunk(prefixes, sourceBatch) {
		keys := make([]bpf.MuxSourceKey, len(part))
		for i, p := range part {
			keys[i] = sourceKey(list, p)
		}
		for len(keys) > 0 {
			n, err := table.BatchDelete(keys, nil)
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

// Adopt restores the lists of adopted tables, and what endpoints have of them, by their rows. What belongs to none that an endpoint names was on its
// way when its process ended: it goes.
func (l *Lists) Adopt(endpoints map[uint32]*Pair) error {
	if err := l.open(); err != nil {
		return err
	}
	byID, err := ReadLists(l.tables.Sources)
	if err != nil {
		return err
	}
	used := map[uint32]bool{}
	if err := l.adoptNamed(byID, used); err != nil {
		return err
	}
	rowsOfSets := map[uint32]bool{}
	for id, list := range byID {
		list.Prefixes, list.digest = canonical(list.Prefixes)
		l.Rows += len(list.Prefixes)
		used[id] = true
	}
	for row, pair := range endpoints {
		word := &l.Words[row]
		old := *word
		var ids [2]uint32
		for i, id := range []uint32{uint32(old), uint32(old >> 32)} {
			if id&muxSourceSetFlag != 0 {
				if ids[i], pair[i], err = l.adoptSet(id&^muxSourceSetFlag, byID); err != nil {
					return err
				}
				rowsOfSets[ids[i]&^muxSourceSetFlag] = true
				continue
			}
			ids[i], pair[i] = l.adoptList(id, byID[id])
		}
		if now := Word(ids[0], ids[1]); now != old {
			atomic.StoreUint64(word, now)
		}
	}
	l.ids.Claim(used)
	l.rowsOfSets.Claim(rowsOfSets)
	for _, list := range byID {
		if list.uses == 0 {
			l.retired = append(l.retired, list)
		}
	}
	return l.Purge()
}

// adoptList notes that an endpoint names a list that was found. Of two with the same prefixes one stays, and the
// other is nobody's.
func (l *Lists) adoptList(id uint32, found *List) (uint32, Digest) {
	if found == nil {
		return id, Digest{}
	}
	kept := l.lists[found.digest]
	if kept == nil {
		kept = found
		l.lists[found.digest] = found
	}
	kept.uses++
	return kept.ID, kept.digest
}

// ReadLists reads all lists, by number.
func ReadLists(table *ebpf.Map) (map[uint32]*List, error) {
	lists := map[uint32]*List{}
	var key bpf.MuxSourceKey
	var value uint8
	entries := table.Iterate()
	for entries.Next(&key, &value) {
		id, p := fromSourceKey(key)
		if lists[id] == nil {
			lists[id] = &List{ID: id}
		}
		lists[id].Prefixes = append(lists[id].Prefixes, p)
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read table sources: %w", err)
	}
	return lists, nil
}
