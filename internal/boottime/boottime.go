// Package boottime is a clock that also goes while the machine sleeps, and that nobody sets: for leases that others have.
package boottime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Since is CLOCK_BOOTTIME: the time since the machine started.
func Since() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // Linux has had it since 2.6.39
	}
	return time.Duration(now.Nano())
}

// Now is Since as a time, to be compared with others of Now only. Unlike time.Now it has no reading of CLOCK_MONOTONIC,
// which stands still while the machine sleeps.
func Now() time.Time { return time.Unix(0, int64(Since())) }
