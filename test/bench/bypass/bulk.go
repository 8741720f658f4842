package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
)

const bulkChunk = 128 << 10

// measureBulk has both sides upload in turns, with segments of TSO that pass the links whole, and with packets of the MTU
// that the server's host merges.
func (w *world) measureBulk(ctx context.Context, how options, to *report) error {
	for _, rows := range []map[string]string{ // in this order
		{device: "bulk-tso-bypass-to-vxlan-device", fullNAT: "bulk-tso-bypass-to-full-nat"},
		{device: "bulk-mtu-bypass-to-vxlan-device", fullNAT: "bulk-mtu-bypass-to-full-nat"},
	} {
		rates, err := takeBulkTurns(ctx, how, w.sides, net.Dialer{})
		if err != nil {
			return fmt.Errorf("measure bulk: %w", err)
		}
		to.compare(w.sides, rates, "gbit", rows)
		for _, s := range w.sides {
			if err := s.sendPackets(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendPackets has the client send packets of the MTU, and the server's host merge them.
func (s *side) sendPackets() error {
	set := func(ns *netns.NS, o netns.Offload, on bool) error { return ns.SetOffload(netlab.Uplink, o, on) }
	return errors.Join(set(s.client, netns.TSO, false), set(s.client, netns.GSO, false), set(s.uplink, netns.GRO, true))
}

func takeBulkTurns(ctx context.Context, how options, sides []*side, dialer net.Dialer) ([][]float64, error) {
	var uploads []*upload
	for _, s := range sides {
		e, err := s.connectBy(dialer)
		if err != nil {
			return nil, err
		}
		u := &upload{ends: e}
		defer u.close()
		go u.receive()
		uploads = append(uploads, u)
	}
	rates := make([][]float64, len(sides))
	for turn := -1; turn < how.turns && ctx.Err() == nil; turn++ {
		for i, u := range uploads {
			rate, err := u.send(how.turn)
			if err != nil {
				return nil, err
			}
			if turn >= 0 {
				rates[i] = append(rates[i], rate)
			}
		}
	}
	return rates, ctx.Err()
}

// upload is a connection and what has come by it.
type upload struct {
	ends
	sent     uint64
	received atomic.Uint64
	broken   atomic.Bool
}

func (u *upload) receive() {
	data := make([]byte, bulkChunk)
	for {
		n, err := unix.Read(int(u.server.Fd()), data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			u.broken.Store(true)
			return
		}
		u.received.Add(uint64(n))
	}
}

// send sends for a while, and returns Gbit/s until all of it has come.
func (u *upload) send(lasts time.Duration) (float64, error) {
	data, before, began := make([]byte, bulkChunk), u.sent, time.Now()
	for time.Since(began) < lasts {
		n, err := unix.Write(int(u.client.Fd()), data)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		u.sent += uint64(max(n, 0))
	}
	for u.received.Load() < u.sent {
		if u.broken.Load() {
			return 0, errBroken
		}
		runtime.Gosched()
	}
	return float64(u.sent-before) * 8 / float64(time.Since(began).Nanoseconds()), nil
}
