package agent

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
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
	l := loadNew(t)
	defer l.Close()
	dump := func() map[string]string {
		t.Helper()
		all, err := progcache.Dump(l.Programs()...)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	isNew := dump()
	r := l.rig(t)
	r.fill()
	r.fillSNAT()
	for _, c := range packetCases() {
		for _, s := range c.steps {
			r.run(s.program, s.in, s.skb)
		}
	}
	used := dump()
	for _, name := range []string{"verdicts", "nat_rules", "sessions", "new_sessions", ".data.settings", "snat_workloads"} {
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
