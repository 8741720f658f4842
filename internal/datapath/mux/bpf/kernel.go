package bpf

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
)

// MapRows maps an array's rows into memory, and adds it to raw. T has the rows' size, a multiple of 8.
func MapRows[T any](all *[][]byte, table *ebpf.Map) ([]T, error) {
	rows := int(table.MaxEntries())
	var row T
	raw, err := unix.Mmap(table.FD(), 0, rows*int(unsafe.Sizeof(row)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	*all = append(*all, raw)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), rows), nil
}

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
