package segment

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// groups are the multicast groups in which neighbors ask for addresses of IPv6: a network card, and a switch that snoops,
// bring them to those alone that have joined.
type groups struct {
	index  int
	name   string
	joined map[netip.Addr]int // socket by group
	inUse  map[int]int        // groups by socket
}

// groupsPerSocket is how many groups one socket joins: the kernel bounds the memory of its options, to 365 groups before
// Linux 6.8.
const groupsPerSocket = 256

func openGroups(name string, index int) groups {
	return groups{index: index, name: name, joined: map[netip.Addr]int{}, inUse: map[int]int{}}
}

// socket returns one that has room for another group.
func (g *groups) socket() (int, error) {
	for fd, n := range g.inUse {
		if n < groupsPerSocket {
			return fd, nil
		}
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket for multicast groups on %s: %w", g.name, err)
	}
	g.inUse[fd] = 0
	return fd, nil
}

// SetAddresses joins the groups in which the addresses are asked for, and leaves all others.
func (g *groups) SetAddresses(addresses []netip.Addr) error {
	wanted := map[netip.Addr]bool{}
	for _, a := range addresses {
		if a.Is6() {
			wanted[solicitedNode(a)] = true
		}
	}
	for group, fd := range g.joined {
		if wanted[group] {
			continue
		}
		if err := g.change(fd, unix.IPV6_LEAVE_GROUP, group); err != nil {
			return err
		}
		delete(g.joined, group)
		g.inUse[fd]--
	}
	for group := range wanted {
		if _, joined := g.joined[group]; joined {
			continue
		}
		fd, err := g.socket()
		if err != nil {
			return err
		}
		if err := g.change(fd, unix.IPV6_JOIN_GROUP, group); err != nil {
			return err
		}
		g.joined[group] = fd
		g.inUse[fd]++
	}
	return nil
}

func (g *groups) change(fd, option int, group netip.Addr) error {
	request := &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.index)}
	if err := unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, option, request); err != nil {
		return fmt.Errorf("join or leave group %s on %s: %w", group, g.name, err)
	}
	return nil
}

func (g *groups) close() error {
	var errs []error
	for fd := range g.inUse {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
