package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/agentd"
	"github.com/weirlb/weir/internal/lab/netns"
)

// asProgram has the test binary be weir-agent itself. Every process that a test starts inherits it.
const asProgram = "WEIR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func program(args ...string) *exec.Cmd { return exec.Command(os.Args[0], args...) }

// host is a machine with a container behind a veth, as weir-agent sees it:
//
//	router ──────── uplink  host  c1 ──────── eth0 container
//	  10.2.1.254    10.2.1.1                  10.3.1.11
type host struct {
	t                 *testing.T
	*netns.NS         // of the host
	container, router *netns.NS
	pins, data        string
	agent             *exec.Cmd
	log               bytes.Buffer
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{
		t: t, NS: netns.New(t, "wag-host"), container: netns.New(t, "wag-c1"), router: netns.New(t, "wag-router"),
		pins: fmt.Sprintf("/sys/fs/bpf/weir-agent-test-%d", os.Getpid()), data: t.TempDir(),
	}
	h.must(netns.Veth(h.NS, "uplink", h.router, "eth0"))
	h.must(h.AddAddress("uplink", netip.MustParsePrefix("10.2.1.1/24")))
	h.must(h.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.2.1.254")))
	h.plug()
	t.Cleanup(func() {
		h.kill()
		if out, err := program("unload", "--pin-path", h.pins).CombinedOutput(); err != nil {
			t.Errorf("unload: %v: %s", err, out)
		}
		if t.Failed() {
			t.Logf("log of weir-agent:\n%s", h.log.String())
		}
	})
	return h
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// plug connects the container.
func (h *host) plug() {
	h.t.Helper()
	h.must(netns.Veth(h.NS, "c1", h.container, "eth0"))
	h.must(h.AddLinkRoute(netip.MustParsePrefix("10.3.1.11/32"), "c1"))
	h.must(h.container.AddAddress("eth0", netip.MustParsePrefix("10.3.1.11/32")))
	h.must(h.container.AddLinkRoute(netip.MustParsePrefix("0.0.0.0/0"), "eth0"))
}

// start runs weir-agent, which an earlier kill may have ended, with more flags.
func (h *host) start(more ...string) {
	h.t.Helper()
	h.agent = program(append([]string{
		"--name", "host1", "--manager", "http://127.0.0.1:7400", "--uplink", "uplink", "--pin-path", h.pins, "--data-dir", h.data,
	}, more...)...)
	h.agent.Stdout, h.agent.Stderr = &h.log, &h.log
	h.must(h.Start(h.agent))
}

// kill ends weir-agent as a crash would.
func (h *host) kill() {
	if h.agent != nil {
		_ = h.agent.Process.Kill()
		_ = h.agent.Wait()
		h.agent = nil
	}
}

// status is what weir-agent status prints.
func (h *host) status() (s agentd.Status, err error) {
	out, err := h.Run(os.Args[0], "status", "-o", "json", "--pin-path", h.pins)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// awaitBackends polls the status until its backends are as wanted, one line.
func (h *host) awaitBackends(want string) {
	h.t.Helper()
	var got string
	h.eventually("backends "+want, func() bool {
		s, err := h.status()
		if err != nil {
			return false
		}
		var lines []string
		for _, b := range s.Backends {
			lines = append(lines, fmt.Sprintf("%s by %s is %s at %s", b.Endpoint, b.Tunnel, b.Backend, b.Workload))
		}
		got = strings.Join(lines, ", ")
		return got == want
	}, &got)
}

func (h *host) eventually(what string, condition func() bool, last *string) {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	h.t.Fatalf("waited in vain for %s; last was %q", what, *last)
}

// serve answers HTTP in the container until the returned function is called.
func (h *host) serve() (stop func()) {
	h.t.Helper()
	var listener net.Listener
	h.must(h.container.Do(func() (err error) {
		listener, err = net.Listen("tcp", "10.3.1.11:8080")
		return err
	}))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	stop = func() { server.Close(); <-done }
	h.t.Cleanup(stop)
	return stop
}

const onC1 = "TCP 203.0.113.10:80 by 10.3.1.11 is 10.3.1.11:8080 at c1"

// The backend's health follows its server, and its place follows its container.
func TestHealthAndPlaceOfAWorkload(t *testing.T) {
	h := newHost(t)
	m := startManager(t, h.NS, t.TempDir())
	defer m.stop()
	h.start()
	m.apply("http")
	m.await("unhealthy: connect 10.3.1.11:8080: connection refused")
	stop := h.serve()
	m.await("healthy")
	h.awaitBackends(onC1)
	stop()
	m.await("unhealthy: connect 10.3.1.11:8080: connection refused")

	h.must(h.DeleteLink("c1"))
	h.awaitBackends("TCP 203.0.113.10:80 by 10.3.1.11 is 10.3.1.11:8080 at missing")
	m.awaitWarning("backend 10.3.1.11 is not on this host: its route leaves by the uplink")
	h.plug()
	h.awaitBackends(onC1)
	h.serve()
	m.await("healthy")
}

// An uplink that is removed and made anew gets its programs back.
func TestUplinkMadeAnew(t *testing.T) {
	h := newHost(t)
	h.serve()
	m := startManager(t, h.NS, t.TempDir())
	defer m.stop()
	h.start()
	m.apply("tcp")
	m.await("healthy")
	h.must(h.DeleteLink("uplink"))
	m.awaitWarning(`can't follow the host's interfaces, retrying: find uplink "uplink": route ip+net: no such network interface`)
	h.must(netns.Veth(h.NS, "uplink", h.router, "eth0"))
	h.must(h.SetMTU("uplink", 1400))
	h.must(h.AddAddress("uplink", netip.MustParsePrefix("10.2.1.1/24")))
	m.awaitWarning("")
	var last string
	h.eventually("the new uplink", func() bool {
		s, err := h.status()
		last = fmt.Sprint(s.Uplink, s.MTU, err)
		return err == nil && s.Uplink == "uplink" && s.MTU == 1400
	}, &last)
	index, err := h.Index("uplink")
	h.must(err)
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		h.must(h.Do(func() error {
			programs, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
			if err == nil && len(programs.Programs) != 1 {
				err = fmt.Errorf("%d programs run at %s of the new uplink", len(programs.Programs), at)
			}
			return err
		}))
	}
}

// A crash, a restart and a manager that is away change nothing of what the data plane holds.
func TestRestartAdoptsWhatRuns(t *testing.T) {
	h := newHost(t)
	h.serve()
	data := t.TempDir()
	m := startManager(t, h.NS, data)
	h.start()
	m.apply("tcp")
	m.await("healthy")
	h.awaitBackends(onC1)
	before, err := h.status()
	h.must(err)

	h.kill()
	h.awaitBackends(onC1)
	m.stop()
	h.start()
	h.must(h.DeleteLink("c1")) // the container moves while the manager is away
	h.awaitBackends("TCP 203.0.113.10:80 by 10.3.1.11 is 10.3.1.11:8080 at missing")
	h.plug()
	h.awaitBackends(onC1)
	after, err := h.status()
	h.must(err)
	if after.Generation != before.Generation || after.Generation == 0 {
		t.Errorf("generation is %d, was %d", after.Generation, before.Generation)
	}

	m = startManager(t, h.NS, data)
	defer m.stop()
	m.await("healthy")
	m.remove()
	h.awaitBackends("")

	out, err := program("unload", "--pin-path", h.pins).CombinedOutput()
	if err == nil || !strings.HasSuffix(string(out), "is in use by another process: stop weir-agent first\n") {
		t.Errorf("unload of a running agent: %v: %s", err, out)
	}
	h.must(h.agent.Process.Signal(syscall.SIGTERM))
	h.must(h.agent.Wait())
	h.agent = nil
	if _, err := h.status(); err != nil {
		t.Errorf("after a clean stop the data plane is gone: %v", err)
	}
	h.must(program("unload", "--pin-path", h.pins).Run())
	if _, err := h.status(); err == nil || !strings.Contains(err.Error(), "no data plane is loaded") {
		t.Errorf("status after unload: %v", err)
	}
}

// publicCopy is the program where any user may run it.
func publicCopy(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, filepath.Dir(folder)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(folder, "weir-agent")
	if err := os.WriteFile(binary, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return binary
}

// Whatever is wrong at the start is told in one line that says what to do.
func TestMistakesAreToldInOneLine(t *testing.T) {
	ns := netns.New(t, "wag-bare")
	binary := publicCopy(t)
	for _, c := range []struct {
		name, args, want string
		nobody           bool
	}{
		{"no uplink", "", "read --uplink: is missing: name the interface that the muxes' packets arrive on", false},
		{"unknown uplink", "--uplink eth9", "read --uplink: interface eth9 not found; this machine has: lo", false},
		{"no address", "--uplink lo", "read --uplink: lo has no routable address: give it one", false},
		{"name", "--uplink lo --name A_B", `read --name: must be a DNS label (lower-case letters, digits and -), is "A_B"`, false},
		{"timeout", "--uplink lo --snat-udp-timeout 0s", "read the timeouts: must be positive", false},
		{"cookie tick", "--uplink lo --cookie-tick 16ms", "unknown flag: --cookie-tick", false},
		{"native prefix", "--uplink lo --native-prefixes 10.3.0.0/16,10.4.0.1", `read --native-prefixes: must be prefixes such as 10.3.1.0/24, has "10.4.0.1"`, false},
		{"log level", "--uplink lo --log-level loud", `read --log-level: must be debug, info, warn or error, is "loud"`, false},
		{"format", "status -o xml", `read -o: must be table or json, is "xml"`, false},
		{"not loaded", "status", `inspect /sys/fs/bpf/weir-agent: no data plane is loaded: start weir-agent, or name another --pin-path`, false},
		{"argument", "stauts", `unknown command "stauts" for "weir-agent"`, false},
		{"not root", "--uplink lo", "must run as root, to load and read eBPF programs: use sudo", true},
		{"status, not root", "status", "must run as root, to load and read eBPF programs: use sudo", true},
		{"unload, not root", "unload", "must run as root, to load and read eBPF programs: use sudo", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary, strings.Fields(c.args)...)
			if c.nobody {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := ns.Start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it succeeded")
			}
			if got, want := out.String(), "weir-agent: "+c.want+"\n"; got != want {
				t.Errorf("said %q, want %q", got, want)
			}
		})
	}
}
