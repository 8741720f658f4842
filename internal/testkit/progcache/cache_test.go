package progcache

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
)

// kit is a program with a table of every kind, one of them behind a tail call. It fills the ring.
type kit struct {
	program *ebpf.Program
	tables  map[string]*ebpf.Map
}

func (k *kit) Programs() []*ebpf.Program { return []*ebpf.Program{k.program} }

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{tables: map[string]*ebpf.Map{}}
	for _, spec := range []*ebpf.MapSpec{
		{Name: "rows", Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 7},
		{Name: "rows_of_cpus", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 12, MaxEntries: 3},
		{Name: "hash", Type: ebpf.Hash, KeySize: 6, ValueSize: 5, MaxEntries: 100},
		{Name: "recent", Type: ebpf.LRUHash, KeySize: 8, ValueSize: 4, MaxEntries: 100},
		{Name: "prefixes", Type: ebpf.LPMTrie, KeySize: 8, ValueSize: 4, MaxEntries: 100, Flags: 1},
		{Name: "ring", Type: ebpf.RingBuf, MaxEntries: 4096},
		{Name: "behind", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2},
		{Name: "steps", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 2},
	} {
		m, err := ebpf.NewMap(spec)
		must(t, err)
		t.Cleanup(func() { m.Close() })
		k.tables[spec.Name] = m
	}
	step := program(t, asm.Instructions{asm.LoadMapPtr(asm.R1, k.tables["behind"].FD())})
	must(t, k.tables["steps"].Put(uint32(1), step))
	var names asm.Instructions
	for name, m := range k.tables {
		if name != "behind" {
			names = append(names, asm.LoadMapPtr(asm.R1, m.FD()))
		}
	}
	k.program = program(t, append(names,
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, k.tables["ring"].FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call()))
	return k
}

func program(t *testing.T, body asm.Instructions) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: append(body, asm.Mov.Imm(asm.R0, 2), asm.Return()),
	})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// use leaves something in every table.
func (k *kit) use(t *testing.T) {
	t.Helper()
	full := func(size uint32) []byte { return bytes.Repeat([]byte{5}, int(size)) }
	for name, m := range k.tables {
		switch name {
		case "ring":
			_, err := k.program.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
			must(t, err)
		case "steps":
		case "rows", "behind":
			for row := range m.MaxEntries() {
				must(t, m.Put(row, full(m.ValueSize())))
			}
		case "rows_of_cpus":
			var of [][]byte
			for range ebpf.MustPossibleCPU() {
				of = append(of, full(m.ValueSize()))
			}
			for row := range m.MaxEntries() {
				must(t, m.Put(row, of))
			}
		default:
			for n := range byte(20) {
				key := full(m.KeySize())
				if m.Type() == ebpf.LPMTrie {
					copy(key, []byte{32, 0, 0, 0})
				}
				key[len(key)-1] = n
				must(t, m.Put(key, full(m.ValueSize())))
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (k *kit) dump(t *testing.T) map[string]string {
	t.Helper()
	all, err := Dump(k.Programs()...)
	must(t, err)
	return all
}

func TestWhatIsTakenIsNew(t *testing.T) {
	var s Cache[*kit]
	k := newKit(t)
	isNew := k.dump(t)
	loads := 0
	take := func(t *testing.T) *kit {
		return s.Take(t, "kit", func() *kit { loads++; return k })
	}
	t.Run("first", func(t *testing.T) {
		take(t).use(t)
		used := k.dump(t)
		for name := range k.tables {
			if name != "steps" && used[name] == isNew[name] {
				t.Errorf("table %s is as it was: %q", name, used[name])
			}
		}
	})
	t.Run("second", func(t *testing.T) {
		if diff := cmp.Diff(isNew, take(t).dump(t)); diff != "" {
			t.Errorf("tables (-new +taken again):\n%s", diff)
		}
		var step *ebpf.Program
		if err := k.tables["steps"].Lookup(uint32(1), &step); err != nil {
			t.Errorf("the tail call is gone: %v", err)
		}
		step.Close()
	})
	if loads != 1 {
		t.Errorf("loaded %d times", loads)
	}
}

func TestEachHasItsOwn(t *testing.T) {
	var s Cache[*kit]
	load := func() *kit { return newKit(t) }
	one, two, other := s.Take(t, "kit", load), s.Take(t, "kit", load), s.Take(t, "other", load)
	if one == two || one == other || two == other {
		t.Error("two have taken the same")
	}
}

func TestUnknownTablesAreRefused(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Queue, ValueSize: 4, MaxEntries: 4})
	must(t, err)
	defer m.Close()
	if err := Clear(program(t, asm.Instructions{asm.LoadMapPtr(asm.R1, m.FD())})); err == nil {
		t.Error("a queue counts as cleared")
	}
}
