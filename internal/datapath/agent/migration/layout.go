package migration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// tableLayout is that of a table's rows.
type tableLayout struct{ key, value []abi.Field }

func (l tableLayout) equal(other tableLayout) bool {
	return slices.Equal(l.key, other.key) && slices.Equal(l.value, other.value)
}

func specLayout(spec *ebpf.MapSpec) (l tableLayout, err error) {
	var keyErr, valueErr error
	l.key, keyErr = abi.Fields(spec.Key)
	l.value, valueErr = abi.Fields(spec.Value)
	return l, errors.Join(keyErr, valueErr)
}

// liveLayout is that of a loaded table, whose types are found by the names that those of spec have.
func liveLayout(table *ebpf.Map, spec *ebpf.MapSpec) (tableLayout, error) {
	fields, err := abi.LiveFields(table, spec.Key, spec.Value)
	if err != nil {
		return tableLayout{}, err
	}
	return tableLayout{key: fields[0], value: fields[1]}, nil
}

// move copies a field to where another version has it.
type move struct {
	name           string
	from, to, size uint32
}

// movesOf says how rows of one layout become rows of another: member by member, by their names. New
// ones are zero. It refuses what would lose something.
func movesOf(from, to []abi.Field) ([]move, error) {
	var moves []move
	for _, old := range from {
		i := slices.IndexFunc(to, func(f abi.Field) bool { return f.Name == old.Name })
		if i < 0 {
			return nil, fmt.Errorf("this version knows no %s", strings.TrimSpace(old.Name+" in it"))
		}
		if to[i].Size != old.Size {
			return nil, fmt.Errorf("%s is of %d bytes, in this version of %d", old.Name, old.Size, to[i].Size)
		}
		moves = append(moves, move{old.Name, old.Offset, to[i].Offset, old.Size})
	}
	return moves, nil
}

func moved(row []byte, moves []move, size uint32) []byte {
	out := make([]byte, size)
	for _, m := range moves {
		m.apply(out, row)
	}
	return out
}

func (m move) apply(to, from []byte) { copy(to[m.to:m.to+m.size], from[m.from:m.from+m.size]) }
