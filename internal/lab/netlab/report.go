package netlab

import (
	"os"
	"strings"

	"github.com/weirlb/weir/internal/lab/logs"
)

// test is what Report needs of a *testing.T.
type test interface {
	Helper()
	Name() string
	Failed() bool
	Logf(format string, args ...any)
}

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
			if unusual := logs.Unusual(l.Log(n.Name, program)); unusual != "" {
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
