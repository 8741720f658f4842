package mux

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// openPrograms takes the pinned programs when they are ours, which the name of the one tells. Else it
// loads ours, which shall replace them.
func (d *Datapath) openPrograms(spec *ebpf.CollectionSpec, live *bpf.Tables) (replace bool, err error) {
	pinned, err := bpf.OpenPrograms(d.folder.Live(""))
	if err != nil {
		return false, err
	}
	theirs, err := nameOf(pinned.Program)
	if err != nil {
		return false, errors.Join(err, pinned.Close())
	}
	if theirs == spec.Programs[bpf.MuxProgMux].Name {
		d.programs = pinned
		d.tables, err = bpf.LoadTables(spec, live)
		return false, err
	}
	_ = pinned.Close() // the pins hold them: until they are replaced the old program needs its slow path
	ours, err := bpf.Load(spec, live)
	if err != nil {
		return false, err
	}
	d.tables, d.programs = ours.Tables, ours.Programs
	d.log.Info("replacing the pinned program", "old", theirs, "new", spec.Programs[bpf.MuxProgMux].Name)
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
	path := d.folder.Live(bpf.SlowpathPin)
	if err := halfPin(d.programs.SlowpathProgs, path); err != nil {
		return err
	}
	if err := d.link.Update(d.programs.Program); err != nil {
		return fmt.Errorf("replace pinned program: %w", err)
	}
	if err := os.Rename(path+halfMade, path); err != nil {
		return fmt.Errorf("replace pinned %s: %w", bpf.SlowpathPin, err)
	}
	return repin(d.programs.Program, d.folder.Live(bpf.ProgramPin))
}
