package acl

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

// Named is a prefix list in the table sources.
type Named struct {
	ID       uint32
	name     string
	Prefixes model.PrefixSet // as the table has them
}

// Side is one of the two lists of an endpoint, as it is asked for.
type Side struct {
	prefixes []netip.Prefix // in order, each once
	inline   Digest         // of those
	names    []string       // of prefix lists, in order
	Digest   Digest         // of all of it
}

// sourceSet is a row of source_sets: lists that hold as one. Endpoints with the same ones share it.
type sourceSet struct {
	row    uint32
	inline Digest
	names  []string
	digest Digest
	uses   int
}

// NewSide is of prefixes and names in any order.
func NewSide(prefixes []netip.Prefix, names []string) Side {
	var s Side
	s.prefixes, s.inline = canonical(prefixes)
	s.names = slices.Compact(slices.Sorted(slices.Values(names)))
	s.Digest = digestOfSet(s.inline, s.names)
	return s
}

// digestOfSet tells sets apart. Without names it is the list's.
func digestOfSet(inline Digest, names []string) Digest {
	if len(names) == 0 {
		return inline
	}
	hash := sha256.New()
	hash.Write(inline[:])
	for _, name := range names {
		hash.Write(append([]byte(name), 0))
	}
	return Digest(hash.Sum(nil))
}

// Hold notes that one more endpoint has the lists, and writes what is new: no packet reads it yet.
func (l *Lists) Hold(s Side) error {
	if len(s.names) == 0 {
		return l.holdList(s.Digest, s.prefixes)
	}
	if held := l.sets[s.Digest]; held != nil {
		held.uses++
		return nil
	}
	set := &sourceSet{inline: s.inline, names: s.names, digest: s.Digest, uses: 1}
	for _, name := range s.names {
		if l.Named[name] == nil {
			return fmt.Errorf("prefix list %s is not here", name)
		}
	}
	if len(l.rowsOfSets.Free) == 0 {
		if err := l.Purge(); err != nil {
			return err
		}
	}
	if err := l.holdList(s.inline, s.prefixes); err != nil {
		return err
	}
	var err error
	if set.row, err = l.rowsOfSets.Take(); err != nil {
		l.Release(s.inline)
		return err
	}
	if err := l.tables.SourceSets.Put(set.row, set.value(l)); err != nil {
		l.rowsOfSets.Put(set.row)
		l.Release(s.inline)
		return fmt.Errorf("write row of source_sets: %w", err)
	}
	l.sets[s.Digest] = set
	return nil
}

// value is the set as packets read it.
func (set *sourceSet) value(l *Lists) (row bpf.MuxSourceSet) {
	lists := row.Lists[:0]
	if set.inline != (Digest{}) {
		lists = append(lists, l.lists[set.inline].ID)
	}
	for _, name := range set.names {
		lists = append(lists, l.Named[name].ID)
	}
	return row
}

func (l *Lists) releaseSet(set *sourceSet) {
	if set.uses--; set.uses == 0 {
		delete(l.sets, set.digest)
		l.retiredSets = append(l.retiredSets, set)
	}
}

// purgeSets gives back the rows of sets that nobody names, once no packet reads them.
func (l *Lists) purgeSets() {
	for _, set := range l.retiredSets {
		l.rowsOfSets.Put(set.row)
		l.Release(set.inline)
	}
	l.retiredSets = nil
}

// Update is a change of prefix lists.
type Update struct {
	Snapshot bool                  // these are all: others go
	Lists    []model.MuxPrefixList // whole
	Removed  []string
}

// Change is what an update does to one prefix list.
type Change struct {
	list        *Named
	fresh       bool
	added, gone []netip.Prefix
}

// Grow writes what is new in the prefix lists of an update. When the table has no room for all of it nothing is
// written.
func (l *Lists) Grow(u Update) ([]Change, error) {
	changes, need := []Change(nil), 0
	for _, next := range u.Lists {
		c := Change{list: l.Named[next.Name]}
		if c.list == nil {
			c.list, c.fresh = &Named{name: next.Name}, true
		}
		c.added, c.gone = next.Prefixes.Minus(c.list.Prefixes), c.list.Prefixes.Minus(next.Prefixes)
		l.leaving = slices.DeleteFunc(l.leaving, func(l *Named) bool { return l == c.list })
		changes, need = append(changes, c), need+len(c.added)
	}
	if err := l.needRoom(need); err != nil {
		return nil, err
	}
	for i := range changes {
		if err := changes[i].grow(l); err != nil {
			return changes[:i+1], err
		}
	}
	l.markRemoved(u)
	return changes, nil
}

func (c *Change) grow(l *Lists) error {
	list := c.list
	if c.fresh {
		var err error
		if list.ID, err = l.ids.Take(); err != nil {
			return err
		}
		var row bpf.MuxSourceName
		for i, b := range []byte(list.name) {
			row.Name[i] = int8(b)
		}
		l.Named[list.name] = list
		if err := l.tables.SourceNames.Put(list.ID, row); err != nil {
			return fmt.Errorf("write the name of prefix list %s: %w", list.name, err)
		}
	}
	if len(c.added) == 0 {
		return nil
	}
	list.Prefixes = list.Prefixes.Change(c.added, nil)
	l.Rows += len(c.added)
	if err := Write(l.tables.Sources, list.ID, c.added); err != nil {
		return fmt.Errorf("write prefix list %s: %w", list.name, err)
	}
	return nil
}

// Prefixes is what the tables have of a prefix list.
func (l *Lists) Prefixes(name string) model.PrefixSet {
	if list := l.Named[name]; list != nil {
		return list.Prefixes
	}
	return model.PrefixSet{}
}

// Room is how many rows lists can take beside those that are there.
func (l *Lists) Room() int {
	return l.most - l.Rows
}

// markRemoved marks the prefix lists that an update removes.
func (l *Lists) markRemoved(u Update) {
	gone := setOf(u.Removed)
	if u.Snapshot {
		for name := range l.Named {
			gone[name] = true
		}
		for _, list := range u.Lists {
			delete(gone, list.Name)
		}
	}
	for name := range gone {
		if list := l.Named[name]; list != nil && !slices.Contains(l.leaving, list) {
			l.leaving = append(l.leaving, list)
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

// Shrink deletes what is not in the prefix lists any more.
func (l *Lists) Shrink(changes []Change) error {
	for _, c := range changes {
		if err := l.shrinkList(c.list, c.gone); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lists) shrinkList(list *Named, gone []netip.Prefix) error {
	if len(gone) == 0 {
		return nil
	}
	if err := deleteSources(l.tables.Sources, list.ID, gone); err != nil {
		return fmt.Errorf("shrink prefix list %s: %w", list.name, err)
	}
	list.Prefixes = list.Prefixes.Change(nil, gone)
	l.Rows -= len(gone)
	return nil
}

// Undo takes back what Grow wrote of an update that is not carried out.
func (l *Lists) Undo(changes []Change) error {
	var errs []error
	for _, c := range changes {
		errs = append(errs, l.shrinkList(c.list, c.added))
		if c.fresh {
			l.leaving = append(l.leaving, c.list)
		}
	}
	return errors.Join(errs...)
}

// purgeNamed takes away the prefix lists that are to go, as far as no set has them.
func (l *Lists) purgeNamed() error {
	used := map[string]bool{}
	for _, set := range l.sets {
		for _, name := range set.names {
			used[name] = true
		}
	}
	var stay []*Named
	for i, list := range l.leaving {
		if used[list.name] {
			stay = append(stay, list)
			continue
		}
		if err := l.deleteNamed(list); err != nil {
			l.leaving = append(stay, l.leaving[i:]...)
			return err
		}
	}
	l.leaving = stay
	return nil
}

func (l *Lists) deleteNamed(list *Named) error {
	if err := l.shrinkList(list, slices.Collect(list.Prefixes.All())); err != nil {
		return err
	}
	if err := l.tables.SourceNames.Delete(list.ID); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete the name of prefix list %s: %w", list.name, err)
	}
	delete(l.Named, list.name)
	if list.ID != 0 {
		l.ids.Put(list.ID)
	}
	return nil
}

// adoptNamed takes the prefix lists out of the lists that were found. One that was written in part is completed by the
// next update.
func (l *Lists) adoptNamed(byID map[uint32]*List, used map[uint32]bool) error {
	var id uint32
	var row bpf.MuxSourceName
	names := l.tables.SourceNames.Iterate()
	for names.Next(&id, &row) {
		list := &Named{ID: id, name: Name(row)}
		if found := byID[id]; found != nil {
			list.Prefixes = model.NewPrefixSet(found.Prefixes)
			delete(byID, id)
		}
		l.Named[list.name] = list
		l.Rows += list.Prefixes.Len()
		used[id] = true
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("read table source_names: %w", err)
	}
	return nil
}

// Name is what a row of source_names says.
func Name(row bpf.MuxSourceName) string {
	text := make([]byte, len(row.Name))
	for i, b := range row.Name {
		text[i] = byte(b)
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text)
}

// adoptSet notes that an endpoint names a row of source_sets.
func (l *Lists) adoptSet(row uint32, byID map[uint32]*List) (uint32, Digest, error) {
	var found bpf.MuxSourceSet
	if err := l.tables.SourceSets.Lookup(row, &found); err != nil {
		return 0, Digest{}, fmt.Errorf("read row of source_sets: %w", err)
	}
	set := &sourceSet{row: row}
	byNumber := map[uint32]string{}
	for name, list := range l.Named {
		byNumber[list.ID] = name
	}
	var inline *List
	for _, number := range found.Lists {
		if name := byNumber[number]; number != 0 && name != "" {
			set.names = append(set.names, name)
		} else if list := byID[number]; list != nil {
			inline, set.inline = list, list.digest
		}
	}
	slices.Sort(set.names)
	set.digest = digestOfSet(set.inline, set.names)
	kept := l.sets[set.digest]
	if kept == nil || len(set.names) == 0 {
		if len(set.names) == 0 { // none that it had is there
			set.digest = Digest{byte(row), byte(row >> 8), byte(row >> 16), byte(row >> 24), 1}
		}
		kept, l.sets[set.digest] = set, set
		if inline != nil {
			l.adoptList(inline.ID, inline)
		}
	}
	kept.uses++
	return muxSourceSetFlag | kept.row, kept.digest, nil
}

// CheckEmpty says what is held though no endpoint names a list, and no list has a name; nil: nothing is.
func (l *Lists) CheckEmpty(sizes bpf.Sizes) error {
	if l.Rows != 0 || len(l.lists)+len(l.sets)+len(l.Named)+len(l.leaving)+len(l.retiredSets) > 0 {
		return fmt.Errorf("left are %d rows, lists %v, sets %v, names %v", l.Rows, l.lists, l.sets, l.Named)
	}
	if free, all := len(l.rowsOfSets.Free), int(bpf.SourceSetRows*sizes.Rows()); free != all {
		return fmt.Errorf("%d of %d rows of sets are free", free, all)
	}
	if free, all := len(l.ids.Free), int(4*sizes.Rows()+2*model.MaxPrefixLists); free != all {
		return fmt.Errorf("%d of %d numbers are free", free, all)
	}
	return nil
}
