package publish

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// chunksAtOnce is how many bytes of prefix lists one message has at most: tasks, and what ends the stream, get in
// between.
const chunksAtOnce = 256 << 10

// chunksSent are the ids of the chunks of prefix lists that a mux has.
type chunksSent map[string]bool

func setOf(list []string) chunksSent {
	set := make(chunksSent, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// due are the lists that the next update has, in order, as of s. The hub's lock is held.
func (f *MuxFeed) due(s *store.State) []string {
	if f.isSnapshotDue(s) {
		return slices.Collect(s.PrefixLists.Used())
	}
	return f.hub.updates.listsSince(f.sent)
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
		if !s.PrefixLists.IsUsed(name) {
			continue
		}
		for _, c := range f.chunks.missing(s.PrefixLists.Prefixes(name)) {
			if size += c.Size(); size > chunksAtOnce && len(piece) > 0 {
				for _, c := range piece {
					f.chunks[c.ID()] = true
				}
				return piece
			}
			piece = append(piece, c)
		}
	}
	return nil
}

// missing are the chunks of a set that the mux has not.
func (c chunksSent) missing(set model.PrefixSet) []*model.PrefixChunk {
	var missing []*model.PrefixChunk
	for _, chunk := range set.Chunks() {
		if !c[chunk.ID()] {
			missing = append(missing, chunk)
		}
	}
	return missing
}

// next returns the chunks of lists that the mux has not. From then on it has those of the lists that endpoints name,
// and no others.
func (c *chunksSent) next(s *store.State, lists []string) (missing []*model.PrefixChunk) {
	for _, name := range lists {
		if !s.PrefixLists.IsUsed(name) {
			continue
		}
		for _, chunk := range c.missing(s.PrefixLists.Prefixes(name)) {
			(*c)[chunk.ID()] = true
			missing = append(missing, chunk)
		}
	}
	*c = chunksSent{}
	for name := range s.PrefixLists.Used() {
		for _, chunk := range s.PrefixLists.Prefixes(name).Chunks() {
			(*c)[chunk.ID()] = true
		}
	}
	return missing
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
		was, is := old.PrefixLists.IsUsed(name), s.PrefixLists.IsUsed(name)
		if was == is && (!is || old.PrefixLists.Prefixes(name).Equal(s.PrefixLists.Prefixes(name))) {
			continue
		}
		lists = append(lists, name)
	}
	slices.Sort(lists)
	return lists
}
