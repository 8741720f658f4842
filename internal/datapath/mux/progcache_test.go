package mux

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/testkit/progcache"
)

// TestMain takes the programs from a file when it is told so: test/mutate has some with a fault.
func TestMain(m *testing.M) {
	if path := os.Getenv("WEIR_TEST_OBJECT"); path != "" {
		object, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		bpf.UseObject(object)
	}
	os.Exit(m.Run())
}

// TestClearedIsNew gives the packets of the packet tests to programs, and clears their tables as between
// tests: all must be as loading makes it.
func TestClearedIsNew(t *testing.T) {
	l := loadNew(t, testSizes)
	defer l.Tables.Close()
	defer l.Objects.Programs.Close()
	dump := func() map[string]string {
		t.Helper()
		all, err := progcache.Dump(l.Programs()...)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	isNew := dump()
	t.Run("used", func(t *testing.T) {
		d := l.datapath(t, testSizes)
		fillWith(t, d, world()...)
		for _, c := range allCases(t) {
			if c.damage == nil && c.meta == 0 {
				run(t, d, c.packet.Frame())
			}
		}
	})
	used := dump()
	for _, name := range []string{"verdicts", "endpoints", "flows", "punts", ".bss"} {
		if used[name] == isNew[name] {
			t.Errorf("table %q is as new after use", name)
		}
	}
	if err := progcache.Clear(l.Programs()...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(isNew, dump()); diff != "" {
		t.Errorf("tables (-new +cleared):\n%s", diff)
	}
}
