package segment

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// groups are the multicast groups in which neighbors ask for addresses of IPv6: a network card, and a switch that snoops,
// bring them to those alone that have joined.
type groups struct {
	fd     int
	index  int
	name   string
	joined map[netip.Addr]bool
}

func openGroups(name string, index int) (groups, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return groups{}, fmt.Errorf("open a socket for multicast groups on %s: %w", name, err)
	}
	return groups{fd: fd, index: index, name: name, joined: map[netip.Addr]bool{}}, nil
}

// SetAddresses joins the groups in which the addresses are asked for, and leaves all others.
func (g *groups) SetAddresses(addresses []netip.Addr) error {
	wanted := map[netip.Addr]bool{}
	for _, a := range addresses {
		if a.Is6() {
			wanted[solicitedNode(a)] = true
		}
	}
	for group := range g.joined {
		if wanted[group] {
			continue
		}
		if err := g.change(unix.IPV6_LEAVE_GROUP, group); err != nil {
			return err
		}
		delete(g.joined, group)
	}
	for group := range wanted {
		if g.joined[group] {
			continue
		}
		if err := g.change(unix.IPV6_JOIN_GROUP, group); err != nil {
			return err
		}
		g.joined[group] = true
	}
	return nil
}

func (g *groups) change(option int, group netip.Addr) error {
	request := &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.index)}
	if err := unix.SetsockoptIPv6Mreq(g.fd, unix.IPPROTO_IPV6, option, request); err != nil {
		return fmt.Errorf("join or leave group %s on %s: %w", group, g.name, err)
	}
	return nil
}

func (g *groups) close() error { return unix.Close(g.fd) }
