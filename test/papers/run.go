package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// reproduce runs the benches of figures, each command once, and writes and keeps the results. A figure that fails keeps
// what an earlier run gave it.
func reproduce(ctx context.Context, root string, figures []figure) (failed error) {
	for len(figures) > 0 && ctx.Err() == nil {
		command := figures[0].bench.command()
		var same, rest []figure
		for _, f := range figures {
			if f.bench.command() == command {
				same = append(same, f)
			} else {
				rest = append(rest, f)
			}
		}
		if err := reproduceTogether(ctx, root, same); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", command, err))
		}
		figures = rest
	}
	return failed
}

// reproduceTogether runs the bench that figures share.
func reproduceTogether(ctx context.Context, root string, figures []figure) error {
	template, err := describeRun(ctx, root)
	if err != nil {
		return err
	}
	b := figures[0].bench // all have the same
	template.Command = b.command()
	out := filepath.Join(root, outFolder, "bench", b.name+".json")
	if err := b.run(ctx, root, out); err != nil {
		return err
	}
	var document any
	if err := readJSON(out, &document); err != nil {
		return err
	}
	var failed error
	for _, f := range figures {
		failed = errors.Join(failed, f.keep(root, template, document))
	}
	return failed
}

// run runs the bench. What it draws comes into the folder of results, too.
func (b bench) run(ctx context.Context, root, out string) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	relative, err := filepath.Rel(root, out)
	if err != nil {
		return err
	}
	args := append([]string{"run", "./test/bench/" + b.name}, b.args...)
	args = append(args, "-out", relative)
	if len(b.drawings) > 0 {
		args = append(args, "-plots", outFolder)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it takes its lab down
	return cmd.Run()
}

// keep writes a figure's results, and copies them and its drawings to those that are committed.
func (f figure) keep(root string, template record, document any) error {
	results, err := f.extract(document)
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(root, outFolder, f.name+".json"), results); err != nil {
		return err
	}
	of := template
	of.Figure, of.Results, of.Drawings = f.name, results, f.bench.drawings
	for _, name := range of.Drawings {
		drawing, err := os.ReadFile(filepath.Join(root, outFolder, name))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(root, keptFolder, name), drawing); err != nil {
			return err
		}
	}
	for _, r := range results {
		fmt.Printf("%s: %s %s %s\n", f.name, r.Name, format(r.Value), r.Unit)
	}
	return writeJSON(filepath.Join(root, keptFolder, f.name+".json"), of)
}

// describeRun returns date, commit and machine.
func describeRun(ctx context.Context, root string) (r record, err error) {
	r.Date = time.Now().UTC().Format(time.DateOnly)
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if r.Commit, err = git("rev-parse", "--short=10", "HEAD"); err != nil {
		return r, fmt.Errorf("read the commit: %w", err)
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
	if err != nil {
		return r, fmt.Errorf("read the tree's state: %w", err)
	}
	if changed != "" {
		r.Commit += "-dirty"
	}
	osrelease, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return r, err
	}
	release, _, _ := strings.Cut(strings.TrimSpace(string(osrelease)), "-")
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return r, err
	}
	_, model, _ := strings.Cut(string(processors), "model name\t: ")
	model, _, _ = strings.Cut(model, "\n")
	r.Machine = fmt.Sprintf("%s, %d CPUs, Linux %s", model, runtime.NumCPU(), release)
	average, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return r, err
	}
	r.Load, err = strconv.ParseFloat(strings.Fields(string(average))[0], 64)
	return r, err
}
