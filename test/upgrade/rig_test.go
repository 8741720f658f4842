// Package upgrade takes an installation of the previous release to this one while traffic flows. It needs root, the
// built programs in WEIR_BIN (or in bin), and the whole history: it builds the previous release from its commit.
package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/logs"
	"github.com/weirlb/weir/internal/lab/netns"
)

const (
	root = "../.."
	// previous is the release before this one. It is moved on with each release.
	previous = "bf9f052b71dc6571aa99a3adb3fa18e139950a2c"
	// previousFRR is the newest major version of FRR that the previous release's lab starts.
	previousFRR = 9
	labName     = "upg"
	vip         = "203.0.113.10"
	bound       = time.Minute // of everything that is waited for
	insecure    = "--insecure"
)

// rig is an installation: a lab that the previous release built and runs.
type rig struct {
	t        *testing.T
	old, new string   // folders of programs
	access   []string // flags of the command line; none: as the lab has it
}

func newRig(t *testing.T) *rig {
	t.Helper()
	major, minor, err := frr.Version()
	if err != nil {
		t.Fatal(err)
	}
	if major > previousFRR {
		t.Skipf("the previous release's lab knows FRR up to %d, here is %d.%d", previousFRR, major, minor)
	}
	r := &rig{t: t, new: os.Getenv("WEIR_BIN")}
	if r.new == "" {
		var err error
		if r.new, err = filepath.Abs(filepath.Join(root, "bin")); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/previous.sh"), previous)
	var log bytes.Buffer
	build.Stderr = &log
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build the previous release: %v\n%s", err, log.String())
	}
	r.old = strings.TrimSpace(string(out))
	r.weir(r.old, "lab", "down", "--name", labName)
	t.Cleanup(func() { r.weir(r.old, "lab", "down", "--name", labName) })
	r.weir(r.old, "lab", "up", "--name", labName, "--muxes", "2", "--hosts", "2", "--workloads", "1")
	return r
}

// weir runs a release's command line, which must succeed.
func (r *rig) weir(bin string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "weir"), args...)
	cmd.WaitDelay = time.Minute // what it leaves behind may have its output
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// operate runs a release's command line where the manager is.
func (r *rig) operate(bin string, args ...string) string {
	r.t.Helper()
	return r.weir(r.old, r.atManager(bin, args...)...)
}

// atManager are the arguments by which the lab runs a release's command line where the manager is.
func (r *rig) atManager(bin string, args ...string) []string {
	return slices.Concat([]string{"lab", "exec", "--name", labName, "manager", filepath.Join(bin, "weir")}, r.access, args)
}

// try is operate for what may fail yet.
func (r *rig) try(bin string, args ...string) error {
	out, err := exec.Command(filepath.Join(r.old, "weir"), r.atManager(bin, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (r *rig) space(node string) *netns.NS {
	r.t.Helper()
	ns, err := netns.Open("weir-" + labName + "-" + node)
	if err != nil {
		r.t.Fatal(err)
	}
	return ns
}

// replace ends a program of one release on a node, by the signal, and starts that of another with the same arguments
// and more, as a package does.
func (r *rig) replace(node, program, bin string, signal syscall.Signal, more ...string) {
	r.t.Helper()
	ns := r.space(node)
	pids, err := ns.Processes()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, pid := range pids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if err != nil || filepath.Base(args[0]) != program {
			continue
		}
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			r.t.Fatal(err)
		}
		if err := syscall.Kill(pid, signal); err != nil {
			r.t.Fatal(err)
		}
		r.wait(program+" of "+node+" ends", func() error {
			if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil && !zombie(pid) {
				return errors.New("it runs on")
			}
			return nil
		})
		args = slices.DeleteFunc(args, func(a string) bool { return a == insecure })
		log, err := os.OpenFile(r.log(node, program), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			r.t.Fatal(err)
		}
		defer log.Close()
		cmd := exec.Command(filepath.Join(bin, program), append(args[1:], more...)...)
		cmd.Env = strings.Split(strings.TrimRight(string(environment), "\x00"), "\x00")
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := ns.Start(cmd); err != nil {
			r.t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }()
		return
	}
	r.t.Fatalf("no %s runs on %s", program, node)
}

// dataDir is a node's in the lab: not this machine's own.
func dataDir(node string) string { return filepath.Join("/run/weir-lab", labName, node) }

func (r *rig) log(node, program string) string {
	return filepath.Join("/run/weir-lab", labName, "log", node+"-"+program+"-upgrade.log")
}

// logs are what programs that were replaced wrote beside the usual, for the report of a failure.
func (r *rig) logs() string {
	var all strings.Builder
	paths, _ := filepath.Glob(r.log("*", "*"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		if unusual := logs.Unusual(string(text)); unusual != "" {
			fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(path), unusual)
		}
	}
	return all.String()
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func (r *rig) wait(what string, done func() error) {
	r.t.Helper()
	var err error
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = done(); err == nil {
			return
		}
	}
	r.t.Fatalf("%s: %v\n%s", what, err, r.logs())
}

// traffic calls the VIP from the client all the time: over one connection that must last, and over new ones.
type traffic struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	calls  atomic.Int64

	mu       sync.Mutex
	problems []string
}

func (r *rig) traffic() *traffic {
	tr := &traffic{}
	tr.ctx, tr.cancel = context.WithCancel(r.t.Context())
	client := r.space("client1")
	var dials atomic.Int64
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = client.Do(func() error {
			c, err = (&net.Dialer{Timeout: 20 * time.Second}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	lasting := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			return nil, errors.New("the connection that must last was lost")
		}
		return dial(ctx, network, address)
	}}}
	fresh := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for _, c := range []*http.Client{lasting, fresh} {
		tr.done.Go(func() { tr.call(c) })
	}
	return tr
}

func (tr *traffic) call(client *http.Client) {
	for tr.ctx.Err() == nil {
		answer, err := client.Get("http://" + vip + "/")
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		if err != nil && tr.ctx.Err() == nil {
			tr.mu.Lock()
			tr.problems = append(tr.problems, time.Now().Format("15:04:05.000 ")+err.Error())
			tr.mu.Unlock()
			if strings.Contains(err.Error(), "must last") {
				return
			}
		}
		tr.calls.Add(1)
		time.Sleep(20 * time.Millisecond)
	}
}

// more waits for calls after this moment, so that something went through what is there now.
func (tr *traffic) more(r *rig) {
	r.t.Helper()
	want := tr.calls.Load() + 20
	r.wait("calls go on", func() error {
		if n := tr.calls.Load(); n < want {
			return fmt.Errorf("%d of %d calls", n, want)
		}
		return nil
	})
}

func (tr *traffic) end(t *testing.T) {
	t.Helper()
	tr.cancel()
	tr.done.Wait()
	for _, p := range tr.problems {
		t.Error(p)
	}
	t.Logf("%d calls", tr.calls.Load())
}
