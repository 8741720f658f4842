package netlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Listener is a TCP socket that listens, with its accept queue.
type Listener struct {
	Address netip.AddrPort // unspecified: all addresses of its family
	Dual    bool           // of an unspecified address of IPv6: those of IPv4 too
	Waiting uint32         // connections that wait to be accepted
	Limit   uint32         // the backlog: the kernel lets one more wait
}

// Takes says whether the listener takes connections to an address.
func (l Listener) Takes(to netip.AddrPort) bool {
	switch at := l.Address.Addr(); {
	case l.Address.Port() != to.Port():
		return false
	case at.IsUnspecified():
		return at.Is4() == to.Addr().Is4() || l.Dual
	default:
		return at == to.Addr()
	}
}

// Layout of struct inet_diag_req_v2 and inet_diag_msg of linux/inet_diag.h.
const (
	diagRequestSize = 56
	diagMessageSize = 72
	diagV6Only      = 11 // INET_DIAG_SKV6ONLY
	tcpListen       = 10 // TCP_LISTEN
)

// diagRequest asks for sockets that listen.
type diagRequest struct{ family uint8 }

// Len is the length of Serialize's.
func (diagRequest) Len() int { return diagRequestSize }

// Serialize is the request as the kernel reads it. All of the socket's identity is left open.
func (r diagRequest) Serialize() []byte {
	b := make([]byte, diagRequestSize)
	b[0], b[1] = r.family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<tcpListen)
	return b
}

// Listeners are the TCP sockets of this network namespace that listen. The kernel walks these alone, however many
// connections there are.
func Listeners() ([]Listener, error) {
	var all []Listener
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddData(diagRequest{family})
		messages, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
		if err != nil {
			return nil, fmt.Errorf("list sockets that listen: %w", err)
		}
		for _, m := range messages {
			l, err := newListener(m)
			if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
	}
	return all, nil
}

func newListener(m []byte) (Listener, error) {
	if len(m) < diagMessageSize {
		return Listener{}, fmt.Errorf("read a socket that listens: %d bytes", len(m))
	}
	l := Listener{Waiting: binary.NativeEndian.Uint32(m[56:]), Limit: binary.NativeEndian.Uint32(m[60:])}
	address := netip.AddrFrom4([4]byte(m[8:12]))
	if m[0] == unix.AF_INET6 {
		address = netip.AddrFrom16([16]byte(m[8:24])).Unmap()
		l.Dual = address.Is6()
	}
	l.Address = netip.AddrPortFrom(address, binary.BigEndian.Uint16(m[4:]))
	attributes, err := nl.ParseRouteAttr(m[diagMessageSize:])
	if err != nil {
		return l, fmt.Errorf("read a socket that listens: %w", err)
	}
	for _, a := range attributes {
		if a.Attr.Type == diagV6Only && len(a.Value) > 0 && a.Value[0] != 0 {
			l.Dual = false
		}
	}
	return l, nil
}
