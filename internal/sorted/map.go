// Package sorted has a map that is in order and cheap to copy: a copy costs the same however large the
// map is, and a write to it copies a few nodes. So whoever holds a copy reads it without locks, while
// the next one is made from it.
package sorted

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"

	"github.com/google/btree"
)

// degree of the tree: a write copies up to twice as many entries for each of its few levels.
const degree = 16

// Map is a map in order of its keys, which are strings or have a method Compare. Its zero value is
// empty. What is assigned is the same map; Clone makes another one. A map that others may hold is not
// written to.
type Map[K, V any] struct{ tree *tree[K] }

// tree is of the keys' type alone. Each package that has a Map in hand compiles its tree again, which is most of what
// there is to compile in many: there are few types of keys, and many of values.
type tree[K any] struct {
	mu      sync.Mutex // Clone notes in both trees that they share nodes
	entries *btree.BTreeG[entry[K]]
}

// entry has its value elsewhere: values are large, and entries are copied with their node.
type entry[K any] struct {
	key   K
	value any // *V
}

// Of makes a Map of a Go map.
func Of[K comparable, V any](m map[K]V) Map[K, V] {
	var s Map[K, V]
	for key, value := range m {
		s.Set(key, value)
	}
	return s
}

// less orders keys. It is found once for each tree: a key that is made an interface to be compared would be an
// allocation for each comparison.
func less[K any]() btree.LessFunc[entry[K]] {
	compare := compareOf[K]()
	return func(a, b entry[K]) bool { return compare(a.key, b.key) < 0 }
}

func compareOf[K any]() func(a, b K) int {
	for _, known := range []any{strings.Compare, cmp.Compare[uint32]} {
		if compare, ok := known.(func(a, b K) int); ok {
			return compare
		}
	}
	if method, there := reflect.TypeFor[K]().MethodByName("Compare"); there {
		if compare, ok := method.Func.Interface().(func(a, b K) int); ok {
			return compare
		}
	}
	panic(fmt.Sprintf("sorted: keys of %s have no order", reflect.TypeFor[K]()))
}

// Clone returns a map with the same entries, which may be written to. Its price does not depend on
// their number.
func (m Map[K, V]) Clone() Map[K, V] {
	if m.tree == nil {
		return Map[K, V]{}
	}
	m.tree.mu.Lock()
	defer m.tree.mu.Unlock()
	return Map[K, V]{&tree[K]{entries: m.tree.entries.Clone()}}
}

// Set adds or replaces an entry.
func (m *Map[K, V]) Set(key K, value V) {
	if m.tree == nil {
		m.tree = &tree[K]{entries: btree.NewG(degree, less[K]())}
	}
	m.tree.entries.ReplaceOrInsert(entry[K]{key, &value})
}

// Delete removes an entry, if it is there.
func (m *Map[K, V]) Delete(key K) {
	if m.tree != nil {
		m.tree.entries.Delete(entry[K]{key: key})
	}
}

// Get returns the value of key, and whether there is one.
func (m Map[K, V]) Get(key K) (V, bool) {
	if m.tree == nil {
		var none V
		return none, false
	}
	found, ok := m.tree.entries.Get(entry[K]{key: key})
	if !ok {
		var none V
		return none, false
	}
	return *found.value.(*V), true
}

// At returns the value of key, or the zero value.
func (m Map[K, V]) At(key K) V {
	value, _ := m.Get(key)
	return value
}

// Has says whether key has a value.
func (m Map[K, V]) Has(key K) bool {
	_, ok := m.Get(key)
	return ok
}

// Len is the number of entries.
func (m Map[K, V]) Len() int {
	if m.tree == nil {
		return 0
	}
	return m.tree.entries.Len()
}

// All are the entries in order of their keys.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.tree != nil {
			m.tree.entries.Ascend(func(e entry[K]) bool { return yield(e.key, *e.value.(*V)) })
		}
	}
}

// From are the entries whose keys are not before key, in order.
func (m Map[K, V]) From(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.tree != nil {
			m.tree.entries.AscendGreaterOrEqual(entry[K]{key: key}, func(e entry[K]) bool { return yield(e.key, *e.value.(*V)) })
		}
	}
}

// Keys are the keys in order.
func (m Map[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for key := range m.All() {
			if !yield(key) {
				return
			}
		}
	}
}

// Values are the values in order of their keys.
func (m Map[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, value := range m.All() {
			if !yield(value) {
				return
			}
		}
	}
}
