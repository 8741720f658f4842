package progcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Clear empties, or zeroes, every table that the programs can reach, as loading has left them.
func Clear(programs ...*ebpf.Program) error {
	return eachTable(programs, func(name string, m *ebpf.Map) error {
		if err := clearTable(m); err != nil {
			return fmt.Errorf("clear table %s: %w", name, err)
		}
		return nil
	})
}

// Dump is all that is in the tables that the programs can reach, by their names: bytes that are equal
// if the rows are. Of a ring it is how many bytes wait to be read.
func Dump(programs ...*ebpf.Program) (map[string]string, error) {
	all := map[string]string{}
	err := eachTable(programs, func(name string, m *ebpf.Map) error {
		rows, err := dumpTable(m)
		if err != nil {
			return fmt.Errorf("read table %s: %w", name, err)
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("two tables are called %s", name)
		}
		all[name] = rows
		return nil
	})
	return all, err
}

// eachTable calls do for the tables of the programs, and of those that they call by tail, but not for
// constants, nor for those of programs.
func eachTable(programs []*ebpf.Program, do func(string, *ebpf.Map) error) error {
	w := walk{seen: map[ebpf.MapID]bool{}, do: do}
	for _, p := range programs {
		if err := w.program(p); err != nil {
			return err
		}
	}
	return nil
}

type walk struct {
	seen map[ebpf.MapID]bool
	do   func(string, *ebpf.Map) error
}

func (w *walk) program(p *ebpf.Program) error {
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	ids, ok := info.MapIDs()
	if !ok {
		return errors.New("this kernel does not say which tables a program has")
	}
	for _, id := range ids {
		if w.seen[id] {
			continue
		}
		w.seen[id] = true
		if err := w.table(id); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) table(id ebpf.MapID) error {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return fmt.Errorf("open table %d: %w", id, err)
	}
	defer m.Close()
	if m.Type() == ebpf.ProgramArray {
		return w.tailCalls(m)
	}
	info, err := m.Info()
	if err != nil {
		return fmt.Errorf("read table %d: %w", id, err)
	}
	if info.Frozen() {
		return nil
	}
	return w.do(info.Name, m)
}

func (w *walk) tailCalls(m *ebpf.Map) error {
	for row := range m.MaxEntries() {
		var p *ebpf.Program
		if err := m.Lookup(row, &p); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("read row %d of tail calls: %w", row, err)
		}
		err := w.program(p)
		_ = p.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func clearTable(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.Array, ebpf.PerCPUArray:
		return zero(m)
	case ebpf.RingBuf:
		return drain(m)
	case ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie:
		return empty(m)
	}
	return fmt.Errorf("it is a %s, which nobody has taught us to clear", m.Type())
}

// arrayRows has room for all keys, and all values, of an array.
func arrayRows(m *ebpf.Map) (keys []uint32, values any) {
	rows := int(m.MaxEntries())
	keys = make([]uint32, rows)
	if m.Type() == ebpf.PerCPUArray {
		rows *= ebpf.MustPossibleCPU()
	}
	value := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	return keys, reflect.MakeSlice(reflect.SliceOf(value), rows, rows).Interface()
}

// zero writes all rows of an array at once.
func zero(m *ebpf.Map) error {
	keys, zeroes := arrayRows(m)
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := m.BatchUpdate(keys, zeroes, nil)
	return err
}

// empty first lists the rows: behind a row that is gone, an iteration begins anew.
func empty(m *ebpf.Map) error {
	keys, err := keysOf(m)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

func keysOf(m *ebpf.Map) ([][]byte, error) {
	var keys [][]byte
	key, err := m.NextKeyBytes(nil)
	for key != nil && err == nil {
		keys = append(keys, key)
		key, err = m.NextKeyBytes(key)
	}
	return keys, err
}

func drain(m *ebpf.Map) error {
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return err
	}
	defer reader.Close()
	reader.SetDeadline(time.Now())
	for err == nil {
		_, err = reader.Read()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func dumpTable(m *ebpf.Map) (string, error) {
	if m.Type() == ebpf.RingBuf {
		reader, err := ringbuf.NewReader(m)
		if err != nil {
			return "", err
		}
		defer reader.Close()
		return fmt.Sprintf("%d bytes", reader.AvailableBytes()), nil
	}
	var all bytes.Buffer
	if m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray {
		keys, values := arrayRows(m)
		if _, err := m.BatchLookup(new(ebpf.MapBatchCursor), keys, values, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return "", err
		}
		err := binary.Write(&all, binary.NativeEndian, values)
		return all.String(), err
	}
	keys, err := keysOf(m)
	if err != nil {
		return "", err
	}
	for _, key := range keys {
		var row []byte
		if err := m.Lookup(key, &row); err != nil {
			return "", err
		}
		all.Write(key)
		all.Write(row)
	}
	return all.String(), nil
}
