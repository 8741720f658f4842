package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

var errStopped = errors.New("stopped")

// A run that stops loses no draw that it finished, not even with its last line cut short, and computes none twice.
func TestDrawsGoOnWhereTheyStopped(t *testing.T) {
	b := &bench{out: filepath.Join(t.TempDir(), "placement.json")}
	names := []string{"a", "b", "c", "d"}
	run := func(most int) (values, computed []int, err error) {
		var mu sync.Mutex
		values, err = compute(t.Context(), b, "test", names, func(_ context.Context, i int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(computed) == most {
				return 0, errStopped
			}
			computed = append(computed, i)
			return i * i, nil
		})
		return values, computed, err
	}
	_, before, err := run(2)
	if !errors.Is(err, errStopped) || len(before) != 2 {
		t.Fatalf("computed %v, error %v", before, err)
	}
	path := filepath.Join(filepath.Dir(b.out), "placement-test.draws")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, `{"draw":"a","val`...), 0o644); err != nil {
		t.Fatal(err)
	}
	values, after, err := run(len(names))
	if err != nil || !slices.Equal(values, []int{0, 1, 4, 9}) {
		t.Errorf("values %v, error %v", values, err)
	}
	if all := slices.Sorted(slices.Values(append(before, after...))); !slices.Equal(all, []int{0, 1, 2, 3}) {
		t.Errorf("computed %v, then %v", before, after)
	}
	if values, again, err := run(0); err != nil || len(again) != 0 || !slices.Equal(values, []int{0, 1, 4, 9}) {
		t.Errorf("computed %v again: %v, error %v", again, values, err)
	}
	b.vips = 7
	if _, anew, err := run(len(names)); err != nil || len(anew) != len(names) {
		t.Errorf("of other VIPs computed %v, error %v", anew, err)
	}
}

// Draws of another program are not taken for those of this one.
func TestDrawsOfAnotherProgramAreDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "draws")
	for _, program := range []string{"one", "other", "one"} {
		d, err := openDraws(path, drawHead{Program: program})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.kept) != 0 {
			t.Errorf("%s has draws of another program: %v", program, d.kept)
		}
		if err := errors.Join(d.add("a", 1), d.file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
