package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// ChunksToProto writes chunks of prefix lists.
func ChunksToProto(chunks []*model.PrefixChunk) []*weirv1.PrefixChunk {
	var all []*weirv1.PrefixChunk
	for _, c := range chunks {
		all = append(all, &weirv1.PrefixChunk{Id: c.ID(), Prefixes: c.Packed()})
	}
	return all
}

func muxListsToProto(lists []model.MuxPrefixList) []*weirv1.MuxPrefixList {
	var all []*weirv1.MuxPrefixList
	for _, l := range lists {
		p := &weirv1.MuxPrefixList{Name: l.Name}
		for _, c := range l.Prefixes.Chunks() {
			p.Chunks = append(p.Chunks, c.ID())
		}
		all = append(all, p)
	}
	return all
}

// PrefixChunks are the chunks of prefix lists that a mux has: those of its lists, and those that came for the next update.
// The zero value has none.
type PrefixChunks struct {
	all map[string]*model.PrefixChunk
	now map[string][]string // by list, the ids of its chunks
}

// Take keeps the chunks of a message. It says whether the message has nothing else.
func (c *PrefixChunks) Take(p *weirv1.SyncMuxResponse) (alone bool, err error) {
	if c.all == nil {
		c.all, c.now = map[string]*model.PrefixChunk{}, map[string][]string{}
	}
	for _, chunk := range p.GetPrefixChunks() {
		read, err := model.ParsePrefixChunk(chunk.GetPrefixes())
		if err != nil {
			return false, fmt.Errorf("read chunk %.64q of a prefix list: %w", chunk.GetId(), err)
		}
		c.all[read.ID()] = read
	}
	return len(p.GetPrefixChunks()) > 0 && !p.GetSnapshot() && len(p.GetPool())+len(p.GetPrefixLists())+len(p.GetEndpoints())+len(p.GetRemoved()) == 0, nil
}

// IDs are those of the chunks, for the manager to leave out what the mux has.
func (c *PrefixChunks) IDs() []string { return slices.Sorted(maps.Keys(c.all)) }

// lists reads the lists of an update.
func (c *PrefixChunks) lists(p *weirv1.SyncMuxResponse) ([]model.MuxPrefixList, error) {
	var lists []model.MuxPrefixList
	var errs []error
	for i, l := range p.GetPrefixLists() {
		var f fields
		path := fmt.Sprintf("prefixLists[%d]", i)
		list := model.MuxPrefixList{Name: f.name(path+".name", l.GetName())}
		chunks := make([]*model.PrefixChunk, 0, len(l.GetChunks()))
		for _, id := range l.GetChunks() {
			if chunk := c.all[id]; chunk != nil {
				chunks = append(chunks, chunk)
			} else {
				f.Refuse(path+".chunks", "%.64q did not come", id)
			}
		}
		var err error
		if list.Prefixes, err = model.PrefixSetOf(chunks); err != nil {
			f.Refuse(path+".chunks", "%v", err)
		}
		lists, errs = append(lists, list), append(errs, f.Err())
	}
	return lists, errors.Join(errs...)
}

// Applied forgets the chunks that no list has after the update.
func (c *PrefixChunks) Applied(u MuxUpdate) {
	if u.Snapshot {
		clear(c.now)
	}
	for _, name := range u.ListsRemoved {
		delete(c.now, name)
	}
	for _, list := range u.Lists {
		c.now[list.Name] = nil
		for _, chunk := range list.Prefixes.Chunks() {
			c.now[list.Name] = append(c.now[list.Name], chunk.ID())
		}
	}
	if !u.Snapshot && len(u.Lists)+len(u.ListsRemoved) == 0 {
		return
	}
	kept := map[string]bool{}
	for _, ids := range c.now {
		for _, id := range ids {
			kept[id] = true
		}
	}
	maps.DeleteFunc(c.all, func(id string, _ *model.PrefixChunk) bool { return !kept[id] })
}
