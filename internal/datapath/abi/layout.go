package abi

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// SameLayout says whether the rows of a live table are those of spec, member by member: names, places,
// sizes, and the names and values of enums. It returns nil, or what differs. Of a table that was made
// without types only the sizes are compared.
func SameLayout(spec *ebpf.MapSpec, live *ebpf.Map) error {
	if spec.Type != live.Type() || spec.KeySize != live.KeySize() || spec.ValueSize != live.ValueSize() {
		return fmt.Errorf("it is %s of %d and %d bytes, ours %s of %d and %d",
			live.Type(), live.KeySize(), live.ValueSize(), spec.Type, spec.KeySize, spec.ValueSize)
	}
	types, err := typesOf(live)
	if err != nil || types == nil {
		return err
	}
	for _, ours := range []btf.Type{spec.Key, spec.Value} {
		name := ""
		if ours != nil {
			name = btf.UnderlyingType(ours).TypeName()
		}
		if name == "" {
			continue
		}
		theirs, err := types.AnyTypesByName(name)
		if err != nil {
			return fmt.Errorf("it has no type %s: %w", name, err)
		}
		if a, b := describe(ours), describe(theirs[0]); a != b {
			return fmt.Errorf("its %s is %s, ours %s", name, b, a)
		}
	}
	return nil
}

// typesOf are the types that a table was made with, or nil.
func typesOf(m *ebpf.Map) (*btf.Spec, error) {
	info, err := m.Info()
	if err != nil {
		return nil, fmt.Errorf("read the table's types: %w", err)
	}
	id, ok := info.BTFID()
	if !ok {
		return nil, nil
	}
	handle, err := btf.NewHandleFromID(id)
	if err != nil {
		return nil, fmt.Errorf("read the table's types: %w", err)
	}
	defer handle.Close()
	types, err := handle.Spec(nil)
	if err != nil {
		return nil, fmt.Errorf("read the table's types: %w", err)
	}
	return types, nil
}

// describe writes a type such that two are alike if, and only if, what they write is.
func describe(t btf.Type) string {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return fmt.Sprintf("{%s} of %d", members(t.Members), t.Size)
	case *btf.Union:
		return fmt.Sprintf("one of {%s} of %d", members(t.Members), t.Size)
	case *btf.Array:
		return fmt.Sprintf("%d × %s", t.Nelems, describe(t.Type))
	case *btf.Enum:
		var values []string
		for _, v := range t.Values {
			values = append(values, fmt.Sprintf("%s %d", v.Name, v.Value))
		}
		return fmt.Sprintf("enum %d (%s)", t.Size, strings.Join(values, ", "))
	case *btf.Datasec:
		var parts []string
		for _, v := range t.Vars {
			parts = append(parts, fmt.Sprintf("%s at %d", describe(v.Type), v.Offset))
		}
		return strings.Join(parts, ", ")
	case *btf.Var:
		return describe(t.Type)
	case *btf.Int:
		return fmt.Sprintf("int %d", 8*t.Size)
	default:
		return fmt.Sprintf("%T %s", t, t.TypeName())
	}
}

func members(list []btf.Member) string {
	var parts []string
	for _, m := range list {
		parts = append(parts, fmt.Sprintf("%s: %s at %d", m.Name, describe(m.Type), m.Offset.Bytes()))
	}
	return strings.Join(parts, ", ")
}

// Field is a named part of a key or a value. What is no struct has one field without a name.
type Field struct {
	Name         string
	Offset, Size uint32
}

// Fields are those of a type, by offset. Padding is left out. Where rows are moved field by field, as the agent does, they
// tell all: what an enum's values are called does not matter then.
func Fields(t btf.Type) ([]Field, error) {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		var fields []Field
		for _, m := range t.Members {
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				return nil, fmt.Errorf("measure %s.%s: %w", t.Name, m.Name, err)
			}
			if m.Name != "pad" {
				fields = append(fields, Field{m.Name, m.Offset.Bytes(), uint32(size)})
			}
		}
		return fields, nil
	case *btf.Datasec:
		if len(t.Vars) != 1 {
			return nil, fmt.Errorf("%s holds %d variables, not one", t.Name, len(t.Vars))
		}
		return Fields(t.Vars[0].Type.(*btf.Var).Type)
	case *btf.Void: // the key of a table of one row
		return []Field{{Size: 4}}, nil
	default:
		size, err := btf.Sizeof(t)
		return []Field{{Size: uint32(size)}}, err
	}
}

// LiveFields are those of a live table's types that have the names of others. Of one without a name they are its own.
func LiveFields(m *ebpf.Map, like ...btf.Type) (fields [][]Field, err error) {
	types, err := typesOf(m)
	if err != nil {
		return nil, err
	}
	if types == nil {
		return nil, fmt.Errorf("it was made without types")
	}
	for _, t := range like {
		if t.TypeName() != "" {
			found, err := types.AnyTypesByName(t.TypeName())
			if err != nil {
				return nil, fmt.Errorf("it has no type %s: %w", t.TypeName(), err)
			}
			t = found[0]
		}
		own, err := Fields(t)
		if err != nil {
			return nil, err
		}
		fields = append(fields, own)
	}
	return fields, nil
}
