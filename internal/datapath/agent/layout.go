package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// field is a named part of a key or a value. What is no struct has one field without a name.
type field struct {
	name         string
	offset, size uint32
}

// layout is the fields of a type, by offset. Padding is left out.
type layout []field

func layoutOf(t btf.Type) (layout, error) {
	var fields layout
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		for _, m := range t.Members {
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				return nil, err
			}
			if m.Name != "pad" {
				fields = append(fields, field{m.Name, m.Offset.Bytes(), uint32(size)})
			}
		}
	case *btf.Datasec:
		if len(t.Vars) != 1 {
			return nil, fmt.Errorf("%s holds %d variables, not one", t.Name, len(t.Vars))
		}
		return layoutOf(t.Vars[0].Type.(*btf.Var).Type)
	case *btf.Void: // the key of a table of one row
		fields = layout{{size: 4}}
	default:
		size, err := btf.Sizeof(t)
		if err != nil {
			return nil, err
		}
		fields = layout{{size: uint32(size)}}
	}
	return fields, nil
}

// tableLayout is that of a table's rows.
type tableLayout struct{ key, value layout }

func (l tableLayout) equal(other tableLayout) bool {
	return slices.Equal(l.key, other.key) && slices.Equal(l.value, other.value)
}

func specLayout(spec *ebpf.MapSpec) (l tableLayout, err error) {
	var keyErr, valueErr error
	l.key, keyErr = layoutOf(spec.Key)
	l.value, valueErr = layoutOf(spec.Value)
	return l, errors.Join(keyErr, valueErr)
}

// liveLayout is that of a loaded table, whose types are found by the names that those of spec have.
func liveLayout(table *ebpf.Map, spec *ebpf.MapSpec) (l tableLayout, err error) {
	handle, err := table.Handle()
	if err != nil {
		return l, fmt.Errorf("read types: %w", err)
	}
	defer handle.Close()
	types, err := handle.Spec(nil)
	if err != nil {
		return l, fmt.Errorf("read types: %w", err)
	}
	if l.key, err = namedLayout(types, spec.Key); err != nil {
		return l, err
	}
	l.value, err = namedLayout(types, spec.Value)
	return l, err
}

func namedLayout(types *btf.Spec, like btf.Type) (layout, error) {
	if _, known := like.(*btf.Datasec); !known && like.TypeName() == "" {
		return layoutOf(like)
	}
	found, err := types.AnyTypesByName(like.TypeName())
	if err != nil {
		return nil, fmt.Errorf("find type %s: %w", like.TypeName(), err)
	}
	return layoutOf(found[0])
}

// move copies a field to where another version has it.
type move struct {
	name           string
	from, to, size uint32
}

// movesOf says how rows of one layout become rows of another: member by member, by their names. New
// ones are zero. It refuses what would lose something.
func movesOf(from, to layout) ([]move, error) {
	var moves []move
	for _, old := range from {
		i := slices.IndexFunc(to, func(f field) bool { return f.name == old.name })
		if i < 0 {
			return nil, fmt.Errorf("this version knows no %s", strings.TrimSpace(old.name+" in it"))
		}
		if to[i].size != old.size {
			return nil, fmt.Errorf("%s is of %d bytes, in this version of %d", old.name, old.size, to[i].size)
		}
		moves = append(moves, move{old.name, old.offset, to[i].offset, old.size})
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
