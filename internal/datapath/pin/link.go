package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Attach makes the link that is pinned as name run a program at an interface: it updates the link in place, without a
// gap, or makes it anew if the interface is another or has vanished. The anchor counts for a new link only.
func (f *Folder) Attach(name string, at link.TCXOptions) error {
	path := f.Live(name)
	live, err := link.LoadPinnedLink(path, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("open link %s: %w", name, err)
	default:
		defer live.Close()
		adopted, err := adoptLink(live, at.Interface, at.Program)
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
	made, err := attach(at)
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", name, at.Interface, err)
	}
	defer made.Close()
	if err := made.Pin(path); err != nil {
		return fmt.Errorf("pin link %s: %w", name, err)
	}
	return nil
}

// releaseTime bounds how long the kernel may take to release a link that nobody has any more.
const releaseTime = time.Second

// attach makes a link. The kernel releases a link some time after the last who had it: until then the same program can't be
// attached there again.
func attach(at link.TCXOptions) (link.Link, error) {
	for until := time.Now().Add(releaseTime); ; time.Sleep(releaseTime / 200) {
		made, err := link.AttachTCX(at)
		if !errors.Is(err, fs.ErrExist) || time.Now().After(until) {
			return made, err
		}
	}
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

// Detach removes a pinned link; the program stops running where it was attached.
func (f *Folder) Detach(name string) error {
	if err := os.Remove(f.Live(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	return nil
}

// PinLinks pins live links a second time, in another folder.
func (f *Folder) PinLinks(folder string, names []string) error {
	for _, name := range names {
		if err := pinAgain(f.Live(name), filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("pin link %s: %w", name, err)
		}
	}
	return nil
}

func pinAgain(from, to string) error {
	live, err := link.LoadPinnedLink(from, nil)
	if err != nil {
		return err
	}
	defer live.Close()
	info, err := live.Info()
	if err != nil {
		return err
	}
	second, err := link.NewFromID(info.ID) // live itself would be moved
	if err != nil {
		return err
	}
	defer second.Close()
	return second.Pin(to)
}

// Update has a pinned link run program, and returns the one that it ran; nil: its interface has gone, and
// it is left to those who look for interfaces later.
func (f *Folder) Update(name string, program *ebpf.Program) (*ebpf.Program, error) {
	live, err := link.LoadPinnedLink(f.Live(name), nil)
	if err != nil {
		return nil, fmt.Errorf("open link %s: %w", name, err)
	}
	defer live.Close()
	info, err := live.Info()
	if err != nil {
		return nil, fmt.Errorf("read link %s: %w", name, err)
	}
	if tcx := info.TCX(); tcx == nil || tcx.Ifindex == 0 {
		return nil, nil
	}
	old, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return nil, fmt.Errorf("open program of %s: %w", name, err)
	}
	err = live.Update(program)
	if err == nil {
		return old, nil
	}
	old.Close()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOLINK) { // the interface has gone since
		return nil, nil
	}
	return nil, fmt.Errorf("replace program of %s: %w", name, err)
}
