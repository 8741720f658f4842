package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// The bound of a program is the least of its cgroup and those above.
func TestMemoryMaxIsTheLeastAbove(t *testing.T) {
	root := t.TempDir()
	for group, text := range map[string]string{"system.slice": "4096\n", "system.slice/weir.service": "8192\n", "user.slice": "max\n"} {
		if err := os.MkdirAll(filepath.Join(root, group), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, group, "memory.max"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]int64{
		"0::/system.slice/weir.service\n": 4096, "1:cpu:/x\n0::/system.slice\n": 4096, "0::/user.slice\n": 0, "0::/\n": 0, "": 0,
	} {
		if got := memoryMax(root, groups); got != want {
			t.Errorf("in %q it is %d, want %d", groups, got, want)
		}
	}
}
