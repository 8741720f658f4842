package bpf

import (
	"fmt"
	"math/bits"
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

// mostEpoch is how long a flow that was found in the flow table is not looked up again at most. Two minutes, the idle
// timeout of UDP, have 14 such epochs.
const mostEpoch = (1 << 13) * time.Millisecond

// FlowEpochShift is the largest power of two of ticks that an epoch of the filter in front of the flow table has room for.
func FlowEpochShift(tick time.Duration) uint32 {
	return uint32(max(bits.Len64(uint64(mostEpoch/tick)), 1) - 1)
}

// The clock of datagrams in fragments.
const (
	DatagramTick = 1 << MuxDatagramLayoutDATAGRAM_TICK_SHIFT // ns
	DatagramLong = 1 << 30                                   // ticks: the longest life that one can have
)
