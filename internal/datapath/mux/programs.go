package mux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// programs are those that handle packets: the fast path, and the slow path that it tail-calls. The
// kernel empties slowpathProgs when no process and no pin holds it.
type programs struct {
	Program       *ebpf.Program `ebpf:"mux"`
	SlowpathProgs *ebpf.Map     `ebpf:"slowpath_progs"`
}

func (p programs) Close() error { return errors.Join(p.Program.Close(), p.SlowpathProgs.Close()) }

func (p programs) pin(folder string) error {
	if err := p.Program.Pin(filepath.Join(folder, programPin)); err != nil {
		return fmt.Errorf("pin program: %w", err)
	}
	if err := p.SlowpathProgs.Pin(filepath.Join(folder, slowpathPin)); err != nil {
		return fmt.Errorf("pin slow path programs: %w", err)
	}
	return nil
}

// openPrograms takes the pinned programs when they are ours, which the name of the one tells. Else it
// loads ours, which shall replace them.
func (d *Datapath) openPrograms(spec *ebpf.CollectionSpec, live *tables) (replace bool, err error) {
	pinned, err := openPinned(d.folder.Live(""))
	if err != nil {
		return false, err
	}
	theirs, err := nameOf(pinned.Program)
	if err != nil {
		return false, errors.Join(err, pinned.Close())
	}
	if theirs == spec.Programs[muxProgMux].Name {
		d.programs = pinned
		d.tables, err = loadTables(spec, live)
		return false, err
	}
	_ = pinned.Close() // the pins hold them: until they are replaced the old program needs its slow path
	ours, err := load(spec, live)
	if err != nil {
		return false, err
	}
	d.tables, d.programs = ours.tables, ours.programs
	d.log.Info("replacing the pinned program", "old", theirs, "new", spec.Programs[muxProgMux].Name)
	return true, nil
}

func nameOf(p *ebpf.Program) (string, error) {
	info, err := p.Info()
	if err != nil {
		return "", fmt.Errorf("read program: %w", err)
	}
	return info.Name, nil
}

// adoptPrograms sees to it that the programs are attached and pinned.
func (d *Datapath) adoptPrograms(replace bool) error {
	if !replace {
		return d.restore(d.programs.Program)
	}
	return d.replacePrograms()
}

// replacePrograms attaches ours and gives them the pins. The program's comes last: whoever finds the old
// one replaces both again.
func (d *Datapath) replacePrograms() error {
	path := d.folder.Live(slowpathPin)
	if err := halfPin(d.programs.SlowpathProgs, path); err != nil {
		return err
	}
	if err := d.link.Update(d.programs.Program); err != nil {
		return fmt.Errorf("replace pinned program: %w", err)
	}
	if err := os.Rename(path+halfMade, path); err != nil {
		return fmt.Errorf("replace pinned %s: %w", slowpathPin, err)
	}
	return repin(d.programs.Program, d.folder.Live(programPin))
}

// openPinned opens those pinned in a folder.
func openPinned(folder string) (p programs, err error) {
	if p.Program, err = ebpf.LoadPinnedProgram(filepath.Join(folder, programPin), nil); err != nil {
		return p, fmt.Errorf("open pinned program: %w", err)
	}
	p.SlowpathProgs, err = ebpf.LoadPinnedMap(filepath.Join(folder, slowpathPin), nil)
	if err != nil {
		return p, errors.Join(fmt.Errorf("open pinned slow path programs: %w", err), p.Program.Close())
	}
	return p, nil
}
