package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// overlaid are the folders whose Go an overlay brings to the base.
var overlaid = [...]string{"internal/testkit/turns", "test/bench/mux", "test/bench/agent"}

// build builds the benches of both versions, as base-mux and so on, into the folder.
func build(ctx context.Context, dir string, how options) (err error) {
	if err := goBuild(ctx, ".", dir, "new", how); err != nil {
		return err
	}
	tree := filepath.Join(dir, "tree")
	if err := command(ctx, ".", "git", "worktree", "add", "--quiet", "--detach", tree, how.base); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, command(context.WithoutCancel(ctx), ".", "git", "worktree", "remove", "--force", tree))
	}()
	if how.overlay {
		if err := overlay(tree); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(tree, overlaid[0])); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the benches of %s take no turns, for it is older than %s: give -overlay (OVERLAY=1 to make) to measure its programs by this tree's benches", how.base, overlaid[0])
	}
	if err := command(ctx, tree, "go", "generate", "./internal/datapath/...", "./internal/testkit/bpftest/...", "./test/bench/mux"); err != nil {
		return err
	}
	return goBuild(ctx, tree, dir, "base", how)
}

// overlay puts the Go of this tree's benches in the place of the base's, whose eBPF harness stays with its programs. Where it
// does not fit the base's packages, it fails to build.
func overlay(tree string) error {
	for _, folder := range overlaid {
		old, err := filepath.Glob(filepath.Join(tree, folder, "*.go"))
		if err != nil {
			return err
		}
		for _, file := range old {
			if filepath.Base(file) == generate {
				continue
			}
			if err := os.Remove(file); err != nil {
				return err
			}
		}
		if err := copyGo(folder, filepath.Join(tree, folder)); err != nil {
			return fmt.Errorf("overlay the base: %w", err)
		}
	}
	return nil
}

// generate says where the harness is.
const generate = "gen.go"

func copyGo(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		if filepath.Base(file) == generate {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func goBuild(ctx context.Context, tree, dir, version string, how options) error {
	for _, bench := range how.benches() {
		if err := command(ctx, tree, "go", "build", "-o", filepath.Join(dir, version+"-"+bench), "./test/bench/"+bench); err != nil {
			return err
		}
	}
	return nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stderr = dir, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %v in %s: %w", name, args, dir, err)
	}
	return nil
}
