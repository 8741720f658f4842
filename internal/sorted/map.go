// Package sorted has a map that is in order and cheap to copy: a copy costs the same however large the
// map is, and a write to it copies a few nodes. So whoever holds a copy reads it without locks, while
// the next one is made from it.
package sorted

import "iter"

// Map is a map in order of its keys, whose type was given to Register. Its zero value is
// empty. What is assigned is the same map; Clone makes another one. A map that others may hold is not
// written to.
type Map[K, V any] struct{ tree tree[K] }

// Of makes a Map of a Go map.
func Of[K comparable, V any](m map[K]V) Map[K, V] {
	var s Map[K, V]
	for key, value := range m {
		s.Set(key, value)
	}
	return s
}

// Clone returns a map with the same entries, which may be written to. Its price does not depend on
// their number.
func (m Map[K, V]) Clone() Map[K, V] {
	if m.tree == nil {
		return Map[K, V]{}
	}
	return Map[K, V]{m.tree.clone()}
}

// Set adds or replaces an entry.
func (m *Map[K, V]) Set(key K, value V) {
	if m.tree == nil {
		m.tree = newTree[K]()
	}
	m.tree.set(key, &value)
}

// Delete removes an entry, if it is there.
func (m *Map[K, V]) Delete(key K) {
	if m.tree != nil {
		m.tree.delete(key)
	}
}

// Get returns the value of key, and whether there is one.
func (m Map[K, V]) Get(key K) (V, bool) {
	if m.tree != nil {
		if found, ok := m.tree.get(key); ok {
			return *found.(*V), true
		}
	}
	var none V
	return none, false
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
	return m.tree.len()
}

// All are the entries in order of their keys.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.tree != nil {
			m.tree.all(func(key K, value any) bool { return yield(key, *value.(*V)) })
		}
	}
}

// From are the entries whose keys are not before key, in order.
func (m Map[K, V]) From(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.tree != nil {
			m.tree.from(key, func(key K, value any) bool { return yield(key, *value.(*V)) })
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
