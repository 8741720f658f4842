package mux

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Prefix lists are too long to be written anew for each change, and many endpoints name one. So they change in place:
// what is new is written before what is gone is deleted, and each row by itself. A source that is listed before and
// afterwards is listed all the time, and one that is neither never is.

// bpf.SourceSetRows is how many rows of source_sets there are for each endpoint: two, and two more while they change.

// namedList is a prefix list in the table sources.
type namedList struct {
	id       uint32
	name     string
	prefixes model.PrefixSet // as the table has them
}

// sourceSide is one of the two lists of an endpoint, as it is asked for.
type sourceSide struct {
	prefixes []netip.Prefix // in order, each once
	inline   listDigest     // of those
	names    []string       // of prefix lists, in order
	digest   listDigest     // of all of it
}

// sourceSet is a row of source_sets: lists that hold as one. Endpoints with the same ones share it.
type sourceSet struct {
	row    uint32
	inline listDigest
	names  []string
	digest listDigest
	uses   int
}

func newSourceSide(prefixes []netip.Prefix, names []string) sourceSide {
	var s sourceSide
	s.prefixes, s.inline = canonical(prefixes)
	s.names = slices.Compact(slices.Sorted(slices.Values(names)))
	s.digest = digestOfSet(s.inline, s.names)
	return s
}

// digestOfSet tells sets apart. Without names it is the list's.
func digestOfSet(inline listDigest, names []string) listDigest {
	if len(names) == 0 {
		return inline
	}
	hash := sha256.New()
	hash.Write(inline[:])
	for _, name := range names {
		hash.Write(append([]byte(name), 0))
	}
	return listDigest(hash.Sum(nil))
}

// holdSide notes that one more endpoint has the lists, and writes what is new: no packet reads it yet.
func (d *Datapath) holdSide(s sourceSide) error {
	if len(s.names) == 0 {
		return d.holdList(s.digest, s.prefixes)
	}
	if held := d.sources.sets[s.digest]; held != nil {
		held.uses++
		return nil
	}
	set := &sourceSet{inline: s.inline, names: s.names, digest: s.digest, uses: 1}
	for _, name := range s.names {
		if d.sources.named[name] == nil {
			return fmt.Errorf("prefix list %s is not here", name)
		}
	}
	if len(d.sources.rowsOfSets.Free) == 0 {
		if err := d.purgeLists(); err != nil {
			return err
		}
	}
	if err := d.holdList(s.inline, s.prefixes); err != nil {
		return err
	}
	var err error
	if set.row, err = d.sources.rowsOfSets.Take(); err != nil {
		d.releaseList(s.inline)
		return err
	}
	if err := d.tables.SourceSets.Put(set.row, d.sources.rowOf(set)); err != nil {
		d.sources.rowsOfSets.Put(set.row)
		d.releaseList(s.inline)
		return fmt.Errorf("write row of source_sets: %w", err)
	}
	d.sources.sets[s.digest] = set
	return nil
}

// rowOf is the set as packets read it.
func (s *sources) rowOf(set *sourceSet) (row bpf.MuxSourceSet) {
	lists := row.Lists[:0]
	if set.inline != (listDigest{}) {
		lists = append(lists, s.lists[set.inline].id)
	}
	for _, name := range set.names {
		lists = append(lists, s.named[name].id)
	}
	return row
}

func (d *Datapath) releaseSet(set *sourceSet) {
	if set.uses--; set.uses == 0 {
		delete(d.sources.sets, set.digest)
		d.sources.retiredSets = append(d.sources.retiredSets, set)
	}
}

// purgeSets gives back the rows of sets that nobody names, once no packet reads them.
func (d *Datapath) purgeSets() {
	for _, set := range d.sources.retiredSets {
		d.sources.rowsOfSets.Put(set.row)
		d.releaseList(set.inline)
	}
	d.sources.retiredSets = nil
}

// listChange is what an update does to one prefix list.
type listChange struct {
	list        *namedList
	fresh       bool
	added, gone []netip.Prefix
}

// growLists writes what is new in the prefix lists of an update. When the table has no room for all of it nothing is
// written.
func (d *Datapath) growLists(u Update) ([]listChange, error) {
	changes, need := []listChange(nil), 0
	for _, next := range u.Lists {
		c := listChange{list: d.sources.named[next.Name]}
		if c.list == nil {
			c.list, c.fresh = &namedList{name: next.Name}, true
		}
		c.added, c.gone = next.Prefixes.Minus(c.list.prefixes), c.list.prefixes.Minus(next.Prefixes)
		d.sources.leaving = slices.DeleteFunc(d.sources.leaving, func(l *namedList) bool { return l == c.list })
		changes, need = append(changes, c), need+len(c.added)
	}
	if err := d.sourceRoom(need); err != nil {
		return nil, err
	}
	for i := range changes {
		if err := d.growList(&changes[i]); err != nil {
			return changes[:i+1], err
		}
	}
	d.leave(u)
	return changes, nil
}

func (d *Datapath) growList(c *listChange) error {
	list := c.list
	if c.fresh {
		var err error
		if list.id, err = d.sources.ids.Take(); err != nil {
			return err
		}
		var row bpf.MuxSourceName
		for i, b := range []byte(list.name) {
			row.Name[i] = int8(b)
		}
		d.sources.named[list.name] = list
		if err := d.tables.SourceNames.Put(list.id, row); err != nil {
			return fmt.Errorf("write the name of prefix list %s: %w", list.name, err)
		}
	}
	if len(c.added) == 0 {
		return nil
	}
	list.prefixes = list.prefixes.Change(c.added, nil)
	d.sources.rows += len(c.added)
	if err := writeSources(&d.tables, list.id, c.added); err != nil {
		return fmt.Errorf("write prefix list %s: %w", list.name, err)
	}
	return nil
}

// PrefixList is what the tables have of a prefix list.
func (d *Datapath) PrefixList(name string) model.PrefixSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	if list := d.sources.named[name]; list != nil {
		return list.prefixes
	}
	return model.PrefixSet{}
}

// FreeSourceRows is how many rows lists can take beside those that are there.
func (d *Datapath) FreeSourceRows() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sources.most - d.sources.rows
}

// leave notes the prefix lists that an update takes away.
func (d *Datapath) leave(u Update) {
	gone := setOf(u.ListsRemoved)
	if u.Snapshot {
		for name := range d.sources.named {
			gone[name] = true
		}
		for _, list := range u.Lists {
			delete(gone, list.Name)
		}
	}
	for name := range gone {
		if list := d.sources.named[name]; list != nil && !slices.Contains(d.sources.leaving, list) {
			d.sources.leaving = append(d.sources.leaving, list)
		}
	}
}

func setOf(names []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// shrinkLists deletes what is not in the prefix lists any more.
func (d *Datapath) shrinkLists(changes []listChange) error {
	for _, c := range changes {
		if err := d.shrinkList(c.list, c.gone); err != nil {
			return err
		}
	}
	return nil
}

func (d *Datapath) shrinkList(list *namedList, gone []netip.Prefix) error {
	if len(gone) == 0 {
		return nil
	}
	if err := deleteSources(&d.tables, list.id, gone); err != nil {
		return fmt.Errorf("shrink prefix list %s: %w", list.name, err)
	}
	list.prefixes = list.prefixes.Change(nil, gone)
	d.sources.rows -= len(gone)
	return nil
}

// undoLists takes back what growLists wrote of an update that is not carried out.
func (d *Datapath) undoLists(changes []listChange) error {
	var errs []error
	for _, c := range changes {
		errs = append(errs, d.shrinkList(c.list, c.added))
		if c.fresh {
			d.sources.leaving = append(d.sources.leaving, c.list)
		}
	}
	return errors.Join(errs...)
}

// purgeNamed takes away the prefix lists that are to go, as far as no set has them.
func (d *Datapath) purgeNamed() error {
	used := map[string]bool{}
	for _, set := range d.sources.sets {
		for _, name := range set.names {
			used[name] = true
		}
	}
	var stay []*namedList
	for i, list := range d.sources.leaving {
		if used[list.name] {
			stay = append(stay, list)
			continue
		}
		if err := d.deleteNamed(list); err != nil {
			d.sources.leaving = append(stay, d.sources.leaving[i:]...)
			return err
		}
	}
	d.sources.leaving = stay
	return nil
}

func (d *Datapath) deleteNamed(list *namedList) error {
	if err := d.shrinkList(list, slices.Collect(list.prefixes.All())); err != nil {
		return err
	}
	if err := d.tables.SourceNames.Delete(list.id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete the name of prefix list %s: %w", list.name, err)
	}
	delete(d.sources.named, list.name)
	if list.id != 0 {
		d.sources.ids.Put(list.id)
	}
	return nil
}

// adoptNamed takes the prefix lists out of the lists that were found. One that was written in part is completed by the
// next update.
func (d *Datapath) adoptNamed(byID map[uint32]*sourceList, used map[uint32]bool) error {
	var id uint32
	var row bpf.MuxSourceName
	names := d.tables.SourceNames.Iterate()
	for names.Next(&id, &row) {
		list := &namedList{id: id, name: nameIn(row)}
		if found := byID[id]; found != nil {
			list.prefixes = model.NewPrefixSet(found.prefixes)
			delete(byID, id)
		}
		d.sources.named[list.name] = list
		d.sources.rows += list.prefixes.Len()
		used[id] = true
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("read table source_names: %w", err)
	}
	return nil
}

func nameIn(row bpf.MuxSourceName) string {
	text := make([]byte, len(row.Name))
	for i, b := range row.Name {
		text[i] = byte(b)
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text)
}

// adoptSet notes that an endpoint names a row of source_sets.
func (d *Datapath) adoptSet(row uint32, byID map[uint32]*sourceList) (uint32, listDigest, error) {
	var found bpf.MuxSourceSet
	if err := d.tables.SourceSets.Lookup(row, &found); err != nil {
		return 0, listDigest{}, fmt.Errorf("read row of source_sets: %w", err)
	}
	set := &sourceSet{row: row}
	byNumber := map[uint32]string{}
	for name, list := range d.sources.named {
		byNumber[list.id] = name
	}
	var inline *sourceList
	for _, number := range found.Lists {
		if name := byNumber[number]; number != 0 && name != "" {
			set.names = append(set.names, name)
		} else if list := byID[number]; list != nil {
			inline, set.inline = list, list.digest
		}
	}
	slices.Sort(set.names)
	set.digest = digestOfSet(set.inline, set.names)
	kept := d.sources.sets[set.digest]
	if kept == nil || len(set.names) == 0 {
		if len(set.names) == 0 { // none that it had is there
			set.digest = listDigest{byte(row), byte(row >> 8), byte(row >> 16), byte(row >> 24), 1}
		}
		kept, d.sources.sets[set.digest] = set, set
		if inline != nil {
			d.adoptList(inline.id, inline)
		}
	}
	kept.uses++
	return muxSourceSetFlag | kept.row, kept.digest, nil
}
