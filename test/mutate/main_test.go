package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

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
		if n := bytes.Count(source, []byte(m.what)); n != 1 {
			t.Errorf("%s: %q stands there %d times", m, m.what, n)
		}
	}
}
