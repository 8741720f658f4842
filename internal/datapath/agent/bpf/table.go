package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

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
