package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const bpffs = "/sys/fs/bpf"

// ErrLocked means that another process owns the folder.
var ErrLocked = errors.New("is in use by another process")

// Folder is a folder on a bpffs, owned by this process until Close.
type Folder struct {
	path string
	lock *os.File
}

// Open makes the folder if there is none, and locks it. It mounts a bpffs at /sys/fs/bpf if path
// lies there and none is mounted.
func Open(path string) (*Folder, error) {
	path = filepath.Clean(path)
	if err := mount(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make pin folder: %w", err)
	}
	if ok, err := isBPFFS(path); err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("pin folder %s: is not on a bpffs: name one below /sys/fs/bpf with --pin-path", path), err)
	}
	lock, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock pin folder: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pin folder %s: %w", path, err), lock.Close())
	}
	f := &Folder{path: path, lock: lock}
	if err := os.RemoveAll(f.building()); err != nil { // of a start that did not end
		return nil, errors.Join(fmt.Errorf("remove half-made pins: %w", err), lock.Close())
	}
	return f, nil
}

func (f *Folder) building() string { return filepath.Join(f.path, "new") }

// String is the folder's path.
func (f *Folder) String() string { return f.path }

// Close gives the folder up; what is pinned stays.
func (f *Folder) Close() error { return f.lock.Close() }

// Live is the path of a live pin.
func (f *Folder) Live(name string) string { return Live(f.path, name) }

// Live is the path of a pin in the folder's live part.
func Live(folder, name string) string { return filepath.Join(folder, "live", name) }

// HasLive says whether something runs.
func (f *Folder) HasLive() bool {
	_, err := os.Stat(f.Live(""))
	return err == nil
}

// Names lists the live pins whose names begin with prefix.
func (f *Folder) Names(prefix string) ([]string, error) {
	entries, err := os.ReadDir(f.Live(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Publish makes live at once: build pins into the folder that it is given, which is then renamed.
func (f *Folder) Publish(build func(folder string) error) error {
	building, err := f.build(build)
	if err != nil {
		return err
	}
	if err := os.Rename(building, f.Live("")); err != nil {
		return fmt.Errorf("publish pins: %w", err)
	}
	return nil
}

// build makes the folder new, without what another build left there.
func (f *Folder) build(build func(folder string) error) (string, error) {
	building := f.building()
	if err := os.RemoveAll(building); err != nil {
		return "", fmt.Errorf("remove half-made pins: %w", err)
	}
	if err := os.Mkdir(building, 0o700); err != nil {
		return "", fmt.Errorf("make pin folder: %w", err)
	}
	if err := build(building); err != nil {
		return "", errors.Join(err, os.RemoveAll(building))
	}
	return building, nil
}

// Replace puts another live in the place of the one that there is: both change places in one step, then
// swap lets what runs follow, then the old one goes. When swap fails the old one is live again. A
// process that dies in between leaves a whole live; whether what runs is that is for the next to see.
func (f *Folder) Replace(build func(folder string) error, swap func() error) error {
	building, err := f.build(build)
	if err != nil {
		return err
	}
	if err := exchange(building, f.Live("")); err != nil {
		return errors.Join(err, os.RemoveAll(building))
	}
	if err := swap(); err != nil {
		return errors.Join(err, exchange(building, f.Live("")), os.RemoveAll(building))
	}
	if err := os.RemoveAll(building); err != nil {
		return fmt.Errorf("remove the pins that were replaced: %w", err)
	}
	return nil
}

func exchange(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange pin folders: %w", err)
	}
	return nil
}

// Clear unpins everything that is live.
func (f *Folder) Clear() error {
	if err := os.RemoveAll(f.Live("")); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// Remove unpins everything and removes the folder. The folder stays locked until Close.
func (f *Folder) Remove() error {
	if err := os.RemoveAll(f.path); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

func mount(path string) error {
	if path != bpffs && !strings.HasPrefix(path, bpffs+"/") {
		return nil
	}
	mounted, err := isBPFFS(bpffs)
	if err != nil {
		return fmt.Errorf("look at %s: %w", bpffs, err)
	}
	if mounted {
		return nil
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs at %s: %w", bpffs, err)
	}
	return nil
}

func isBPFFS(path string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return false, err
	}
	return stat.Type == unix.BPF_FS_MAGIC, nil
}
