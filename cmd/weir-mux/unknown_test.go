package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unknownType is of frames for experiments (IEEE 802), which no kernel has a handler for.
const unknownType = 0x88b5

// sendUnknown sends frames of an unknown type to the mux.
func (l *lab) sendUnknown(n int) {
	l.t.Helper()
	to, err := l.mux.MAC("eth0")
	must(l.t, err)
	index, err := l.router.Index("to-mux")
	must(l.t, err)
	must(l.t, l.router.Do(func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		address := &unix.SockaddrLinklayer{Ifindex: index, Protocol: unknownType>>8 | unknownType&0xff<<8, Halen: 6}
		copy(address.Addr[:], to)
		for range n {
			if err := unix.Sendto(socket, make([]byte, 50), 0, address); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Frames that nobody wants are no overload, though the kernel counts them as dropped on receipt.
func TestFramesOfUnknownTypesAreNotLost(t *testing.T) {
	l := newLab(t)
	l.manager.Muxes.Set(0, table(5))
	d := l.start()
	eventually(t, "the report says so", func() bool { return l.ready(5) })
	const frames = 1000
	dropped := func() uint64 {
		link, err := l.mux.Netlink().LinkByName("eth0")
		must(t, err)
		return link.Attrs().Statistics.RxDropped
	}
	before := dropped()
	for range 30 {
		time.Sleep(100 * time.Millisecond)
		l.sendUnknown(frames)
	}
	if n := dropped() - before; n < 10*frames {
		t.Fatalf("the kernel counts %d of them as dropped: this shows nothing", n)
	}
	metrics, err := l.mux.Run("curl", "--silent", "--fail", "http://127.0.0.1:7411/metrics")
	must(t, err)
	lost := -1.0
	for line := range strings.Lines(metrics) {
		if value, is := strings.CutPrefix(line, "weir_mux_interface_dropped_packets_total "); is {
			lost, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
			must(t, err)
		}
	}
	if lost < 0 || lost > frames {
		t.Errorf("the mux says that %.0f packets were lost", lost)
	}
	if strings.Contains(d.log.String(), "overload began") {
		t.Error("the mux says that it is overloaded")
	}
}
