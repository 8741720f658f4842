package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// world is a manager with TLS on loopback, and its admin.
type world struct {
	dir, address string
	command      *exec.Cmd
	crowd        *crowd
	admin        *rpc.Client
	applied      int
}

func newWorld(ctx context.Context, binary string) (w *world, err error) {
	w = &world{}
	if w.dir, err = os.MkdirTemp("", "weir-bench-strangers-"); err != nil {
		return w, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return w, err
	}
	w.address = ports[0]
	data := filepath.Join(w.dir, "data")
	w.command = exec.Command(binary, "--listen", w.address, "--metrics-listen", ports[1], "--data-dir", data, "--log-level", "error") //nolint:noctx // it is ended by close
	w.command.Stderr = os.Stderr
	runtime.LockOSThread() // the manager ends with the thread that started it, and so does the crowd
	w.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if w.crowd, err = newCrowd(); err != nil {
		return w, err
	}
	if err := w.command.Start(); err != nil {
		return w, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err = w.connect(ctx, data); err == nil || time.Now().After(deadline) {
			return w, err
		}
	}
}

// freePorts are addresses of loopback that nobody listens at.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens on loopback for an instant
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// connect makes the admin's client as soon as the manager has written its configuration, and answers.
func (w *world) connect(ctx context.Context, data string) error {
	access, err := rpc.ReadConfig(pki.AdminFile(data))
	if err != nil {
		return err
	}
	if w.admin, err = access.Client(); err != nil {
		return err
	}
	return w.apply(ctx)
}

// apply has the admin move a VIP's port.
func (w *world) apply(ctx context.Context) error {
	w.applied++
	_, err := w.admin.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{
		Name: "web", Address: "172.16.0.1",
		Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: uint32(1 + w.applied%60000)}},
	}}})
	return err
}

func (w *world) close() {
	if w.admin != nil {
		w.admin.Close()
	}
	if w.crowd != nil {
		w.crowd.close()
	}
	if w.command != nil && w.command.Process != nil {
		w.command.Process.Kill() //nolint:errcheck // it may have ended
		w.command.Wait()         //nolint:errcheck // it was killed
	}
	os.RemoveAll(w.dir)
}

func (w *world) proc(file string) string {
	return filepath.Join("/proc", strconv.Itoa(w.command.Process.Pid), file)
}

// cpu is the CPU time that the manager has taken.
func (w *world) cpu() (time.Duration, error) { return benchlab.ProcessTime(w.command.Process.Pid) }

// memory is a line of the manager's status, in bytes.
func (w *world) memory(name string) (int, error) {
	text, err := os.ReadFile(w.proc("status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the status of the manager has no %s", name)
}

// forgetPeak has VmHWM begin at what is resident now.
func (w *world) forgetPeak() error { return os.WriteFile(w.proc("clear_refs"), []byte("5"), 0) }
