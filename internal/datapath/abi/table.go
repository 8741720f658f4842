package abi

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// ReadTable returns all rows of a hash.
func ReadTable[K comparable, V any](table *ebpf.Map) (map[K]V, error) {
	rows := make(map[K]V)
	var key K
	var value V
	iterator := table.Iterate()
	for iterator.Next(&key, &value) {
		rows[key] = value
	}
	if err := iterator.Err(); err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	return rows, nil
}

// EachBatched reads in batches. A row that is made or goes meanwhile may be missed or seen twice.
func EachBatched[K, V any](table *ebpf.Map, visit func(K, V)) error {
	const batch = 4096
	keys, rows := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := table.BatchLookup(&cursor, keys, rows, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return err
		}
		for i := range n {
			visit(keys[i], rows[i])
		}
		if last {
			return nil
		}
	}
}

// WriteTable makes a hash hold exactly rows: adds and changes first, then removes, so that what is in both is never
// missing.
func WriteTable[K, V comparable](table *ebpf.Map, rows map[K]V) error {
	live, err := ReadTable[K, V](table)
	if err != nil {
		return err
	}
	if room := int(table.MaxEntries()); len(rows) > room {
		return fmt.Errorf("write table: needs %d rows, has room for %d", len(rows), room)
	}
	// Removing comes first only if both would not fit together.
	if union(live, rows) > int(table.MaxEntries()) {
		if err := removeRows(table, live, rows); err != nil {
			return err
		}
	}
	for key, value := range rows {
		if old, ok := live[key]; ok && old == value {
			continue
		}
		if err := table.Put(key, value); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return removeRows(table, live, rows)
}

func union[K comparable, V any](a, b map[K]V) int {
	n := len(b)
	for key := range a {
		if _, both := b[key]; !both {
			n++
		}
	}
	return n
}

func removeRows[K comparable, V any](table *ebpf.Map, live, keep map[K]V) error {
	for key := range live {
		if _, kept := keep[key]; kept {
			continue
		}
		if err := table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove from table: %w", err)
		}
	}
	return nil
}

// EachRow visits the rows of an array that are not zero.
func EachRow[R comparable](table *ebpf.Map, visit func(uint32, R)) error {
	var none R
	numbers, rows := make([]uint32, table.MaxEntries()), make([]R, table.MaxEntries())
	var cursor ebpf.MapBatchCursor
	n, err := table.BatchLookup(&cursor, numbers, rows, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	for i := range n {
		if rows[i] != none {
			visit(numbers[i], rows[i])
		}
	}
	return nil
}
