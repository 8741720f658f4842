package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PassXDP attaches an XDP program to an interface that passes everything to the kernel. What a
// program at the other end of a veth sends back by XDP_TX waits for ever in the ring between them
// unless this end has a program too: the kernel wakes no other (veth_xdp_flush in drivers/net/veth.c).
// It stays until the interface goes.
func (ns *NS) PassXDP(name string) error {
	const pass = 2 // XDP_PASS
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load the program for %s in namespace %s: %w", name, ns.name, err)
	}
	defer program.Close()
	return ns.change(name, "attach a program to", func(link netlink.Link) error {
		return ns.Do(func() error { return netlink.LinkSetXdpFd(link, program.FD()) })
	})
}

// DetachXDP removes the XDP program of an interface, if it has one.
func (ns *NS) DetachXDP(name string) error {
	return ns.change(name, "detach the program of", func(link netlink.Link) error {
		return ns.Do(func() error { return netlink.LinkSetXdpFd(link, -1) })
	})
}

// ThreadXDP has a kernel thread take what comes to an interface with an XDP program, on one CPU. Whoever sends from another
// one does not wait for it: what a program there redirects, and does not fit into the ring between them, is lost, and counted
// at this interface as dropped, as by a NIC. Threads are the kernel's ids of those that are new.
func (ns *NS) ThreadXDP(name string, cpu int) (threads []int, err error) {
	before, err := pollers(name)
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error { // on a thread that dies, with its own view of /sys
		for _, step := range []func() error{
			func() error { return unix.Unshare(unix.CLONE_NEWNS) },
			func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
			func() error { return unix.Mount("sysfs", "/sys", "sysfs", 0, "") },
			func() error { return os.WriteFile("/sys/class/net/"+name+"/threaded", []byte("1"), 0) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("have a thread poll %s in namespace %s: %w", name, ns.name, err)
	}
	after, err := pollers(name)
	if err != nil {
		return nil, err
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, pid := range after {
		if slices.Contains(before, pid) {
			continue
		}
		if err := unix.SchedSetaffinity(pid, &set); err != nil {
			return nil, fmt.Errorf("bind the thread that polls %s in namespace %s to CPU %d: %w", name, ns.name, cpu, err)
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, pid, -20); err != nil { // softirqs wait for no program either
			return nil, fmt.Errorf("put the thread that polls %s in namespace %s first: %w", name, ns.name, err)
		}
		threads = append(threads, pid)
	}
	return threads, nil
}

// pollers are the kernel's threads that poll interfaces of the name, whatever their namespace.
func pollers(name string) (pids []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(text), "napi/"+name+"-") {
			continue // another, or ended meanwhile
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
