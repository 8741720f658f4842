package benchlab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How long a guest's CPU polls before it halts (the kernel's guest-halt-polling.rst). To wake one that has halted took 25 µs
// where this was measured, which only packets would pay that come to another CPU.
const (
	haltPoll   = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"
	haltPollNS = "10000000"
)

// KeepAwake has idle CPUs poll, if they are a guest's, until it is undone.
func KeepAwake() (undo func() error, err error) {
	before, err := os.ReadFile(haltPoll)
	if errors.Is(err, os.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(haltPoll, before, 0) }, os.WriteFile(haltPoll, []byte(haltPollNS), 0)
}

// PutFirst has a thread of the kernel run before all programs, those that measure with it, as a softirq does.
func PutFirst(thread int) error {
	fifo := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 2}
	if err := unix.SchedSetAttr(thread, fifo, 0); err != nil {
		return fmt.Errorf("have thread %d run first: %w", thread, err)
	}
	return nil
}

// ThreadTime is what a thread has used of its CPU (the kernel's sched-stats.rst).
func ThreadTime(thread int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", thread))
	if err != nil {
		return 0, err
	}
	ran, _, _ := strings.Cut(string(text), " ")
	took, err := strconv.ParseInt(ran, 10, 64)
	return time.Duration(took), err
}
