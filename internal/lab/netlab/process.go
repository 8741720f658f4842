package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/clock"
)

// Process is a program that the lab started on a node and keeps note of.
type Process struct {
	Node string   `json:"node"`
	Name string   `json:"name"` // of the program
	Args []string `json:"args"` // the program's path first
	PID  int      `json:"pid"`
	// Started is when, in the kernel's ticks since boot: with the id it names a process for ever.
	Started uint64 `json:"started"`

	done chan struct{} // closed when it was waited for; nil if another process started it
}

// Start starts a program on a node; its output goes to the log <node>.<program>.log. A relative name
// without a slash is looked for in the folder with Weir's programs, then in PATH.
func (l *programs) Start(node, program string, args ...string) (*Process, error) {
	path := l.Find(program)
	return l.start(node, append([]string{path}, args...))
}

// Find is the path of one of Weir's programs, or the name unchanged.
func (l *programs) Find(program string) string {
	ours := filepath.Join(l.bin, program)
	if _, err := os.Stat(ours); err == nil {
		return ours
	}
	return program
}

func (l *programs) start(node string, argv []string) (*Process, error) {
	ns, err := l.NS(node)
	if err != nil {
		return nil, err
	}
	p := &Process{Node: node, Name: filepath.Base(argv[0]), Args: argv, done: make(chan struct{})}
	log, err := os.OpenFile(l.logFile(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = l.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the lab, not for its nodes
	if l.tied {
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	if err := ns.Start(cmd); err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	p.Started, _, err = stat(p.PID)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended stands in its log; reap joins this
	}()
	l.processesMu.Lock()
	l.processes = append(slices.DeleteFunc(l.processes, p.succeeds), p)
	l.processesMu.Unlock()
	return p, l.save()
}

// succeeds tells whether p is started again in the place of one that has ended, perhaps with more
// arguments.
func (p *Process) succeeds(old *Process) bool {
	return old.Node == p.Node && len(old.Args) <= len(p.Args) && slices.Equal(old.Args, p.Args[:len(old.Args)]) &&
		!old.Running()
}

func (l *programs) logFile(p *Process) string {
	return filepath.Join(l.LogDir(), p.Node+"."+p.Name+".log")
}

// Log is what a node's program wrote so far.
func (l *programs) Log(node, program string) string {
	data, err := os.ReadFile(l.logFile(&Process{Node: node, Name: program}))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Process finds the program that was started last on a node under this name.
func (l *programs) Process(node, program string) (*Process, error) {
	l.processesMu.Lock()
	defer l.processesMu.Unlock()
	for i := len(l.processes) - 1; i >= 0; i-- {
		if p := l.processes[i]; p.Node == node && p.Name == program {
			return p, nil
		}
	}
	return nil, fmt.Errorf("lab %s: no %s was started on %s", l.Name, program, node)
}

// Processes lists the programs that were started on a node and still run.
func (l *programs) Processes(node string) []*Process {
	l.processesMu.Lock()
	defer l.processesMu.Unlock()
	var running []*Process
	for _, p := range l.processes {
		if p.Node == node && p.Running() {
			running = append(running, p)
		}
	}
	return running
}

// Restart starts a program again that has ended, with the arguments that it had, and more.
func (l *programs) Restart(node, program string, more ...string) (*Process, error) {
	p, err := l.Process(node, program)
	if err != nil {
		return nil, err
	}
	if p.Running() {
		return nil, fmt.Errorf("restart %s on %s: it still runs", program, node)
	}
	return l.start(node, slices.Concat(p.Args, more))
}

// Running tells whether the process has not ended.
func (p *Process) Running() bool {
	started, state, err := stat(p.PID)
	return err == nil && started == p.Started && state != 'Z'
}

// Signal sends a signal. It is no error if the process has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := unix.Kill(p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to %s on %s: %w", signal, p.Name, p.Node, err)
	}
	return nil
}

// Stop sends a signal and waits until the process has ended.
func (p *Process) Stop(signal syscall.Signal, bound time.Duration) error {
	if err := p.Signal(signal); err != nil {
		return err
	}
	for end := time.Now().Add(bound); p.Running(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("stop %s on %s: still runs %v after %v", p.Name, p.Node, bound, signal)
		}
	}
	p.reap()
	return nil
}

// StepClock steps the time of day that all programs on a node have: a program that is started later has the machine's again.
func (l *programs) StepClock(node string, by time.Duration) error {
	for _, p := range l.Processes(node) {
		if err := clock.Step(p.PID, by); err != nil {
			return fmt.Errorf("%s on %s: %w", p.Name, node, err)
		}
	}
	return nil
}

// reap joins the goroutine that waits for the process.
func (p *Process) reap() {
	if p.done != nil {
		<-p.done
	}
}

// stat reads when a process started and its state (proc(5)).
func stat(pid int) (started uint64, state byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	// The name stands in brackets and may hold anything; the state is field 3, the start 22.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	const startField = 22 - 3
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("read process %d: stat is too short", pid)
	}
	started, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	return started, fields[0][0], nil
}
