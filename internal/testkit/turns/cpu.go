package turns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Pin binds the calling thread to a CPU.
func Pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	return nil
}

// TakeCPU binds the calling thread to a CPU and asks for real-time scheduling, so that nothing else of this machine
// runs there while the thread does.
func TakeCPU(cpu int) error {
	if err := Pin(cpu); err != nil {
		return err
	}
	fifo := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, fifo, 0); err != nil {
		return fmt.Errorf("ask for real-time scheduling: %w", err)
	}
	return nil
}
