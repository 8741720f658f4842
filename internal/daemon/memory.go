package daemon

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryPart is what of its cgroup's memory a program's heap may have, in percent: stacks and mapped files need some.
const memoryPart = 85

// limitMemory has the garbage collector keep the program below the memory.max of its cgroup (cgroups(7), version 2), unless
// GOMEMLIMIT says otherwise.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	if limit := memoryMax("/sys/fs/cgroup", string(groups)) / 100 * memoryPart; limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// memoryMax is the least memory.max of a cgroup and those above it, 0 for none, by the text of /proc/self/cgroup.
func memoryMax(root, groups string) (least int64) {
	for line := range strings.Lines(groups) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for unified && group != "/" && group != "." && group != "" {
			text, err := os.ReadFile(filepath.Join(root, group, "memory.max"))
			if n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && wrong == nil && (least == 0 || n < least) {
				least = n
			}
			group = filepath.Dir(group)
		}
	}
	return least
}
