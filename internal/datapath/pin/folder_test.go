package pin_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/datapath/pin"
)

func folderPath() string { return fmt.Sprintf("/sys/fs/bpf/weir-pin-test-%d", os.Getpid()) }

func open(t *testing.T) *pin.Folder {
	t.Helper()
	f, err := pin.Open(folderPath())
	if err != nil {
		t.Fatalf("%v (needs root)", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Remove(), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestPublish(t *testing.T) {
	f := open(t)
	if f.HasLive() {
		t.Fatal("a new folder has something live")
	}
	broken := errors.New("broken")
	err := f.Publish(func(folder string) error {
		return errors.Join(os.Mkdir(filepath.Join(folder, "half"), 0o700), broken)
	})
	if !errors.Is(err, broken) || f.HasLive() {
		t.Fatalf("failed build: error is %v, live is %t", err, f.HasLive())
	}
	// What a process left that died while it built.
	if err := os.MkdirAll(filepath.Join(folderPath(), "new", "half"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = f.Publish(func(folder string) error {
		return errors.Join(os.Mkdir(filepath.Join(folder, "a_1"), 0o700), os.Mkdir(filepath.Join(folder, "b"), 0o700))
	})
	if err != nil || !f.HasLive() {
		t.Fatalf("build: error is %v, live is %t", err, f.HasLive())
	}
	names, err := f.Names("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a_1", "b"}, names); diff != "" {
		t.Errorf("live names (-want +got):\n%s", diff)
	}
	if names, err := f.Names("a_"); err != nil || len(names) != 1 {
		t.Errorf("names with a prefix are %v (%v)", names, err)
	}
}

func TestOwner(t *testing.T) {
	f := open(t)
	if _, err := pin.Open(folderPath()); !errors.Is(err, pin.ErrLocked) {
		t.Errorf("second owner: got %v, not %v", err, pin.ErrLocked)
	}
	if names, err := f.Names(""); err != nil || len(names) != 0 {
		t.Errorf("names of an empty folder are %v (%v)", names, err)
	}
}

func TestOpenElsewhere(t *testing.T) {
	if _, err := pin.Open(t.TempDir()); err == nil {
		t.Error("took a folder that is not on a bpffs")
	}
}

func TestReplace(t *testing.T) {
	f := open(t)
	one := func(name string) func(string) error {
		return func(folder string) error { return os.Mkdir(filepath.Join(folder, name), 0o700) }
	}
	live := func(want ...string) {
		t.Helper()
		names, err := f.Names("")
		if diff := cmp.Diff(want, names); diff != "" || err != nil {
			t.Errorf("live names (-want +got), error %v:\n%s", err, diff)
		}
		if _, err := os.Stat(filepath.Join(folderPath(), "new")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was replaced is still there: %v", err)
		}
	}
	if err := f.Publish(one("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := f.Replace(one("new"), func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("failed swap: error is %v", err)
	}
	live("old")
	if err := f.Replace(func(string) error { return broken }, func() error { return nil }); !errors.Is(err, broken) {
		t.Errorf("failed build: error is %v", err)
	}
	live("old")
	swapped := false
	err := f.Replace(one("new"), func() error {
		names, err := f.Names("")
		swapped = len(names) == 1 && names[0] == "new"
		return err
	})
	if err != nil || !swapped {
		t.Errorf("replace: error %v, live before the swap: %t", err, swapped)
	}
	live("new")
}
