package bpf

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Pins beside those of the tables.
const (
	ProgramPin  = "program"
	SlowpathPin = "slowpath_progs"
)

// Programs are those that handle packets: the fast path, and the slow path that it tail-calls. The
// kernel empties slowpathProgs when no process and no pin holds it.
type Programs struct {
	Program       *ebpf.Program `ebpf:"mux"`
	SlowpathProgs *ebpf.Map     `ebpf:"slowpath_progs"`
}

// Close lets go of them.
func (p Programs) Close() error { return errors.Join(p.Program.Close(), p.SlowpathProgs.Close()) }

// Pin pins them in a folder.
func (p Programs) Pin(folder string) error {
	if err := p.Program.Pin(filepath.Join(folder, ProgramPin)); err != nil {
		return fmt.Errorf("pin program: %w", err)
	}
	if err := p.SlowpathProgs.Pin(filepath.Join(folder, SlowpathPin)); err != nil {
		return fmt.Errorf("pin slow path programs: %w", err)
	}
	return nil
}

// OpenPrograms opens those pinned in a folder.
func OpenPrograms(folder string) (p Programs, err error) {
	if p.Program, err = ebpf.LoadPinnedProgram(filepath.Join(folder, ProgramPin), nil); err != nil {
		return p, fmt.Errorf("open pinned program: %w", err)
	}
	p.SlowpathProgs, err = ebpf.LoadPinnedMap(filepath.Join(folder, SlowpathPin), nil)
	if err != nil {
		return p, errors.Join(fmt.Errorf("open pinned slow path programs: %w", err), p.Program.Close())
	}
	return p, nil
}
