package packages

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netns"
)

// started bounds how long a program may take until it says that it is ready.
const started = time.Minute

func unit(t *testing.T, program string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/systemd", program+".service"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func setting(t *testing.T, unit, key string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(unit)
	if found == nil {
		t.Fatalf("no %s in:\n%s", key, unit)
	}
	return found[1]
}

// With what the unit leaves to it, a program loads its data plane, says so, and adopts it when it is back.
func TestUnitsLeaveWhatIsNeeded(t *testing.T) {
	a, b := netns.New(t, "ship-a"), netns.New(t, "ship-b")
	if err := netns.Veth(a, "eth0", b, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := a.AddAddress("eth0", netip.MustParsePrefix("10.99.0.2/24")); err != nil {
		t.Fatal(err)
	}
	capabilities := setting(t, unit(t, "weir-switch"), "CapabilityBoundingSet")
	for range 2 {
		becomesReady(t, a, capabilities, filepath.Join(bin(t), "weir-switch"), []string{
			"--name", "ship", "--manager", "http://127.0.0.1:1", "--data-dir", t.TempDir(), "--metrics-listen", "", "--driver", "linux", "--set-up",
			"--source6", "fd00:99::2", "--vip-prefixes", "203.0.113.0/24", "--as", "65010", "--peer", "address=10.99.0.1,as=65010",
			"--router-id", "10.99.0.9", "--next-hop4", "10.99.0.3",
		})
	}
	// With the drop-in, the stand-in too.
	c, d := netns.New(t, "ship-c"), netns.New(t, "ship-d")
	if err := netns.Veth(c, "eth0", d, "eth0"); err != nil {
		t.Fatal(err)
	}
	dropIn, err := os.ReadFile(filepath.Join(root, "deploy/systemd/weir-switch-xdp.conf"))
	if err != nil {
		t.Fatal(err)
	}
	capabilities += " " + setting(t, string(dropIn), "CapabilityBoundingSet")
	for range 2 {
		becomesReady(t, c, capabilities, filepath.Join(bin(t), "weir-switch"), []string{
			"--name", "ship", "--manager", "http://127.0.0.1:1", "--data-dir", t.TempDir(), "--metrics-listen", "", "--driver", "xdp", "--set-up",
			"--source4", "10.98.0.2", "--vip-prefixes", "203.0.113.0/24", "--as", "65010", "--peer", "address=10.98.0.1,as=65010",
			"--router-id", "10.98.0.9", "--next-hop4", "10.98.0.3",
		})
	}
	for program, flags := range map[string][]string{
		"weir-mux":   {"--interface", "eth0", "--as", "65010", "--peer", "address=10.99.0.1,as=65000"},
		"weir-agent": {"--uplink", "eth0"},
	} {
		t.Run(program, func(t *testing.T) {
			pins := "/sys/fs/bpf/ship-" + program
			unload := func() {
				if out, err := exec.Command(filepath.Join(bin(t), program), "unload", "--pin-path", pins).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
			unload()
			t.Cleanup(unload)
			args := append([]string{"--name", "ship", "--manager", "http://127.0.0.1:1", "--pin-path", pins, "--metrics-listen", ""}, flags...)
			capabilities := setting(t, unit(t, program), "CapabilityBoundingSet")
			for range 2 {
				becomesReady(t, a, capabilities, filepath.Join(bin(t), program), args)
			}
		})
	}
}

// becomesReady starts a program as systemd does, waits for its word, and kills it.
func becomesReady(t *testing.T, ns *netns.NS, capabilities, program string, args []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	bounds := "-all"
	for _, name := range strings.Fields(strings.ToLower(capabilities)) {
		bounds += ",+" + strings.TrimPrefix(name, "cap_")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "setpriv", append([]string{"--no-new-privs", "--inh-caps", "-all", "--bounding-set", bounds, program}, args...)...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); socket.Close() }()
	if err := socket.SetReadDeadline(time.Now().Add(started)); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 64)
	n, err := socket.Read(word)
	cancel()
	<-ended
	if err != nil || string(word[:n]) != "READY=1" {
		t.Errorf("it says %q, %v; with %s it printed:\n%s", word[:n], err, bounds, printed.String())
	}
}

// A restart hands over, a stop ends; a wrong configuration is not tried again and again.
func TestUnitsEndProgramsAsTheyWant(t *testing.T) {
	for _, program := range []string{"weir-mux", "weir-switch"} {
		text := unit(t, program)
		if stop, restart := setting(t, text, "KillSignal"), setting(t, text, "RestartKillSignal"); stop != "SIGTERM" || restart != "SIGUSR2" {
			t.Errorf("%s is stopped by %s and restarted by %s", program, stop, restart)
		}
	}
	for _, program := range []string{"weir-mux", "weir-switch", "weir-agent", "weir-manager"} {
		text := unit(t, program)
		if got := setting(t, text, "RestartPreventExitStatus"); got != "78" {
			t.Errorf("%s: RestartPreventExitStatus is %s", program, got)
		}
		wrong := exec.Command(filepath.Join(bin(t), program), "--config", "/dev/stdin")
		wrong.Stdin = strings.NewReader("no-such-key: 1\n")
		printed, _ := wrong.CombinedOutput()
		if code := wrong.ProcessState.ExitCode(); code != 78 || !strings.Contains(string(printed), "no-such-key") {
			t.Errorf("%s ends with %d: %s", program, code, printed)
		}
		words := strings.Fields(setting(t, text, "ExecStart"))
		if words[0] != "/usr/bin/"+program || words[1] != "--config" {
			t.Errorf("%s is started as %q", program, words)
		}
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=40",
			filepath.Join(root, "deploy/systemd", program+".service")).CombinedOutput()
		if err != nil {
			t.Errorf("%s is more exposed than 4.0: %s", program, out)
		}
	}
}
