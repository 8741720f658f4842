package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// NS is a network namespace with a name.
type NS struct {
	links
	handle netns.NsHandle
	tied   bool // processes end with this one

	starting sync.Mutex
	starter  *thread // started when first needed
}

// TB is what New needs of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// New makes a namespace that is removed at the end of the test, with every process in it. One of the
// same name that a crashed test left is removed first.
func New(t TB, name string) *NS {
	t.Helper()
	if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
		if err := Remove(name); err != nil {
			t.Fatalf("remove what an earlier run left: %v", err)
		}
	}
	ns, err := Create(name)
	if err != nil {
		t.Fatalf("%v (needs root)", err)
	}
	ns.tied = true
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return ns
}

// Create makes a namespace; its loopback is up. It stays until Delete.
func Create(name string) (*NS, error) {
	if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
		return nil, fmt.Errorf("create namespace %s: there is one already", name)
	}
	if err := shareFolder(); err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", name, err)
	}
	err := onDyingThread(func() error {
		handle, err := netns.NewNamed(name) // moves the thread into it
		if err != nil {
			return err
		}
		return handle.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", name, err)
	}
	ns, err := Open(name)
	if err != nil {
		return nil, err
	}
	if err := ns.SetUp("lo"); err != nil {
		return nil, errors.Join(err, ns.Delete())
	}
	return ns, nil
}

// Open finds a namespace that was made before, perhaps by another process.
func Open(name string) (*NS, error) {
	handle, err := netns.GetFromPath(filepath.Join(folder, name))
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", name, err)
	}
	link, err := netlink.NewHandleAt(handle)
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", name, errors.Join(err, handle.Close()))
	}
	return &NS{links: links{name: name, netlink: link}, handle: handle}, nil
}

// Name is the namespace's name.
func (ns *NS) Name() string { return ns.name }

// Path is the namespace's file.
func (ns *NS) Path() string { return filepath.Join(folder, ns.name) }

// Netlink talks to the kernel about what is in the namespace.
func (ns *NS) Netlink() *netlink.Handle { return ns.netlink }

// Close lets go of the namespace and leaves it in place. Processes that Start tied to this one end.
func (ns *NS) Close() error {
	ns.starting.Lock()
	defer ns.starting.Unlock()
	var err error
	if ns.starter != nil {
		err = ns.starter.end()
		ns.starter = nil
	}
	ns.netlink.Close()
	return errors.Join(err, ns.handle.Close())
}

// Delete kills every process in the namespace and removes it.
func (ns *NS) Delete() error {
	return errors.Join(ns.Close(), Remove(ns.name))
}

// Remove kills every process in the named namespace and removes it. It is no error if there is none.
func Remove(name string) error {
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := killAll(path); err != nil {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	if err := netns.DeleteNamed(name); err != nil {
		// A crash between creating the file and the mount leaves a plain file.
		if removed := os.Remove(path); removed != nil {
			return fmt.Errorf("remove namespace %s: %w", name, err)
		}
	}
	return nil
}

// Names lists the namespaces whose names start with prefix.
func Names(prefix string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, prefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names, nil
}
