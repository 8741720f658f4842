package netns_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

const freshEnv = "WEIR_TEST_FRESH_RUN"

// On a machine that never had a namespace, ip(8) comes second, and ours can still be removed. The test
// runs itself again with a /run of its own.
func TestIPAfterUsOnAFreshMachine(t *testing.T) {
	if os.Getenv(freshEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), freshEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	must(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("none", "/run", "tmpfs", 0, ""))
	ours, err := netns.Create("nst-first")
	must(t, err)
	out, err := exec.Command("ip", "netns", "add", "nst-second").CombinedOutput()
	if err != nil {
		t.Fatalf("ip netns add: %v\n%s", err, out)
	}
	must(t, ours.Delete())
	must(t, netns.Remove("nst-second"))
}
