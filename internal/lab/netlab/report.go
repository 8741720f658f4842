package netlab

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// test is what Report needs of a *testing.T.
type test interface {
	Helper()
	Name() string
	Failed() bool
	Logf(format string, args ...any)
}

// Bounds of what Report says of a program: lines, and bytes of each.
const (
	reportLines = 5
	reportWidth = 400
)

// Report tells of a test that has failed what is unusual in the logs of Weir's programs, and keeps all
// logs in a folder that the lab does not take with it. It is short, for what it says may stand before the
// reason of the failure.
func (l *Lab) Report(t test) {
	t.Helper()
	if !t.Failed() {
		return
	}
	if kept, err := l.keepLogs(t.Name()); err != nil {
		t.Logf("keep the logs of lab %s: %v", l.Name, err)
	} else {
		t.Logf("the logs of all programs of lab %s are in %s", l.Name, kept)
	}
	for _, n := range l.Nodes() {
		for _, program := range []string{"weir-manager", "weir-mux", "weir-switch", "weir-agent"} {
			if _, err := l.Process(n.Name, program); err != nil {
				continue
			}
			if unusual := Unusual(l.Log(n.Name, program)); unusual != "" {
				t.Logf("%s on %s:\n%s", program, n.Name, unusual)
			}
		}
	}
}

func (l *Lab) keepLogs(test string) (string, error) {
	to, err := os.MkdirTemp("", "weir-logs-"+l.Name+"-"+strings.ReplaceAll(test, "/", "-")+"-")
	if err != nil {
		return "", err
	}
	return to, os.CopyFS(to, os.DirFS(l.LogDir()))
}

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
