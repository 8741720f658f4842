package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attach makes the link that is pinned as name run program at the interface: it updates the
// link in place, without a gap, or makes it anew if the interface is another or has vanished.
func (d *Datapath) attach(name string, ifindex int, program *ebpf.Program, at ebpf.AttachType) error {
	path := d.folder.Live(name)
	live, err := link.LoadPinnedLink(path, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("open link %s: %w", name, err)
	default:
		defer live.Close()
		adopted, err := adoptLink(live, ifindex, program)
		if err != nil {
			return fmt.Errorf("adopt link %s: %w", name, err)
		}
		if adopted {
			return nil
		}
		if err := live.Unpin(); err != nil {
			return fmt.Errorf("remove stale link %s: %w", name, err)
		}
	}
	made, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: at})
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", name, ifindex, err)
	}
	defer made.Close()
	if err := made.Pin(path); err != nil {
		return fmt.Errorf("pin link %s: %w", name, err)
	}
	return nil
}

// adoptLink says whether live is at the interface, and has it run program if so. An update costs
// milliseconds, so a link that runs program already is left alone.
func adoptLink(live link.Link, ifindex int, program *ebpf.Program) (bool, error) {
	info, err := live.Info()
	if err != nil {
		return false, err
	}
	// A link whose interface has vanished says 0.
	if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != ifindex {
		return false, nil
	}
	running, err := program.Info()
	if err != nil {
		return false, err
	}
	if id, ok := running.ID(); ok && id == info.Program {
		return true, nil
	}
	return true, live.Update(program)
}

// detach removes a pinned link; the program stops running where it was attached.
func (d *Datapath) detach(name string) error {
	if err := os.Remove(d.folder.Live(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	return nil
}
