// Command mutate asks whether a test fails when the sources are wrong: it puts one fault after the other into a copy of
// them. Faults in the eBPF programs are for the tests that give packets to the programs without a network: these need
// root, and clang as the programs do. Faults in Go are for the tests that mutations.txt names above them.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed mutations.txt
var list string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("run", "", "only the faults that this regular expression matches, as file: what is wrong")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	mutations, err := parse(list)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "weir-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	b := &bench{root: root, folder: folder, right: map[string][]byte{}, passed: map[string]bool{}}
	packages := &packages{root: root, folder: folder, passed: map[tests]bool{}}
	var survived, all int
	for _, m := range mutations {
		if !wanted.MatchString(m.String()) {
			continue
		}
		began := time.Now()
		try := b.try
		if m.tests != (tests{}) {
			try = packages.try
		}
		fate, err := try(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		all++
		if fate == "" {
			survived++
			fate = "SURVIVED"
		}
		fmt.Printf("%s\n\t%s (%.0f s)\n", m, fate, time.Since(began).Seconds())
	}
	fmt.Printf("%d of %d faults were found\n", all-survived, all)
	if survived > 0 {
		return fmt.Errorf("no test fails on %d faults", survived)
	}
	return nil
}

// mutation is a fault: at one place of a file there stands with instead of what.
type mutation struct {
	file, wrong, what, with string
	tests                   tests // that shall find it; those of the eBPF programs if there are none
}

func (m mutation) String() string { return m.file + ": " + m.wrong }

var spaces = regexp.MustCompile(` +`)

// put returns the source with the fault. Several spaces are as many as gofmt puts there.
func (m mutation) put(source []byte) ([]byte, error) {
	what := regexp.MustCompile(spaces.ReplaceAllString(regexp.QuoteMeta(m.what), " +"))
	places := what.FindAllIndex(source, -1)
	if len(places) != 1 {
		return nil, fmt.Errorf("%q stands there %d times", m.what, len(places))
	}
	return slices.Replace(slices.Clone(source), places[0][0], places[0][1], []byte(m.with)...), nil
}

// tests are those of a package, as go test's -run has them.
type tests struct{ folder, run string }

// testsOf heads a section of faults in Go: "tests: internal/manager ^TestRules$". The next one ends it.
const testsOf = "tests: "

func parse(list string) ([]mutation, error) {
	var all []mutation
	text := func(line string) string {
		return strings.ReplaceAll(strings.TrimPrefix(line, "\t"), `\n`, "\n")
	}
	var section tests
	lines := strings.Split(list, "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			continue
		}
		if named, ok := strings.CutPrefix(lines[i], testsOf); ok {
			section.folder, section.run, _ = strings.Cut(named, " ")
			continue
		}
		file, wrong, ok := strings.Cut(lines[i], ": ")
		if !ok || i+2 >= len(lines) {
			return nil, fmt.Errorf("line %d begins no fault", i+1)
		}
		m := mutation{file: file, wrong: wrong, what: text(lines[i+1]), with: text(lines[i+2])}
		if strings.HasSuffix(file, ".go") {
			if m.tests = section; section.run == "" {
				return nil, fmt.Errorf("line %d: no line %q names tests for a fault in Go", i+1, testsOf)
			}
		}
		all = append(all, m)
		i += 2
	}
	return all, nil
}

// programs have tests that need no network: those that skip does not match.
var programs = []struct{ name, folder, skip string }{
	{
		"mux", "internal/datapath/mux",
		"^Test(Capture|Tables|Another|Inspect|Pins|Restart|Open|Unload|Replaced|StepsAside|EndpointIndex|Ranges|Explain|Verifier|" +
			"Digest|Programs|Packets[A-Z]|ClearedIsNew|Buckets)",
	},
	{
		"agent", "internal/datapath/agent", "^Test(CookiesOfTransfers|GUETransfers|NarrowPath|LargeReplies|ClosedDatagram|" +
			"BucketMoves|KeepAlive|WithoutKeepAlive|Restart|AdoptsIts|SessionsEnd|UDP$|ClosedPort|Workload|Uplink|OneOwner|Unload|Tables|Upgrade|" +
			"OtherSizes|WhatCant|ThroughMux|SNATHoldsInOrder|SNATConnects|SNATOutlives|Tap|Transfers|Verifier|SYNCookie|" +
			"Cookie.*Socket|Probe|ClearedIsNew|Floods|SNATShort)",
	},
	{
		"overlay", "internal/datapath/overlay",
		"^Test(Restart|TheTable|StrangePins|TCPBypasses|TwoCPUs|RowsAreInQuarantine|LateNotes|Verifier|Configs)",
	},
	{"switch", "internal/hardware/xdp", "^Test(Driver|Existing)$"},
}

// bench has a copy of the sources, and for each program an object without a fault, and whether its tests passed with that.
type bench struct {
	root, folder string
	right        map[string][]byte
	passed       map[string]bool
}

// prepare makes ready what faults in the eBPF programs need.
func (b *bench) prepare(ctx context.Context) (err error) {
	if len(b.right) > 0 {
		return nil
	}
	if err := os.CopyFS(b.path("bpf"), os.DirFS("bpf")); err != nil {
		return err
	}
	for _, p := range programs {
		if b.right[p.name], err = b.compile(ctx, p.name); err != nil {
			return err
		}
	}
	return nil
}

// check has the tests of a program pass without a fault, before the first one with.
func (b *bench) check(ctx context.Context, name, folder, skip string) error {
	if b.passed[name] {
		return nil
	}
	if err := b.command(ctx, b.root, "go", "test", "-c", "-o", b.path(name+".test"), "./"+folder); err != nil {
		return err
	}
	if err := os.WriteFile(b.path(name+".o"), b.right[name], 0o600); err != nil {
		return err
	}
	failed, err := b.test(ctx, name, folder, skip)
	if err != nil || failed != "" {
		return errors.Join(fmt.Errorf("the tests of %s fail without a fault: %s", name, failed), err)
	}
	b.passed[name] = true
	return nil
}

func (b *bench) path(name string) string { return filepath.Join(b.folder, name) }

// try says what found the fault; nothing did if it is empty.
func (b *bench) try(ctx context.Context, m mutation) (string, error) {
	if err := b.prepare(ctx); err != nil {
		return "", err
	}
	path := b.path(m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	wrong, err := m.put(source)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, wrong, 0o600); err != nil {
		return "", err
	}
	defer func() { _ = os.WriteFile(path, source, 0o600) }()
	for _, p := range programs { // each that has the header
		object, err := b.compile(ctx, p.name)
		if err != nil {
			return "", err
		}
		if bytes.Equal(object, b.right[p.name]) {
			continue
		}
		if err := b.check(ctx, p.name, p.folder, p.skip); err != nil {
			return "", err
		}
		if err := os.WriteFile(b.path(p.name+".o"), object, 0o600); err != nil {
			return "", err
		}
		if failed, err := b.test(ctx, p.name, p.folder, p.skip); err != nil || failed != "" {
			return failed, err
		}
	}
	return "", nil
}

func (b *bench) compile(ctx context.Context, name string) ([]byte, error) {
	object := b.path(name + ".o")
	err := b.command(ctx, b.folder, "clang-19", "-target", "bpfel", "-O2", "-g", "-mcpu=v3", "-Ibpf", "-Ibpf/include",
		"-c", "bpf/"+name+"/"+name+".bpf.c", "-o", object)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(object)
}

func (b *bench) command(ctx context.Context, folder, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

var failure = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// usesRapid says whether the tests of a folder know rapid's flags.
func usesRapid(folder string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	for _, file := range files {
		text, read := os.ReadFile(file)
		if read != nil || bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			return read == nil, read
		}
	}
	return false, err
}

// test says which test fails first, with its subtest.
func (b *bench) test(ctx context.Context, name, folder, skip string) (string, error) {
	args := []string{"-test.short", "-test.failfast", "-test.timeout=20m", "-test.skip", skip}
	if rapid, err := usesRapid(filepath.Join(b.root, folder)); err != nil {
		return "", err
	} else if rapid {
		args = append(args, "-rapid.nofailfile")
	}
	test := exec.CommandContext(ctx, b.path(name+".test"), args...)
	test.Dir = filepath.Join(b.root, folder)
	test.Env = append(os.Environ(), "WEIR_TEST_OBJECT="+b.path(name+".o"))
	out, err := test.CombinedOutput()
	if exit := new(exec.ExitError); err == nil || !errors.As(err, &exit) {
		return "", err
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if bytes.Contains(out, []byte("panic: test timed out")) { // a slow machine finds no fault
		return "", errors.New("the tests took more than 20 minutes")
	}
	failed := "a panic"
	for _, found := range failure.FindAllSubmatch(out, 2) {
		failed = string(found[1])
	}
	if bytes.Contains(out, []byte("load program")) {
		failed = "the verifier"
	}
	return name + ": " + failed, nil
}
