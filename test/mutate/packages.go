package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// packages runs tests of Go packages on sources with a fault. The go command reads a file of the tree from another
// place (-overlay): the tree stays as it is.
type packages struct {
	root, folder string
	passed       map[tests]bool // without a fault
}

// try says what found the fault; nothing did if it is empty.
func (p *packages) try(ctx context.Context, m mutation) (string, error) {
	if !p.passed[m.tests] {
		if failed, err := p.test(ctx, m.tests, ""); err != nil || failed != "" {
			return "", fmt.Errorf("the tests of %s fail without a fault: %s %w", m.tests.folder, failed, err)
		}
		p.passed[m.tests] = true
	}
	path := filepath.Join(p.root, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	wrong, err := m.put(source)
	if err != nil {
		return "", err
	}
	instead, overlay := filepath.Join(p.folder, "fault.go"), filepath.Join(p.folder, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: instead}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(instead, wrong, 0o600), os.WriteFile(overlay, replaced, 0o600)); err != nil {
		return "", err
	}
	return p.test(ctx, m.tests, overlay)
}

// test says which test fails, with its subtest.
func (p *packages) test(ctx context.Context, t tests, overlay string) (string, error) {
	args := []string{"test", "-count=1", "-short", "-failfast", "-vet=off", "-timeout=20m", "-run", t.run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	test := exec.CommandContext(ctx, "go", append(args, "./"+t.folder)...)
	test.Dir = p.root
	out, err := test.CombinedOutput()
	switch exit := new(exec.ExitError); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && !errors.As(err, &exit):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return "", fmt.Errorf("it does not compile: %s", out)
	case bytes.Contains(out, []byte("no tests to run")):
		return "", fmt.Errorf("no test of %s is named %s", t.folder, t.run)
	case bytes.Contains(out, []byte("panic: test timed out")): // a slow machine finds no fault
		return "", errors.New("the tests took more than 20 minutes")
	case err == nil:
		return "", nil
	}
	failed := "a panic"
	for _, found := range failure.FindAllSubmatch(out, 2) {
		failed = string(found[1])
	}
	return t.folder + ": " + failed, nil
}
