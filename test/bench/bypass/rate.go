package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Figure 13: TCP segments of 128 bytes without the header, of which timestamps take 12. The mux has a CPU of its own.
const (
	rateSegment = 128
	ratePayload = rateSegment - 12
	rateCPU     = 0
)

// measureRate has sides upload in small packets, in turns. It comes behind measureBulk, which has clients send packets.
func (w *world) measureRate(ctx context.Context, how options, to *report) error {
	mux, err := w.lab.NS("mux1")
	if err != nil {
		return err
	}
	if err := mux.ThreadXDP(netlab.Uplink, rateCPU); err != nil {
		return err
	}
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, rateSegment) })
		return errors.Join(failed, err)
	}}
	rates, err := takeBulkTurns(ctx, how, w.sides, small)
	if err != nil {
		return fmt.Errorf("measure small packets: %w", err)
	}
	const kilo = 1e9 / 8 / ratePayload / 1e3 // packets a second by Gbit/s
	for _, of := range rates {
		for i := range of {
			of[i] *= kilo
		}
	}
	to.compare(w.sides, rates, "kpps", map[string]string{device: "rate-128-bypass-to-vxlan-device", fullNAT: "rate-128-bypass-to-full-nat"})
	return nil
}
