package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asProgram has the test binary be weir-manager itself. Every process that a test starts inherits it.
const asProgram = "WEIR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// run starts a manager on dir and returns what it printed by its end. stop says when to end it; nil
// for a manager that ends by itself.
func run(t *testing.T, dir string, stop func(printed string) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "--listen", "127.0.0.1:0", "--data-dir", dir)
	out := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		printed, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				t.Fatalf("did not end: %s", printed)
			}
			if stop == nil && err == nil {
				t.Error("ended with status 0")
			}
			printed, _ = os.ReadFile(out)
			return string(printed)
		case <-tick.C:
			if stop != nil && stop(string(printed)) {
				cmd.Process.Signal(unix.SIGTERM)
			}
		}
	}
}

// A store that can't be used is told in one line with what to do, not by a stack of etcd's.
func TestDamagedStores(t *testing.T) {
	good := t.TempDir()
	run(t, good, func(printed string) bool { return strings.Contains(printed, "manager runs") })
	for _, kind := range []string{"db", ".wal"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			damage(t, dir, kind)
			explained(t, dir, run(t, dir, nil))
		})
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small disk (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	explained(t, dir, run(t, dir, nil))
}

// damage overwrites the files below dir whose names end in suffix.
func damage(t *testing.T, dir, suffix string) {
	t.Helper()
	damaged := 0
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, suffix) {
			return err
		}
		damaged++
		return os.WriteFile(path, bytes.Repeat([]byte{0xa5}, 1<<16), 0o600)
	})
	if err != nil || damaged == 0 {
		t.Fatalf("damaged %d files ending in %s: %v", damaged, suffix, err)
	}
}

// explained holds that printed names the directory, says what to do, and has no stack.
func explained(t *testing.T, dir, printed string) {
	t.Helper()
	if strings.Contains(printed, "goroutine") || !strings.Contains(printed, dir) || !strings.Contains(printed, "backup") {
		t.Errorf("printed:\n%s", printed)
	}
	if lines := strings.Count(strings.TrimSpace(printed), "\n") + 1; lines != 1 {
		t.Errorf("printed %d lines:\n%s", lines, printed)
	}
}

// The first user is reset by the program, on the data directory of a manager that is stopped.
func TestAdminReset(t *testing.T) {
	dir := t.TempDir()
	runs := func(printed string) bool { return strings.Contains(printed, "manager runs") }
	run(t, dir, runs)
	before, err := os.ReadFile(filepath.Join(dir, "admin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), os.Args[0], "admin-reset", "--data-dir", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), filepath.Join(dir, "admin.yaml")) {
		t.Fatalf("the reset: %s, %v", out, err)
	}
	run(t, dir, runs)
	if after, err := os.ReadFile(filepath.Join(dir, "admin.yaml")); err != nil || bytes.Equal(before, after) {
		t.Errorf("the configuration is as it was, or gone: %v", err)
	}
}
