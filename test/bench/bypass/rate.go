package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Figure 13: TCP segments of 128 bytes without the header, of which timestamps take 12.
const (
	rateSegment = 128
	ratePayload = rateSegment - 12

	papersServerCores = 10 // to one of the load balancer
)

// measureRate has sides upload in small packets, in turns, and says how many the mux could take if the ends were as fast.
func (w *world) measureRate(ctx context.Context, how options, to *report) error {
	for _, s := range w.sides {
		if err := s.sendPackets(); err != nil {
			return err
		}
	}
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, rateSegment) })
		return errors.Join(failed, err)
	}}
	before, err := w.cost()
	if err != nil {
		return err
	}
	rates, err := takeBulkTurns(ctx, how, w.sides, small)
	if err != nil {
		return fmt.Errorf("measure small packets: %w", err)
	}
	after, err := w.cost()
	if err != nil {
		return err
	}
	const kilo = 1e9 / 8 / ratePayload / 1e3 // packets a second by Gbit/s
	for _, of := range rates {
		for i := range of {
			of[i] *= kilo
		}
	}
	for i, s := range w.sides {
		if s.name != fullNAT {
			continue
		}
		sent := quantile(rates[i], 2) * how.turn.Seconds() * float64(how.turns+1) // the first turn is for warmth
		most := sent / ((after.cpu - before.cpu) / 1e9)
		to.Sides["rate-128-mux-by-its-time-kpps"] = most
		to.Rows = append(to.Rows, row{Name: "rate-128-at-the-papers-cores", Value: papersServerCores * quantile(rates[0], 2) / most})
	}
	to.compare(w.sides, rates, "kpps", map[string]string{device: "rate-128-bypass-to-vxlan-device", fullNAT: "rate-128-bypass-to-full-nat"})
	return nil
}
