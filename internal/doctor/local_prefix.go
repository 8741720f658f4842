package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"connectrpc.com/connect"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model/vnet"
)

// overlayTimeout bounds the question for the overlay.
const overlayTimeout = 5 * time.Second

// localPrefixes finds what the host has of its own in the prefixes by whose addresses servers see clients of virtual
// networks. The agent takes what servers answer to these, so what is there is not reached by them.
func localPrefixes(ctx context.Context, s Subject) []Finding {
	prefixes, known := overlayPrefixes(ctx, s)
	if known && len(prefixes) == 0 {
		return ok("the cluster has no overlay of virtual networks")
	}
	if !known {
		prefixes = vnet.DefaultLocalPrefixes
	}
	taken, err := taken(prefixes)
	if err != nil {
		return unknown(err, "look whether a route leads into "+fmt.Sprint(prefixes))
	}
	if taken == "" {
		return ok("nothing here is in %v, by which servers see clients of virtual networks", prefixes)
	}
	when := "servers of this host see clients of virtual networks by addresses of it"
	if !known {
		when = "servers see clients of virtual networks by addresses of it, if the cluster has an overlay that says no other"
	}
	return bad(Warn, "give the cluster's Overlay other localPrefixes", "%s: %s", taken, when)
}

// overlayPrefixes are the local prefixes of the cluster's overlay, none if it has no overlay; not known if no manager tells.
func overlayPrefixes(ctx context.Context, s Subject) (prefixes []netip.Prefix, known bool) {
	client, err := s.Connect()
	if err != nil {
		return nil, false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, overlayTimeout)
	defer cancel()
	response, err := client.GetOverlay(ctx, &weirv1.GetOverlayRequest{})
	if err != nil {
		return nil, connect.CodeOf(err) == connect.CodeNotFound
	}
	for _, text := range response.GetOverlay().GetLocalPrefixes() {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, true
}

// taken names an address or a route of the machine in the prefixes; empty: there is none.
func taken(prefixes []netip.Prefix) (string, error) {
	in := func(n *net.IPNet) (netip.Prefix, bool) {
		if n == nil {
			return netip.Prefix{}, false
		}
		bits, _ := n.Mask.Size()
		address, valid := netip.AddrFromSlice(n.IP)
		route := netip.PrefixFrom(address.Unmap(), bits)
		for _, prefix := range prefixes {
			if valid && bits >= prefix.Bits() && prefix.Contains(route.Addr()) { // one that leads farther is no use of it
				return route, true
			}
		}
		return route, false
	}
	addresses, err := vnl.AddrList(nil, vnl.FAMILY_ALL)
	if err != nil {
		return "", fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if _, overlaps := in(&net.IPNet{IP: a.IP, Mask: net.CIDRMask(len(a.Mask)*8, len(a.Mask)*8)}); overlaps {
			return fmt.Sprintf("address %s is on %s", a.IP, interfaceOf(a.LinkIndex)), nil
		}
	}
	routes, err := vnl.RouteListFiltered(vnl.FAMILY_ALL, &vnl.Route{Table: unix.RT_TABLE_UNSPEC}, vnl.RT_FILTER_TABLE)
	if err != nil {
		return "", fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if route, overlaps := in(r.Dst); overlaps {
			return fmt.Sprintf("route %s leads to %s", route, interfaceOf(r.LinkIndex)), nil
		}
	}
	return "", nil
}

func interfaceOf(index int) string {
	found, err := net.InterfaceByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return found.Name
}
