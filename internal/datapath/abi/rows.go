package abi

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MapRows maps an array's rows into memory, which is added to all for who unmaps it. T has the rows' size, a multiple of 8.
func MapRows[T any](all *[][]byte, table *ebpf.Map) ([]T, error) {
	var row T
	rows, size := int(table.MaxEntries()), int(unsafe.Sizeof(row))
	if int(table.ValueSize()) != size {
		return nil, fmt.Errorf("map table: its rows have %d bytes, not %d", table.ValueSize(), size)
	}
	raw, err := unix.Mmap(table.FD(), 0, rows*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map table: %w", err)
	}
	*all = append(*all, raw)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(raw))), rows), nil
}

// Unmap lets go of what MapRows mapped.
func Unmap(all *[][]byte) {
	for _, raw := range *all {
		_ = unix.Munmap(raw) // it is mapped
	}
	*all = nil
}
