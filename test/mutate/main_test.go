package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSections(t *testing.T) {
	faults := "bpf/x.h: a\n\tb\n\tc\n\ntests: internal/x ^TestA$\n\ninternal/x/x.go: d\n\te\n\tf\ninternal/x/y.go: g\n\th\n\ti\n"
	mutations, err := parse(faults)
	if err != nil {
		t.Fatal(err)
	}
	var got []tests
	for _, m := range mutations {
		got = append(got, m.tests)
	}
	section := tests{"internal/x", "^TestA$"}
	if want := []tests{{}, section, section}; !slices.Equal(got, want) {
		t.Errorf("the faults are for the tests %q, want %q", got, want)
	}
	if _, err := parse("internal/x/x.go: d\n\te\n\tf\n"); err == nil {
		t.Error("a fault in Go without tests is taken")
	}
}

// Each fault has its place: text that its file has once. Code that changes takes its faults along.
func TestFaultsHaveTheirPlaces(t *testing.T) {
	mutations, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		source, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m, err)
			continue
		}
		if _, err := m.put(source); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
}
