package bpf

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// UntrustedIdle is how long a flow of one packet is remembered at most.
const UntrustedIdle = 30 * time.Second

// FlowTick is the unit of time in the flow table: 16 jiffies. The coarse clock moves
// once in a jiffy.
func FlowTick() (time.Duration, error) {
	var jiffy unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &jiffy); err != nil {
		return 0, fmt.Errorf("read the length of a jiffy: %w", err)
	}
	return time.Duration(jiffy.Nano()) << MuxFlowLayoutFLOW_TICK_SHIFT, nil
}

// The clock of datagrams in fragments.
const (
	DatagramTick = 1 << MuxDatagramLayoutDATAGRAM_TICK_SHIFT // ns
	DatagramLong = 1 << 30                                   // ticks: the longest life that one can have
)
