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

// LimitMemory has the garbage collector keep the program below the memory.max of its cgroup (cgroups(7), version 2), unless
// GOMEMLIMIT says otherwise, and returns that bound in bytes; 0: there is none.
func LimitMemory() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	limit := memoryMax("/sys/fs/cgroup", string(groups)) / 100 * memoryPart
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit
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
