package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts cmd inside the namespace. In a namespace made by New the process is killed when this
// process ends; in another that is so if the command asks for a Pdeathsig.
func (ns *NS) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if ns.tied && cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	run := ns.Do
	if cmd.SysProcAttr.Pdeathsig != 0 {
		// The signal comes when the thread dies that started the process, not the process.
		run = ns.livingThread().do
	}
	if err := run(cmd.Start); err != nil {
		return fmt.Errorf("start %s in namespace %s: %w", cmd.Path, ns.name, err)
	}
	return nil
}

func (ns *NS) livingThread() *thread {
	ns.starting.Lock()
	defer ns.starting.Unlock()
	if ns.starter == nil {
		ns.starter = ns.newThread()
	}
	return ns.starter
}

// Run runs a program inside the namespace to its end; output is what it wrote to both outputs.
func (ns *NS) Run(name string, args ...string) (output string, err error) {
	var out []byte
	err = ns.Do(func() error {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		return string(out), fmt.Errorf("run %s in namespace %s: %w: %s", name, ns.name, err, out)
	}
	return string(out), nil
}

// Processes lists the ids of the processes in the namespace, this process left out.
func (ns *NS) Processes() ([]int, error) { return processes(ns.Path()) }

func processes(path string) ([]int, error) {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); err != nil {
		return nil, fmt.Errorf("list processes in %s: %w", path, err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, file := range files {
		var got unix.Stat_t
		if unix.Stat(file, &got) != nil || got.Dev != want.Dev || got.Ino != want.Ino {
			continue // another namespace, or ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
		if err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Bound on how long a killed process takes to be gone.
const grace = 5 * time.Second

// killAll kills the processes in the namespace until there are none.
func killAll(path string) error {
	for end := time.Now().Add(grace); ; time.Sleep(5 * time.Millisecond) {
		pids, err := processes(path)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v do not end", pids)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
	}
}
