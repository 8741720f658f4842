package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// The paper's load balancer has a machine of its own, of which it uses one core. Here the mux has one of two CPUs, and all
// else the other one: clients, servers, their hosts, the router, the manager, and this process.
const (
	muxCPU  = 0
	restCPU = 1

	muxNode = "mux1"
)

// hosts are all with clients and servers, whatever side's.
var hosts = []string{"chost1", "host1", "plain1", "plain2"}

// placeMux gives the mux its CPU. From then on a thread of the kernel takes what comes to a machine, as if it came from a
// NIC; else who sends a packet has the work of all whom it comes to. So the time of the mux's thread is that of the mux.
func (w *world) placeMux() error {
	mux, err := w.lab.NS(muxNode)
	if err != nil {
		return err
	}
	router, err := w.lab.NS(string(netlab.Router))
	if err != nil {
		return err
	}
	if w.muxThreads, err = mux.ThreadXDP(netlab.Uplink, muxCPU); err != nil {
		return err
	}
	threads, err := router.ThreadXDP(muxNode, restCPU)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		of, err := threadHost(host)
		if err != nil {
			return err
		}
		threads = append(threads, of...)
	}
	for _, thread := range append(threads, w.muxThreads...) {
		if err := benchlab.PutFirst(thread); err != nil {
			return err
		}
	}
	if w.undo, err = benchlab.KeepAwake(); err != nil {
		return err
	}
	if err := pinProcess(os.Getpid(), restCPU); err != nil {
		return err
	}
	names, err := netns.Names("weir-" + labName + "-")
	if err != nil {
		return err
	}
	for _, name := range names {
		cpu := restCPU
		if name == mux.Name() {
			cpu = muxCPU
		}
		if err := pinProcesses(name, cpu); err != nil {
			return err
		}
	}
	return nil
}

// threadHost has threads take what comes to a host. Without GRO a veth that has no XDP program polls nothing.
func threadHost(host string) ([]int, error) {
	ns, err := netns.Open("weir-" + labName + "-" + host)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := ns.SetOffload(netlab.Uplink, netns.GRO, true); err != nil {
		return nil, err
	}
	threads, err := ns.ThreadXDP(netlab.Uplink, restCPU)
	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("no thread takes what comes to %s", host)
	}
	return threads, err
}

func pinProcesses(namespace string, cpu int) error {
	ns, err := netns.Open(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	pids, err := ns.Processes()
	for _, pid := range pids {
		err = errors.Join(err, pinProcess(pid, cpu))
	}
	return err
}

// pinProcess binds all threads that a process has to a CPU. Those that they start are bound, too.
func pinProcess(pid, cpu int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pin process %d to CPU %d: %w", pid, cpu, err)
		}
	}
	return nil
}

// muxTime is what the mux has used of its CPU for packets, in ns, since placeMux (the kernel's sched-stats.rst).
func (w *world) muxTime() (ns float64, err error) {
	for _, thread := range w.muxThreads {
		took, err := benchlab.ThreadTime(thread)
		if err != nil {
			return 0, err
		}
		ns += float64(took.Nanoseconds())
	}
	return ns, nil
}
