// Package bare tests what a newcomer's machine is told before anything is installed or built. That nothing but git and
// make is needed is shown by make bare, which takes too long for each run.
package bare

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository's, seen from here.
const root = "../.."

// On a machine on which all tests run nothing is missing; whatever is taken from it is named, and what to do.
func TestMachineSaysWhatIsMissing(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(root, "scripts/machine.sh"))
	if err != nil {
		t.Fatal(err)
	}
	uname := `#!/bin/sh
case $1 in -r) echo 5.15.0-generic ;; *) exec /usr/bin/uname "$@" ;; esac
`
	shims := t.TempDir()
	if err := os.WriteFile(filepath.Join(shims, "uname"), []byte(uname), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, before, want string }{
		{"nothing", ":", ""},
		{"kernel", "PATH=" + shims + ":$PATH", "Linux 5.15.0-generic is too old: boot 6.16"},
		{"types", "mount -t tmpfs tmpfs /sys/kernel/btf", "/sys/kernel/btf/vmlinux is missing: mount sysfs"},
		{"bpffs", "echo ext4 >$dir/f; mount --bind $dir/f /proc/filesystems", "the kernel knows no bpffs"},
		{"option", "zcat /proc/config.gz | grep -v CONFIG_VETH | gzip >$dir/c; mount --bind $dir/c /proc/config.gz", "the kernel has no CONFIG_VETH"},
		{"root", "run='setpriv --reuid 65534 --clear-groups'", "not root: network namespaces and eBPF need it"},
		{"container", "run='setpriv --bounding-set -sys_admin --inh-caps -sys_admin'", "no network namespace can be made: in a container"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			shell := "set -e; mount --make-rprivate /; dir=$1; run=; " + c.before + "; exec $run bash -c \"$2\""
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", shell, "machine", t.TempDir(), string(text))
			out, err := cmd.CombinedOutput()
			if c.want == "" {
				if err != nil || len(out) > 0 {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			if err == nil || !strings.Contains(string(out), "machine: "+c.want) {
				t.Errorf("%v: %q does not hold %q", err, out, c.want)
			}
			if lines := strings.Count(string(out), "\n"); lines != 1 {
				t.Errorf("%d lines of one fault:\n%s", lines, out)
			}
		})
	}
}

// The machine is looked at before minutes are spent on it.
func TestMachineIsLookedAtFirst(t *testing.T) {
	for _, target := range []string{"demo", "test"} {
		cmd := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "-n", target)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=") // A make that runs this test has a job server, which is not this one's.
		out, err := cmd.CombinedOutput()
		first, _, _ := strings.Cut(string(out), "\n")
		if err != nil || first != "scripts/machine.sh" {
			t.Errorf("make %s begins with %q, %v", target, first, err)
		}
	}
}
