package linux

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware"
)

var _ hardware.Watcher = (*Driver)(nil)

// Watch implements hardware.Watcher: it is told by the kernel of routes, next hops and interfaces.
func (d *Driver) Watch(ctx context.Context, changed func()) error {
	stop := context.AfterFunc(ctx, d.events.Close)
	defer stop()
	others := doing{d.config.Device, d.kernel.port}
	for {
		messages, from, err := d.events.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // some are lost
			changed()
			continue
		case err != nil:
			return fmt.Errorf("watch routes and next hops: %w", err)
		case from.Pid != 0: // not the kernel
			continue
		}
		for _, m := range messages {
			if others.concerns(m) {
				changed()
				break
			}
		}
	}
}

// subscribe opens the socket of Watch, in the namespace of the calling thread.
func subscribe() (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("subscribe to routes and next hops: %w", err)
	}
	return s, nil
}

// doing is what others do to the routes, next hops and the interface of a driver.
type doing struct {
	device string // the interface's name
	own    uint32 // port of the driver's own socket
}

// concerns says whether a message is about what may be ours, and somebody else's doing. A router has many routes: those
// that are not to a single address, or not in the main table, are none of them.
func (d doing) concerns(m syscall.NetlinkMessage) bool {
	if m.Header.Pid == d.own {
		return false
	}
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, single, err := parseRoute(m.Data)
		return err != nil || single && r.table == unix.RT_TABLE_MAIN && !r.isBehindOurs()
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		o, err := parseObject(m.Data)
		return err != nil || isHopID(o.id) || isGroupID(o.id)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return m.Header.Type == unix.RTM_DELLINK && d.isDevice(m.Data) || isDown(m.Data) && d.isDevice(m.Data)
	}
	return false
}

// isDevice says whether a message is about our interface. The kernel removes next hops with it, and tells of none.
func (d doing) isDevice(message []byte) bool {
	if len(message) < unix.SizeofIfInfomsg {
		return false
	}
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofIfInfomsg:])
	if err != nil {
		return true
	}
	for _, a := range attributes {
		if a.Attr.Type&attributeType == unix.IFLA_IFNAME {
			return nl.BytesToString(a.Value) == d.device
		}
	}
	return false
}

func isDown(message []byte) bool {
	return len(message) >= unix.SizeofIfInfomsg && nl.DeserializeIfInfomsg(message).Flags&unix.IFF_UP == 0
}
