package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
)

func indices(of alloc.Span) []uint32 {
	keys := make([]uint32, 1<<of.Bits)
	for i := range keys {
		keys[i] = of.First + uint32(i)
	}
	return keys
}

// WriteRows fills the rows of a slice.
func WriteRows[T any](m *ebpf.Map, table string, to alloc.Span, rows []T) error {
	if _, err := m.BatchUpdate(indices(to), rows, nil); err != nil {
		return fmt.Errorf("write rows of %s: %w", table, err)
	}
	return nil
}

// ReadRows reads one by one: the kernel's batch lookup can't start in the middle of an array.
func ReadRows[T any](m *ebpf.Map, table string, from alloc.Span, rows []T) error {
	for i, key := range indices(from) {
		if err := m.Lookup(key, &rows[i]); err != nil {
			return fmt.Errorf("read row %d of %s: %w", key, table, err)
		}
	}
	return nil
}
