package switchlab

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/lab/netns"
)

// Port is the switch's port to the client. Once something is to be heard, lldpd runs at both, with its socket on the switch.
func (l *Lab) Port(t *testing.T) (port drivertest.Port, socket string) {
	t.Helper()
	socket = socketPath(t)
	return drivertest.Port{
		Name: ClientPort,
		SetUp: func(up bool) {
			t.Helper()
			if up {
				must(t, l.Client.SetUp("eth0"))
			} else {
				must(t, l.Client.SetDown("eth0"))
			}
		},
		Exchange: func() {
			t.Helper()
			must(t, l.Client.AddAddress("eth0", netip.MustParsePrefix("198.51.100.1/24")))
			_, err := l.Client.Run("ping", "-c", "1", "-W", "5", "198.51.100.254")
			must(t, err)
		},
		Hear: func(system, port string) {
			t.Helper()
			StartLLDP(t, l.Switch, socket, "switch")
			client := socketPath(t)
			StartLLDP(t, l.Client, client, system)
			lldpcli(t, l.Client, client, "configure ports eth0 lldp portidsubtype local "+port, "update")
		},
	}, socket
}

// socketPath is in a folder that lldpd reaches, which is another user by then.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lldp-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "socket")
}

// lldpcli runs commands of lldpd's shell.
func lldpcli(t *testing.T, ns *netns.NS, socket string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		_, err := ns.Run("lldpcli", append([]string{"-u", socket}, strings.Fields(command)...)...)
		must(t, err)
	}
}

// StartLLDP runs lldpd in a namespace until the test ends, which tells neighbors the name of a system.
func StartLLDP(t *testing.T, ns *netns.NS, socket, system string) {
	t.Helper()
	var log netns.Log
	cmd := exec.Command("/usr/sbin/lldpd", "-d", "-u", socket, "-O", socket+".conf") // which is not there
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, ns.Start(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if exec.Command("lldpcli", "-u", socket, "show", "configuration").Run() == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("lldpd does not answer: %s", log.String())
		}
	}
	// Each second: what the other end missed, as it was not listening yet, comes again.
	lldpcli(t, ns, socket, "configure lldp tx-interval 1", "configure system hostname "+system, "update")
}
