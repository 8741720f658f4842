package netlink

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"syscall"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lookUp asks the kernel's routing rules and tables for the gateways to destination that the
// interface leads to, best first; destination itself if it is on-link. problem says why there is none.
func lookUp(requests *vnl.Handle, destination netip.Addr, out Interface) (gateways []netip.Addr, problem string) {
	routes, err := requests.RouteGetWithOptions(net.IP(destination.AsSlice()), &vnl.RouteGetOptions{FIBMatch: true})
	switch {
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return nil, fmt.Sprintf("no route to %s", destination)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EACCES): // blackhole, prohibit
		return nil, fmt.Sprintf("the route to %s refuses packets", destination)
	case err != nil:
		return nil, fmt.Sprintf("look up the route to %s: %v", destination, err)
	}
	var other int // an interface that is not ours
	for _, r := range routes {
		switch r.Type {
		case unix.RTN_UNICAST:
		case unix.RTN_LOCAL:
			return nil, fmt.Sprintf("%s is an address of this machine", destination)
		default:
			return nil, fmt.Sprintf("the route to %s is of a kind that a mux can't follow", destination)
		}
		for _, hop := range hops(r) {
			if hop.LinkIndex != out.Index {
				other = hop.LinkIndex
				continue
			}
			gateways = append(gateways, gateway(hop, destination))
		}
	}
	if len(gateways) == 0 {
		return nil, fmt.Sprintf("the route to %s leaves by %s, not by %s", destination, interfaceName(requests, other), out.Name)
	}
	rank(destination, gateways)
	return gateways, ""
}

// hops are the next hops of r, one or many.
func hops(r vnl.Route) []*vnl.NexthopInfo {
	if len(r.MultiPath) > 0 {
		return r.MultiPath
	}
	return []*vnl.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
}

func gateway(hop *vnl.NexthopInfo, destination netip.Addr) netip.Addr {
	ip := hop.Gw
	if via, ok := hop.Via.(*vnl.Via); ok && via != nil {
		ip = via.Addr // of the other family
	}
	if addr, ok := netip.AddrFromSlice(ip); ok && !addr.IsUnspecified() {
		return addr.Unmap()
	}
	return destination
}

// rank orders equal gateways by a hash of each with the destination: destinations spread over the
// gateways, and one that goes or comes moves only what it must.
func rank(destination netip.Addr, gateways []netip.Addr) {
	weight := func(g netip.Addr) uint64 {
		h := fnv.New64a()
		d, a := destination.As16(), g.As16()
		h.Write(d[:])
		h.Write(a[:])
		return h.Sum64()
	}
	slices.SortFunc(gateways, func(a, b netip.Addr) int {
		if wa, wb := weight(a), weight(b); wa != wb {
			if wa > wb {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
}

func interfaceName(requests *vnl.Handle, index int) string {
	link, err := requests.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return link.Attrs().Name
}
