package netlink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// tables is a set of the kernel's tables.
type tables uint8

const (
	links  tables = 1 << iota // interfaces and their addresses
	routes                    // and rules
	neighborsTable

	allTables = links | routes | neighborsTable
)

// settle is how long a burst of changes must be silent before it is acted on, settleMost how long
// it may go on.
const (
	settle     = 10 * time.Millisecond
	settleMost = 100 * time.Millisecond
)

// subscribe opens a socket for what happens to links, addresses, routes and rules, and to more tables if
// asked for.
func subscribe(more ...uint) (*nl.NetlinkSocket, error) {
	groups := append([]uint{
		unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
		unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE,
	}, more...)
	events, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to links, addresses and routes: %w", err)
	}
	return events, nil
}

// receive tells which tables have changed, until ctx is done or the socket is closed. What exactly
// has changed does not matter: the tables are read anew. So an overflow, which loses events, is but
// a change of all of them.
func receive(ctx context.Context, events *nl.NetlinkSocket, changes chan<- tables) {
	for {
		messages, _, err := events.Receive()
		var changed tables
		switch {
		case errors.Is(err, unix.ENOBUFS):
			changed = allTables
		case err != nil:
			return
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
				changed |= neighborsTable
			case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR:
				changed |= links
			default:
				changed |= routes
			}
		}
		select {
		case changes <- changed:
		case <-ctx.Done():
			return
		}
	}
}
