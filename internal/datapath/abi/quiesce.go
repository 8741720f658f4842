package abi

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL

// Quiesce returns once every packet that is being handled now is done: the kernel's
// MEMBARRIER_CMD_GLOBAL waits for an RCU grace period, and XDP programs run inside RCU.
func Quiesce() error {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	if errno == unix.EINVAL { // not with nohz_full; no packet takes nearly as long
		time.Sleep(time.Second)
		return nil
	}
	if errno != 0 {
		return fmt.Errorf("wait for packets in flight: %w", errno)
	}
	return nil
}
