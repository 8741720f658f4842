package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Bounds of one round of echo requests.
const (
	echoTries  = 3
	echoWait   = 300 * time.Millisecond
	smallEcho  = 100 // bytes, IP header included: any path carries them
	echoHeader = 8
)

// carriage is the size of packets that a path was seen to carry.
type carriage int

const (
	unanswered carriage = iota // no answer, even to a small packet
	blackHole                  // small packets only
	carries                    // packets of the route's MTU, too
)

// probeRoutes sends a small echo request to each address, and one of the path's MTU, with DF as in tunnels, to those that
// answer. ICMP errors of routers with a smaller MTU do not count, as they do not reach senders in tunnels.
func probeRoutes(ctx context.Context, mtus map[netip.Addr]int) (map[netip.Addr]carriage, error) {
	found := make(map[netip.Addr]carriage, len(mtus))
	for _, v4 := range []bool{true, false} {
		small, full := map[netip.Addr]int{}, map[netip.Addr]int{}
		for to := range mtus {
			if to.Is4() == v4 {
				small[to] = smallEcho
			}
		}
		if len(small) == 0 {
			continue
		}
		e, err := newEchoer(ctx, v4)
		if err != nil {
			return nil, err
		}
		for to := range e.answered(ctx, small) {
			found[to], full[to] = blackHole, mtus[to]
		}
		for to := range e.answered(ctx, full) {
			found[to] = carries
		}
		e.socket.Close()
	}
	return found, nil
}

// echoer sends echo requests of one family.
type echoer struct {
	socket       net.PacketConn
	request      icmp.Type
	reply        byte
	outer        int // bytes of the IP header
	id, sequence uint16
}

func newEchoer(ctx context.Context, v4 bool) (*echoer, error) {
	e := &echoer{request: ipv6.ICMPTypeEchoRequest, reply: byte(ipv6.ICMPTypeEchoReply), outer: outerIPv6}
	network, level, option, value := "ip6:ipv6-icmp", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	if v4 {
		e = &echoer{request: ipv4.ICMPTypeEcho, reply: byte(ipv4.ICMPTypeEchoReply), outer: outerIPv4}
		network, level, option, value = "ip4:icmp", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	}
	e.id = uint16(rand.Uint32())
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) }), err)
	}}
	var err error
	if e.socket, err = config.ListenPacket(ctx, network, ""); err != nil {
		return nil, fmt.Errorf("open a socket for echo requests: %w", err)
	}
	return e, nil
}

// answered says which addresses answer an echo request of their size, IP header included.
func (e *echoer) answered(ctx context.Context, sizes map[netip.Addr]int) map[netip.Addr]bool {
	heard := make(map[netip.Addr]bool, len(sizes))
	for range echoTries {
		if len(heard) == len(sizes) || ctx.Err() != nil {
			break
		}
		e.sequence++ // answers to earlier sizes do not count
		for to, size := range sizes {
			body := icmp.Echo{ID: int(e.id), Seq: int(e.sequence), Data: make([]byte, size-e.outer-echoHeader)}
			message, err := (&icmp.Message{Type: e.request, Body: &body}).Marshal(nil)
			if err == nil && !heard[to] { // what can't be sent is not answered
				_, _ = e.socket.WriteTo(message, &net.IPAddr{IP: to.AsSlice()})
			}
		}
		e.hear(sizes, heard)
	}
	return heard
}

// hear records answers to the last requests, until all have answered or the time is up.
func (e *echoer) hear(sizes map[netip.Addr]int, heard map[netip.Addr]bool) {
	_ = e.socket.SetReadDeadline(time.Now().Add(echoWait))
	buffer := make([]byte, 1<<16)
	for len(heard) < len(sizes) {
		n, from, err := e.socket.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < echoHeader || buffer[0] != e.reply ||
			binary.BigEndian.Uint16(buffer[4:]) != e.id || binary.BigEndian.Uint16(buffer[6:]) != e.sequence {
			continue
		}
		address, ok := netip.AddrFromSlice(from.(*net.IPAddr).IP)
		if address = address.Unmap(); ok && sizes[address] != 0 {
			heard[address] = true
		}
	}
}
