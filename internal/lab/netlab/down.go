package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// Down ends the lab and leaves nothing of it behind.
func (l *Lab) Down() error {
	err := Down(l.Name)
	l.spacesMu.Lock()
	defer l.spacesMu.Unlock()
	for name, ns := range l.spaces {
		err = errors.Join(err, ns.Close())
		delete(l.spaces, name)
	}
	l.processesMu.Lock()
	defer l.processesMu.Unlock()
	for _, p := range l.processes {
		p.reap()
	}
	return err
}

// Down ends a lab by its name, whatever is left of it, also after a crash. It is no error if there is
// nothing.
func Down(name string) error {
	if !labName.MatchString(name) {
		return fmt.Errorf("take lab down: no lab can be called %q", name)
	}
	l := newLab(Plan{Name: name})
	var errs []error
	if err := l.load(); err == nil {
		for _, p := range l.processes {
			errs = append(errs, p.Signal(unix.SIGKILL))
		}
	}
	names, err := netns.Names(l.prefix())
	errs = append(errs, err)
	for _, space := range names {
		errs = append(errs, netns.Remove(space)) // with every process in it
	}
	if err := l.removeFolders(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take lab %s down: %w", name, err)
	}
	return nil
}

func (l *Lab) makeFolders() error {
	pins := filepath.Join(l.dir, "bpf")
	for _, dir := range []string{l.LogDir(), pins} {
		err := os.MkdirAll(dir, 0o755)
		// A lab that ends just now may have taken the labs' folder along.
		for tries := 1; errors.Is(err, os.ErrNotExist) && tries < 10; tries++ {
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make the lab's folder: %w", err)
		}
	}
	if err := unix.Mount("bpf", pins, "bpf", 0, "mode=700"); err != nil {
		return fmt.Errorf("mount a bpffs at %s: %w", pins, err)
	}
	return nil
}

// Bound on how long the bpffs stays busy after its last user was killed.
const unmountTime = 5 * time.Second

func (l *Lab) removeFolders() error {
	pins := filepath.Join(l.dir, "bpf")
	for end := time.Now().Add(unmountTime); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Unmount(pins, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not mounted
		}
		if err != nil && time.Now().After(end) {
			return fmt.Errorf("unmount %s: %w", pins, err)
		}
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("remove the lab's folder: %w", err)
	}
	// Gone with the last lab.
	if err := os.Remove(Root); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the labs' folder: %w", err)
	}
	return nil
}
