package publish

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// chunksAtOnce is how many bytes of prefix lists one message has at most: tasks, and what ends the stream, get in
// between.
const chunksAtOnce = 256 << 10

// feedChunks is what a mux's stream has to send of prefix lists, and has sent.
type feedChunks struct {
	has     map[string]bool // ids of the chunks that the mux has
	pending map[string]bool // lists that the mux must hear of
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// addLists notes lists that the mux must hear of.
func (f *MuxFeed) addLists(lists []string) {
	if f.chunks.pending == nil {
		f.chunks.pending = map[string]bool{}
	}
	for _, name := range lists {
		f.chunks.pending[name] = true
	}
}

// due are the lists that the next update has, in order, as of s. The hub's lock is held.
func (f *MuxFeed) due(s *store.State) []string {
	if f.snapshotDue {
		return slices.Collect(s.UsedLists())
	}
	return slices.Sorted(maps.Keys(f.chunks.pending))
}

// NextChunks returns chunks of lists that are to be sent before the next update, as that would be too long with them;
// none if it would not be.
func (f *MuxFeed) NextChunks(first model.Generation) []*model.PrefixChunk {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.released
	if s == nil || s.Generation < first {
		return nil
	}
	var piece []*model.PrefixChunk
	size := 0
	for _, name := range f.due(s) {
		if !s.IsListUsed(name) {
			continue
		}
		for _, c := range f.chunks.missing(s.Lists(name)) {
			if size += c.Size(); size > chunksAtOnce && len(piece) > 0 {
				for _, c := range piece {
					f.chunks.has[c.ID()] = true
				}
				return piece
			}
			piece = append(piece, c)
		}
	}
	return nil
}

// missing are the chunks of a set that the mux has not.
func (c *feedChunks) missing(set model.PrefixSet) []*model.PrefixChunk {
	var missing []*model.PrefixChunk
	for _, chunk := range set.Chunks() {
		if !c.has[chunk.ID()] {
			missing = append(missing, chunk)
		}
	}
	return missing
}

// nextLists adds to an update the lists that are due, with the chunks that the mux has not. From then on the mux has
// those of the lists that endpoints name, and no others. The hub's lock is held.
func (f *MuxFeed) nextLists(update *wire.MuxUpdate, s *store.State) {
	whole := update.Snapshot
	names := slices.Sorted(maps.Keys(f.chunks.pending))
	if whole {
		names = slices.Collect(s.UsedLists())
	}
	f.chunks.pending = nil
	if len(names) == 0 && !whole {
		return
	}
	for _, name := range names {
		if !s.IsListUsed(name) {
			update.ListsRemoved = append(update.ListsRemoved, name)
			continue
		}
		list := model.MuxPrefixList{Name: name, Prefixes: s.Lists(name)}
		update.Lists = append(update.Lists, list)
		for _, c := range f.chunks.missing(list.Prefixes) {
			f.chunks.has[c.ID()] = true
			update.Chunks = append(update.Chunks, c)
		}
	}
	f.chunks.has = map[string]bool{}
	for name := range s.UsedLists() {
		for _, c := range s.Lists(name).Chunks() {
			f.chunks.has[c.ID()] = true
		}
	}
}

// changedLists are the prefix lists that muxes have to hear of: those that differ, and those that endpoints begin to
// name or name no more.
func changedLists(old, s *store.State, vips map[string]bool, delta store.Delta) (lists []string) {
	candidates := maps.Clone(delta.PrefixLists)
	for name := range vips {
		for _, state := range []*store.State{old, s} {
			for _, e := range state.VIPs.At(name).Endpoints {
				for _, list := range e.Lists() {
					candidates[list] = true
				}
			}
		}
	}
	for name := range candidates {
		was, is := old.IsListUsed(name), s.IsListUsed(name)
		if was == is && (!is || old.Lists(name).Equal(s.Lists(name))) {
			continue
		}
		lists = append(lists, name)
	}
	slices.Sort(lists)
	return lists
}
