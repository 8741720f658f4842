package netlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Native is where a workload is that has no interface of its own: its address is one of the
// host's, and packets for it go up the host's own stack.
const Native = 0

// loopback is the index of lo in every network namespace. What is sent there comes in to the host's own stack.
const loopback = 1

// Workloads finds where on this host the owners of addresses live, by asking the kernel's routing
// tables, and follows the changes: containers and virtual machines come and go.
//
//	address is local to the host          → Native; an anycast address of its networks, too
//	route leaves by any other interface   → that interface: a veth, a tap, a bridge
//	route leaves by the uplink, or none   → not on this host; nor is a broadcast address
type Workloads struct {
	uplink   string
	requests *vnl.Handle
	events   *nl.NetlinkSocket
}

// NewWorkloads opens the sockets, in the network namespace of the calling thread. Events count
// from here on, so that nothing falls between a Locate and a later Watch.
func NewWorkloads(uplink string) (*Workloads, error) {
	requests, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	events, err := subscribe()
	if err != nil {
		requests.Close()
		return nil, err
	}
	return &Workloads{uplink: uplink, requests: requests, events: events}, nil
}

// Close frees the sockets. Watch must have returned.
func (w *Workloads) Close() error {
	w.events.Close()
	w.requests.Close()
	return nil
}

// Locate returns the index of the interface behind which each address lives, Native for the
// host's own, and for each address that is not on this host a line that says why.
func (w *Workloads) Locate(addresses []netip.Addr) (interfaces map[netip.Addr]int, missing map[netip.Addr]string, err error) {
	uplink, err := w.requests.LinkByName(w.uplink)
	if err != nil {
		return nil, nil, fmt.Errorf("find uplink %s: %w", w.uplink, err)
	}
	interfaces = make(map[netip.Addr]int, len(addresses))
	missing = map[netip.Addr]string{}
	for _, address := range addresses {
		routes, err := w.requests.RouteGet(address.AsSlice())
		switch {
		case err != nil || len(routes) == 0:
			missing[address] = fmt.Sprintf("backend %s is not on this host: it has no route", address)
		case routes[0].Type == unix.RTN_LOCAL || routes[0].Type == unix.RTN_ANYCAST || routes[0].LinkIndex == loopback:
			interfaces[address] = Native
		case routes[0].Type == unix.RTN_BROADCAST:
			missing[address] = fmt.Sprintf("backend %s is not on this host: it is a broadcast address", address)
		case routes[0].LinkIndex == uplink.Attrs().Index:
			missing[address] = fmt.Sprintf("backend %s is not on this host: its route leaves by the uplink", address)
		default:
			interfaces[address] = routes[0].LinkIndex
		}
	}
	return interfaces, missing, nil
}

// Watch calls changed whenever links, addresses, routes or rules have changed, once for a burst,
// until ctx ends.
func (w *Workloads) Watch(ctx context.Context, changed func()) error {
	stop := context.AfterFunc(ctx, w.events.Close)
	defer stop()
	for ctx.Err() == nil {
		err := w.receive(0)
		if err == nil {
			err = w.drainBurst()
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch links, addresses and routes: %w", err)
		}
		changed()
	}
	return nil
}

// drainBurst reads notifications until none comes for a moment.
func (w *Workloads) drainBurst() error {
	for end := time.Now().Add(settleMost); time.Now().Before(end); {
		err := w.receive(settle)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive waits for one event, for ever when timeout is 0. What it says does not matter: Locate
// asks the kernel anew. So an overflow, which loses events, is an event like any other.
func (w *Workloads) receive(timeout time.Duration) error {
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := w.events.SetReceiveTimeout(&limit); err != nil {
		return err
	}
	_, _, err := w.events.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}
