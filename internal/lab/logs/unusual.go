// Package logs finds what is unusual in the logs of Weir's programs.
package logs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of what is said of a program: lines, and bytes of each.
const (
	reportLines = 5
	reportWidth = 400
)

var usual = regexp.MustCompile(`^time=\S+ level=(INFO|DEBUG) |^\{"time":"[^"]*","level":"(INFO|DEBUG)"`)

// crashes begin what Go's runtime says of a program that it ends, or of a data race.
var crashes = []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"}

// Unusual is the end of what a program of Weir logged beside level INFO and below, or of a crash the
// beginning.
func Unusual(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		if line == "" || usual.MatchString(line) {
			continue
		}
		lines = append(lines, line[:min(len(line), reportWidth)])
	}
	first := max(0, len(lines)-reportLines)
	crash := slices.IndexFunc(lines, func(line string) bool {
		return slices.ContainsFunc(crashes, func(c string) bool { return strings.HasPrefix(line, c) })
	})
	if crash >= 0 {
		first = crash
	}
	last := min(len(lines), first+reportLines)
	shown := lines[first:last]
	if left := len(lines) - len(shown); left > 0 {
		shown = append(slices.Clone(shown), fmt.Sprintf("(and %d lines more)", left))
	}
	return strings.Join(shown, "\n")
}
