package sorted

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"

	"github.com/google/btree"
)

// tree is what a Map stands on. It is an interface, and Register alone makes one: each package that has a Map in hand
// compiles again whatever its methods call by its type, and a hundred packages have the state in hand, with all its maps.
type tree[K any] interface {
	clone() tree[K]
	set(key K, value any) // values are pointers: they are large, and entries are copied with their node
	delete(key K)
	get(key K) (value any, ok bool)
	len() int
	all(yield func(key K, value any) bool)
	from(key K, yield func(key K, value any) bool)
}

// makers are functions that make an empty tree[K], by K. They are written to while packages initialize, one at a time.
var makers = map[reflect.Type]any{}

// Register has maps with keys of K in the order of compare. Packages that have such keys call it at their initialization:
//
//	var _ = sorted.Register(Key.Compare)
func Register[K any](compare func(a, b K) int) struct{} {
	less := func(a, b entry[K]) bool { return compare(a.key, b.key) < 0 }
	if makers[reflect.TypeFor[K]()] != nil {
		panic(fmt.Sprintf("sorted: keys of %s are registered twice", reflect.TypeFor[K]()))
	}
	makers[reflect.TypeFor[K]()] = func() tree[K] { return &btreeOf[K]{entries: btree.NewG(degree, less)} }
	return struct{}{}
}

var (
	_ = Register(strings.Compare)
	_ = Register(cmp.Compare[uint32])
	_ = Register(netip.Addr.Compare)
)

func newTree[K any]() tree[K] {
	maker, ok := makers[reflect.TypeFor[K]()].(func() tree[K])
	if !ok {
		panic(fmt.Sprintf("sorted: keys of %s have no order: see Register", reflect.TypeFor[K]()))
	}
	return maker()
}

// degree of the tree: a write copies up to twice as many entries for each of its few levels.
const degree = 16

type entry[K any] struct {
	key   K
	value any
}

type btreeOf[K any] struct {
	mu      sync.Mutex // clone notes in both trees that they share nodes
	entries *btree.BTreeG[entry[K]]
}

func (t *btreeOf[K]) clone() tree[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &btreeOf[K]{entries: t.entries.Clone()}
}

func (t *btreeOf[K]) set(key K, value any) { t.entries.ReplaceOrInsert(entry[K]{key, value}) }
func (t *btreeOf[K]) delete(key K)         { t.entries.Delete(entry[K]{key: key}) }
func (t *btreeOf[K]) len() int             { return t.entries.Len() }

func (t *btreeOf[K]) get(key K) (value any, ok bool) {
	found, ok := t.entries.Get(entry[K]{key: key})
	return found.value, ok
}

func (t *btreeOf[K]) all(yield func(key K, value any) bool) {
	t.entries.Ascend(func(e entry[K]) bool { return yield(e.key, e.value) })
}

func (t *btreeOf[K]) from(key K, yield func(key K, value any) bool) {
	t.entries.AscendGreaterOrEqual(entry[K]{key: key}, func(e entry[K]) bool { return yield(e.key, e.value) })
}
