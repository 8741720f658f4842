package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// line is what a path does to the packets of one direction and one port of the VIP, in their order.
type line struct {
	delay  time.Duration
	loss   float64       // of packets, each alone
	rate   float64       // bit/s
	room   time.Duration // how long packets may wait for others
	random *rand.Rand

	free time.Time // when what was taken is sent
}

// What becomes of a packet.
type fate int

const (
	sent fate = iota
	lost      // by loss
	full      // for want of room
)

// take says whether a packet leaves at the other end, and when.
func (l *line) take(now time.Time, bytes int) (time.Time, fate) {
	if l.random.Float64() < l.loss {
		return time.Time{}, lost
	}
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now) > l.room {
		return time.Time{}, full
	}
	l.free = l.free.Add(time.Duration(float64(8*bytes) / l.rate * float64(time.Second)))
	return l.free.Add(l.delay), sent
}

// parcel is a packet under way.
type parcel struct {
	at   time.Time
	data []byte
}

const (
	underWay  = 4096 // packets of a line at most
	largest   = 1500
	tcpNumber = unix.IPPROTO_TCP
)

// lane is a line at work.
type lane struct {
	line
	parcels chan parcel
	fates   [full + 1]atomic.Uint64
}

// relay moves packets between two TUN interfaces of the same name, one of each namespace, by the lines of their ports.
type relay struct {
	near, far *os.File
	running   sync.WaitGroup
	lanes     [2]map[uint16]*lane // to the far end, and back; not changed while it runs
}

// openTUN makes a TUN interface in a namespace. Without offloads the kernel gives it packets as they are on a wire.
func openTUN(ns *netns.NS, name string) (file *os.File, err error) {
	err = ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return errors.Join(fmt.Errorf("make TUN %s: %w", name, err), unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return file, ns.SetUp(name)
}

// startRelay relays between interfaces until it is closed, TCP of IPv4 alone.
func startRelay(near, far *os.File, lines [2]map[uint16]line) *relay {
	r := &relay{near: near, far: far}
	ends := [2]*os.File{near, far}
	for direction := range ends {
		r.lanes[direction] = map[uint16]*lane{}
		for port, l := range lines[direction] {
			lane := &lane{line: l, parcels: make(chan parcel, underWay)}
			r.lanes[direction][port] = lane
			r.running.Go(func() { send(lane, ends[1-direction]) })
		}
	}
	for direction, from := range ends {
		r.running.Go(func() { r.receive(from, direction) })
	}
	return r
}

// receive ends when the interface's deadline has passed.
func (r *relay) receive(from *os.File, direction int) {
	buffer := make([]byte, largest)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			break
		}
		if lane := r.laneOf(buffer[:n], direction); lane != nil {
			lane.put(buffer[:n])
		}
	}
	for _, lane := range r.lanes[direction] {
		close(lane.parcels)
	}
}

// laneOf is that of the VIP's port: where the packet goes, or comes from.
func (r *relay) laneOf(p []byte, direction int) *lane {
	if len(p) < 40 || p[0]>>4 != 4 || p[9] != tcpNumber {
		return nil
	}
	at := int(p[0]&15) * 4
	if direction == 0 {
		at += 2
	}
	if at+2 > len(p) {
		return nil
	}
	return r.lanes[direction][binary.BigEndian.Uint16(p[at:])]
}

func (l *lane) put(p []byte) {
	at, what := l.take(time.Now(), len(p))
	if what == sent {
		select {
		case l.parcels <- parcel{at, bytes.Clone(p)}:
		default:
			what = full
		}
	}
	l.fates[what].Add(1)
}

// send ends when no more packets come.
func send(l *lane, to *os.File) {
	for p := range l.parcels {
		time.Sleep(time.Until(p.at))
		_, _ = to.Write(p.data) // what the kernel does not take is lost
	}
}

// close stops it; the interfaces stay.
func (r *relay) close() error {
	past := time.Unix(1, 0)
	err := errors.Join(r.near.SetReadDeadline(past), r.far.SetReadDeadline(past))
	r.running.Wait()
	return errors.Join(err, r.near.SetReadDeadline(time.Time{}), r.far.SetReadDeadline(time.Time{}))
}

// lost is the part of a port's packets that were lost by loss alone.
func (r *relay) lost(port uint16) float64 {
	var gone, all uint64
	for _, lanes := range r.lanes {
		for what := range lanes[port].fates {
			n := lanes[port].fates[what].Load()
			all += n
			if fate(what) == lost {
				gone += n
			}
		}
	}
	return float64(gone) / float64(max(all, 1))
}
