// Package ethernet prepares the links and segments of a lab.
package ethernet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/lab/netns"
)

// SwitchOn sets what a lab needs of the kernel in ns, and switches knobs on.
func SwitchOn(ns *netns.NS, on ...string) error {
	knobs := map[string]string{
		// The way back is another than the way there.
		"net.ipv4.conf.all.rp_filter":     "0",
		"net.ipv4.conf.default.rp_filter": "0",
		// A node has no router but the one that it was given.
		"net.ipv6.conf.all.accept_ra":     "0",
		"net.ipv6.conf.default.accept_ra": "0",
		// A link that goes down and comes back has its addresses, as where a network manager cares for them.
		"net.ipv6.conf.all.keep_addr_on_down": "1",
		// Room for many short connections from one address.
		"net.ipv4.ip_local_port_range": "1024 65535",
	}
	for _, knob := range on {
		knobs[knob] = "1"
	}
	for knob, value := range knobs {
		if err := ns.Sysctl(knob, value); err != nil {
			return err
		}
	}
	return nil
}

// Build makes a segment, a bridge of ns with addresses. It forwards at once, as a switch does whose ports are for hosts.
func Build(ns *netns.NS, name string, addresses ...netip.Prefix) error {
	for _, args := range [][]string{
		{"link", "add", name, "type", "bridge", "forward_delay", "0", "stp_state", "0"},
		{"link", "set", name, "up"},
	} {
		if out, err := ns.Run("ip", args...); err != nil {
			return fmt.Errorf("make the segment %s: %w: %s", name, err, out)
		}
	}
	return ns.AddAddress(name, addresses...)
}

// Join puts the end of a link into a segment.
func Join(ns *netns.NS, segment, port string) error {
	if out, err := ns.Run("ip", "link", "set", port, "master", segment); err != nil {
		return fmt.Errorf("put %s into the segment %s: %w: %s", port, segment, err, out)
	}
	return nil
}

// PrepareForXDP makes the router's end of a mux's link fit for a program that sends packets back
// out of it. A veth leaves checksums to hardware that is not there: here they must be right before
// the mux changes the packet. And what XDP sends into a veth needs a program at the other end.
func PrepareForXDP(router *netns.NS, port string) error {
	return errors.Join(router.SetOffload(port, netns.TxChecksum, false), router.PassXDP(port))
}

// AddDefaultRoutes adds a default route of each family.
func AddDefaultRoutes(ns *netns.NS, gateway4, gateway6 netip.Addr) error {
	return errors.Join(
		ns.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), gateway4), ns.AddRoute(netip.MustParsePrefix("::/0"), gateway6))
}
