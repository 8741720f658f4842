package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/wake"
)

// A prefix list is a head, and chunks that never change, by their ids. Chunks are written first, in small transactions,
// and mean nothing until a head names them; the head is written with the generation. So a list changes as a whole,
// whatever its size, and what a crash leaves is chunks that no head names: they go when a list is next written.
type prefixListDocument struct {
	Name   string            `json:"name"`
	Tenant string            `json:"tenant,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Chunks []string          `json:"chunks"` // ids, in order
}

// chunkName is what follows prefixChunks in a key.
func chunkName(list, id string) string { return list + "/" + id }

func chunkNames(list model.PrefixList) (names []string) {
	for _, c := range list.Prefixes.Chunks() {
		names = append(names, chunkName(list.Name, c.ID()))
	}
	return names
}

func prefixListToDocument(l model.PrefixList) prefixListDocument {
	d := prefixListDocument{Name: l.Name, Tenant: l.Tenant, Labels: l.Labels}
	for _, c := range l.Prefixes.Chunks() {
		d.Chunks = append(d.Chunks, c.ID())
	}
	return d
}

// putPrefixListOf takes over a head. Its chunks are there already.
func (b *builder) putPrefixListOf(key string, value []byte, generation model.Generation) error {
	d, err := decodeIn[prefixListDocument](b, key, value)
	if err != nil {
		return err
	}
	list := model.PrefixList{Name: d.Name, Tenant: d.Tenant, Labels: d.Labels}
	chunks := make([]*model.PrefixChunk, 0, len(d.Chunks))
	for _, id := range d.Chunks {
		chunk, there := b.next.chunks.Get(chunkName(d.Name, id))
		if !there {
			return fmt.Errorf("read %s of the store: its chunk %s is missing: restore the store from a backup", key, id)
		}
		chunks = append(chunks, chunk)
	}
	if list.Prefixes, err = model.PrefixSetOf(chunks); err != nil {
		return fmt.Errorf("read %s of the store: %w", key, err)
	}
	b.putPrefixList(list, generation)
	return nil
}

// putChunk takes over a chunk.
func (b *builder) putChunk(key, name string, value []byte) error {
	packed, err := codec.Decode[[]byte](key, value)
	if err != nil {
		return err
	}
	chunk, err := model.ParsePrefixChunk(packed)
	if err != nil {
		return fmt.Errorf("read %s of the store: %w", key, err)
	}
	b.next.chunks.Set(name, chunk)
	return nil
}

func (b *builder) putPrefixList(list model.PrefixList, generation model.Generation) {
	b.next.PrefixLists.Set(list.Name, list)
	b.next.PrefixListWritten.Set(list.Name, generation)
	b.delta.PrefixLists[list.Name] = true
}

func (b *builder) removePrefixList(name string) {
	b.next.PrefixLists.Delete(name)
	b.next.PrefixListWritten.Delete(name)
	b.delta.PrefixLists[name] = true
}

// prefixListOperations are the writes of lists. What only their predecessors in s had goes with them.
func (c Change) prefixListOperations(s *State) ([]clientv3.Op, error) {
	var ops []clientv3.Op
	for _, list := range c.PrefixLists {
		if !s.HasChunks(list) {
			return nil, fmt.Errorf("write prefix list %s: its chunks are not in the store", list.Name)
		}
		value, err := encodeIn(s, keyspace.PrefixLists+list.Name, prefixListToDocument(list))
		if err != nil {
			return nil, err
		}
		ops = append(ops, clientv3.OpPut(keyspace.PrefixLists+list.Name, value))
		for _, name := range dropped(s, list) {
			ops = append(ops, clientv3.OpDelete(keyspace.PrefixChunks+name))
		}
	}
	for _, name := range c.DeletePrefixLists {
		ops = append(ops, clientv3.OpDelete(keyspace.PrefixLists+name))
		for _, chunk := range dropped(s, model.PrefixList{Name: name}) {
			ops = append(ops, clientv3.OpDelete(keyspace.PrefixChunks+chunk))
		}
	}
	return ops, nil
}

// dropped are the chunks that the list has in s and not any more.
func dropped(s *State, list model.PrefixList) []string {
	kept := map[string]bool{}
	for _, name := range chunkNames(list) {
		kept[name] = true
	}
	return slices.DeleteFunc(chunkNames(s.PrefixLists.At(list.Name)), func(name string) bool { return kept[name] })
}

// applyPrefixLists makes the State that is being built hold the lists of a change.
func (b *builder) applyPrefixLists(c Change, generation model.Generation) {
	for _, name := range c.DeletePrefixLists {
		for _, chunk := range dropped(b.next, model.PrefixList{Name: name}) {
			b.next.chunks.Delete(chunk)
		}
		b.removePrefixList(name)
	}
	for _, list := range c.PrefixLists {
		for _, chunk := range dropped(b.next, list) {
			b.next.chunks.Delete(chunk)
		}
		b.putPrefixList(list, generation)
	}
}

// HasChunks says whether the chunks of the list are in the store, so that its head may be written.
func (s *State) HasChunks(list model.PrefixList) bool {
	return !slices.ContainsFunc(chunkNames(list), func(name string) bool { return !s.chunks.Has(name) })
}

// ChunkWriter writes chunks before a head names them.
type ChunkWriter struct {
	*cache

	staging wake.Turn // held while chunks are looked for, and while those that nobody wants are deleted

	mu   sync.Mutex
	held map[string]int // chunks that a head will name, by how many
}

// Stage writes the chunks of a list that are not in the store. They stay there until release is called, and
// afterwards if a head names them.
func (s *ChunkWriter) Stage(ctx context.Context, list model.PrefixList) (release func(), err error) {
	fence, _, err := s.Election.Fence(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.staging.Take(ctx); err != nil { // others write for as long as a slow disk takes
		return nil, err
	}
	defer s.staging.Leave()
	if err := s.sweep(ctx, fence); err != nil {
		return nil, err
	}
	names := chunkNames(list)
	if err := s.writeAll(ctx, fence, list); err != nil {
		return nil, err
	}
	s.hold(names, 1)
	return func() { s.hold(names, -1) }, nil
}

// hold has so many more heads name each of the chunks, or so many fewer.
func (s *ChunkWriter) hold(names []string, heads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]int{}
	}
	for _, name := range names {
		if s.held[name] += heads; s.held[name] == 0 {
			delete(s.held, name)
		}
	}
}

// heldNow are the chunks that a head will name.
func (s *ChunkWriter) heldNow() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.held)
}

// writeAll writes the chunks that State does not have, and returns when it has them.
func (s *ChunkWriter) writeAll(ctx context.Context, fence clientv3.Cmp, list model.PrefixList) error {
	state, size := s.State(), 0
	var ops []clientv3.Op
	for _, c := range list.Prefixes.Chunks() {
		name := chunkName(list.Name, c.ID())
		if state.chunks.Has(name) {
			continue
		}
		value, err := codec.Encode(c.Packed())
		if err != nil {
			return err
		}
		if size += len(value); size > etcd.SafeBytes && len(ops) > 0 {
			if err := s.commit(ctx, fence, ops); err != nil {
				return err
			}
			ops, size = nil, len(value)
		}
		ops = append(ops, clientv3.OpPut(keyspace.PrefixChunks+name, value))
	}
	return s.commit(ctx, fence, ops)
}

// sweep deletes the chunks that neither a head names nor a head will.
func (s *ChunkWriter) sweep(ctx context.Context, fence clientv3.Cmp) error {
	held := s.heldNow() // before the state, which has the heads of those that are not held any more
	state := s.State()
	named := map[string]bool{}
	for list := range state.PrefixLists.Values() {
		for _, name := range chunkNames(list) {
			named[name] = true
		}
	}
	var ops []clientv3.Op
	for name := range state.chunks.Keys() {
		if !named[name] && held[name] == 0 {
			ops = append(ops, clientv3.OpDelete(keyspace.PrefixChunks+name))
		}
	}
	const most = 64
	for part := range slices.Chunk(ops, most) {
		if err := s.commit(ctx, fence, part); err != nil {
			return err
		}
	}
	return nil
}

// commit writes and deletes chunks, if this replica still leads, and returns when State shows it.
func (s *ChunkWriter) commit(ctx context.Context, fence clientv3.Cmp, ops []clientv3.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if err := s.etcd.CheckDiskSpace(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	response, err := s.etcd.Txn(ctx).If(fence).Then(ops...).Commit()
	if err != nil {
		return etcd.Explain("write a part of a prefix list to the store", err)
	}
	if !response.Succeeded {
		return election.ErrNotLeader
	}
	return s.Await(ctx, func(state *State) bool { return state.revision >= response.Header.Revision })
}

// conditions hold that the chunks of written lists are there: a head without them could not be read.
func (f *folded) conditions() []clientv3.Cmp {
	var all []clientv3.Cmp
	for _, op := range f.ops {
		name, isHead := strings.CutPrefix(string(op.KeyBytes()), keyspace.PrefixLists)
		if !isHead || !op.IsPut() {
			continue
		}
		for _, chunk := range chunkNames(f.lists[name]) {
			all = append(all, clientv3.Compare(clientv3.CreateRevision(keyspace.PrefixChunks+chunk), ">", 0))
		}
	}
	return all
}
