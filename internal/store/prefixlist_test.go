package store

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// listOf is a list of so many addresses of each family, from one on.
func listOf(name string, from, n int) model.PrefixList {
	var prefixes []netip.Prefix
	for i := from; i < from+n; i++ {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(i >> 16), byte(i >> 8), byte(i)}), 64))
	}
	return model.PrefixList{Name: name, Prefixes: model.NewPrefixSet(prefixes)}
}

func mustStage(t *testing.T, s *Store, list model.PrefixList) func() {
	t.Helper()
	release, err := s.Chunks.Stage(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// chunks are how many there are in the store itself.
func chunks(t *testing.T, s *Store) int {
	t.Helper()
	response, err := s.etcd.Get(t.Context(), keyspace.PrefixChunks, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if n := s.State().chunks.Len(); n != len(response.Kvs) {
		t.Errorf("State has %d chunks, the store %d", n, len(response.Kvs))
	}
	return len(response.Kvs)
}

// Who stages a list while others do waits no longer than its call lasts; who is done waits for nobody.
func TestStagingEndsWithItsCall(t *testing.T) {
	s, end := open(t, etcd.Config{DataDir: t.TempDir()})
	defer end()
	release := mustStage(t, s, listOf("blocked", 0, 10))
	if err := s.Chunks.staging.Take(t.Context()); err != nil { // a slow store
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Chunks.Stage(ctx, listOf("other", 0, 10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
	release()
	s.Chunks.staging.Leave()
	mustStage(t, s, listOf("other", 0, 10))()
	if held := s.Chunks.heldNow(); len(held) != 0 {
		t.Errorf("held are %v", held)
	}
}

// TestPrefixListsAreWholeOrNotThere writes chunks without a head, as a manager that dies in between does, and then lists.
func TestPrefixListsAreWholeOrNotThere(t *testing.T) {
	dir := t.TempDir()
	s, end := open(t, etcd.Config{DataDir: dir})
	list := listOf("blocked", 0, 20_000)
	generation := mustUpdate(t, s, Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	mustStage(t, s, list) // and then it died
	if n := chunks(t, s); n != len(list.Prefixes.Chunks()) {
		t.Errorf("%d chunks of %d are there", n, len(list.Prefixes.Chunks()))
	}
	end()
	s, end = open(t, etcd.Config{DataDir: dir})
	if state := s.State(); state.PrefixLists.Len() != 0 || state.Generation != generation {
		t.Errorf("chunks alone are a list, or a generation: %d, was %d", state.Generation, generation)
	}
	other := listOf("other", 0, 10)
	release := mustStage(t, s, other)
	if n := chunks(t, s); n != len(other.Prefixes.Chunks()) {
		t.Errorf("%d chunks are left of a list that nobody wrote", n)
	}
	if _, err := s.Update(t.Context(), change(Change{PrefixLists: []model.PrefixList{list}})); err == nil {
		t.Error("a list whose chunks are not there was written")
	}
	mustUpdate(t, s, Change{PrefixLists: []model.PrefixList{other}})
	release()
	mustStage(t, s, list)()
	mustUpdate(t, s, Change{PrefixLists: []model.PrefixList{list}})
	end()

	s, _ = open(t, etcd.Config{DataDir: dir})
	got := s.State().PrefixLists.At("blocked")
	if !got.Prefixes.Equal(list.Prefixes) || got.Prefixes.Len() != 40_000 {
		t.Errorf("%d prefixes survived", got.Prefixes.Len())
	}
	before := chunks(t, s)
	next := got
	next.Prefixes = got.Prefixes.Change([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, nil)
	mustStage(t, s, next)()
	mustUpdate(t, s, Change{PrefixLists: []model.PrefixList{next}})
	if n := chunks(t, s); n != before {
		t.Errorf("%d chunks after a change of one prefix, %d before", n, before)
	}
	if !s.State().PrefixLists.At("blocked").Prefixes.Has(netip.MustParsePrefix("10.0.0.0/8")) || got.Prefixes.Len() != 40_000 {
		t.Error("the change is not there, or is in the list before it too")
	}
	mustUpdate(t, s, Change{DeletePrefixLists: []string{"blocked", "other"}})
	if n := chunks(t, s); n != 0 {
		t.Errorf("%d chunks of deleted lists are left", n)
	}
}

// TestStagedChunksStay while another list is written, until their own head is.
func TestStagedChunksStay(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	first, second := listOf("first", 0, 5000), listOf("second", 9000, 5000)
	releaseFirst, releaseSecond := mustStage(t, s, first), mustStage(t, s, second)
	mustUpdate(t, s, Change{PrefixLists: []model.PrefixList{second}})
	releaseSecond()
	mustStage(t, s, listOf("third", 0, 1))()
	if !s.State().HasChunks(first) {
		t.Fatal("chunks were taken away that a head will name")
	}
	mustUpdate(t, s, Change{PrefixLists: []model.PrefixList{first}})
	releaseFirst()
	if n := s.State().PrefixLists.Len(); n != 2 {
		t.Errorf("%d lists", n)
	}
}

// TestHeadsWantTheirChunks: one that names a chunk which is not in the store any more, though the writer's State shows it still,
// is not written.
func TestHeadsWantTheirChunks(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	list := listOf("blocked", 0, 5000)
	mustStage(t, s, list)()
	head := map[string]clientv3.Op{keyspace.PrefixLists + list.Name: clientv3.OpPut(keyspace.PrefixLists+list.Name, "")}
	written := func() bool {
		t.Helper()
		f := folded{ops: head, lists: map[string]model.PrefixList{list.Name: list}}
		response, err := s.etcd.Txn(t.Context()).If(f.conditions()...).Then(clientv3.OpPut(keyspace.Root+"test", "x")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return response.Succeeded
	}
	if !written() {
		t.Error("a head whose chunks are there was not written")
	}
	chunks := list.Prefixes.Chunks()
	if _, err := s.etcd.Delete(t.Context(), keyspace.PrefixChunks+chunkName(list.Name, chunks[len(chunks)-1].ID())); err != nil {
		t.Fatal(err)
	}
	if written() {
		t.Error("a head was written whose last chunk is gone")
	}
}

// TestVIPsWithListsAreOfASchemaOfTheirOwn: a manager of an earlier release must not take them for ones that all may come to.
func TestVIPsWithListsAreOfASchemaOfTheirOwn(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	open, guarded := vip("open", "203.0.113.1"), vip("guarded", "203.0.113.2")
	guarded.Endpoints = []model.Endpoint{{Protocol: model.TCP, Port: 80, DenyLists: []string{"blocked"}}}
	mustUpdate(t, s, Change{VIPs: []model.VIP{open, guarded}})
	for name, want := range map[string]byte{"open": codec.Schema, "guarded": codec.ListsSchema} {
		response, err := s.etcd.Get(t.Context(), keyspace.VIPs+name)
		if err != nil || response.Kvs[0].Value[0] != want {
			t.Errorf("%s is %.30q, %v", name, response.Kvs[0].Value, err)
		}
	}
	if got := s.State().VIPs.At("guarded").Endpoints[0].DenyLists; !slices.Equal(got, []string{"blocked"}) {
		t.Errorf("read as %v", got)
	}
	if _, _, err := codec.DecodeMessage(keyspace.VIPs+"x", []byte{codec.NewestSchema + 1}, &weirv1.VIP{}, compile.StoredVIP); err == nil {
		t.Error("a schema of the future was read")
	}
}
