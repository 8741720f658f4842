package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
)

// weir runs a command line as someone in the repository's folder would.
func weir(t *testing.T, line string) string {
	t.Helper()
	bin, err := binFolder()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(line, "bin/weir", filepath.Join(bin, "weir"), 1))
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// leavesNothing takes a lab down and looks for what is left of it.
func leavesNothing(t *testing.T, name string) {
	t.Helper()
	must(t, netlab.Down(name))
	names, err := netns.Names("weir-" + name + "-")
	must(t, err)
	if len(names) > 0 {
		t.Errorf("namespaces are left: %v", names)
	}
	dir := filepath.Join(netlab.Root, name)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range commands {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), dir+"/") {
			t.Errorf("a process is left: %q", line)
		}
	}
}

// A lab goes away whole after a crash: here its record is lost and a daemon was killed.
func TestLabGoesAwayAfterACrash(t *testing.T) {
	const name = "crash"
	t.Cleanup(func() { leavesNothing(t, name) })
	weir(t, "bin/weir lab up --name "+name+" --muxes 1 --hosts 1 --workloads 1")
	lab, err := netlab.Open(name)
	must(t, err)
	mux, err := lab.Process("mux1", "weir-mux")
	must(t, err)
	must(t, mux.Stop(unix.SIGKILL, bound))
	must(t, os.Remove(filepath.Join(lab.Dir(), "state.json")))
	weir(t, "bin/weir lab down --name "+name)
	leavesNothing(t, name)
	weir(t, "bin/weir lab down --name "+name) // nothing to do is no error
}
