package netlink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interface is a network interface as it was when it was asked for.
type Interface struct {
	Name      string
	Index     int
	MTU       int
	MAC       [6]byte
	Up        bool // administratively, and with a carrier
	Addresses []netip.Addr
}

// FindInterface looks the interface up. The error for one that is not there names those that are.
func FindInterface(name string) (Interface, error) {
	requests, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Interface{}, fmt.Errorf("open netlink socket: %w", err)
	}
	defer requests.Close()
	return findInterface(requests, name)
}

func findInterface(requests *vnl.Handle, name string) (Interface, error) {
	link, err := requests.LinkByName(name)
	if err != nil {
		var missing vnl.LinkNotFoundError
		if errors.As(err, &missing) {
			return Interface{}, fmt.Errorf("interface %s not found; this machine has: %s", name, interfaceNames(requests))
		}
		return Interface{}, fmt.Errorf("look up interface %s: %w", name, err)
	}
	found := interfaceOf(link)
	addresses, err := retry(func() ([]vnl.Addr, error) { return requests.AddrList(link, vnl.FAMILY_ALL) })
	if err != nil {
		return Interface{}, fmt.Errorf("list the addresses of %s: %w", name, err)
	}
	for _, a := range addresses {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			found.Addresses = append(found.Addresses, addr.Unmap())
		}
	}
	return found, nil
}

func interfaceOf(link vnl.Link) Interface {
	attrs := link.Attrs()
	found := Interface{
		Name: attrs.Name, Index: attrs.Index, MTU: attrs.MTU,
		// Some virtual drivers never tell their state; they are up when they are switched on.
		Up: attrs.Flags&net.FlagUp != 0 && (attrs.OperState == vnl.OperUp || attrs.OperState == vnl.OperUnknown),
	}
	copy(found.MAC[:], attrs.HardwareAddr)
	return found
}

func interfaceNames(requests *vnl.Handle) string {
	links, err := retry(requests.LinkList)
	if err != nil {
		return "unknown"
	}
	names := make([]string, 0, len(links))
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Address4 is the first routable IPv4 address, or none.
func (i Interface) Address4() netip.Addr { return i.address(netip.Addr.Is4) }

// Address6 is the first routable IPv6 address, or none.
func (i Interface) Address6() netip.Addr { return i.address(netip.Addr.Is6) }

func (i Interface) address(family func(netip.Addr) bool) netip.Addr {
	for _, a := range i.Addresses {
		if family(a) && a.IsGlobalUnicast() {
			return a
		}
	}
	return netip.Addr{}
}

// dumpAttempts bounds how often a dump is read again because the table changed meanwhile.
const dumpAttempts = 10

// retry reads a dump until it is whole.
func retry[T any](list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range dumpAttempts {
		if all, err = list(); !errors.Is(err, vnl.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}
