package bpf

import (
	"bytes"
	"encoding/binary"
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

// WriteTable makes the table hold exactly rows: adds and changes first, then removes, so that
// what is in both is never missing.
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

// ReadArray reads a whole table.
func ReadArray[V any](table *ebpf.Map, rows []V) error {
	keys := make([]uint32, len(rows))
	var cursor ebpf.MapBatchCursor
	n, err := table.BatchLookup(&cursor, keys, rows, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	if n != len(rows) {
		return fmt.Errorf("has %d rows of %d", n, len(rows))
	}
	return nil
}

// Call runs a program of bpf/agent/snat/calls.h: argument and result in one.
func Call[T any](program *ebpf.Program, argument *T) error {
	buffer := make([]byte, binary.Size(argument))
	if _, err := binary.Encode(buffer, binary.NativeEndian, argument); err != nil {
		return err
	}
	result := bytes.Clone(buffer)
	if _, err := program.Run(&ebpf.RunOptions{Context: buffer, ContextOut: result}); err != nil {
		return err
	}
	_, err := binary.Decode(result, binary.NativeEndian, argument)
	return err
}
