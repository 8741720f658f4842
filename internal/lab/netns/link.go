package netns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Veth joins two namespaces by a pair of interfaces, both up.
func Veth(a *NS, aName string, b *NS, bName string) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = aName
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: bName, PeerNamespace: netlink.NsFd(b.handle)}
	if err := a.netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add veth %s in %s to %s in %s: %w", aName, a.name, bName, b.name, err)
	}
	if err := a.SetUp(aName); err != nil {
		return err
	}
	return b.SetUp(bName)
}

func (ns *NS) link(name string) (netlink.Link, error) {
	link, err := ns.netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface %s in namespace %s: %w", name, ns.name, err)
	}
	return link, nil
}

// SetUp sets an interface up.
func (ns *NS) SetUp(name string) error { return ns.change(name, "set up", ns.netlink.LinkSetUp) }

// SetDown takes an interface down. Routes by it are lost.
func (ns *NS) SetDown(name string) error { return ns.change(name, "take down", ns.netlink.LinkSetDown) }

// SetMTU sets an interface's MTU.
func (ns *NS) SetMTU(name string, mtu int) error {
	return ns.change(name, "set the MTU of", func(l netlink.Link) error { return ns.netlink.LinkSetMTU(l, mtu) })
}

// SetMAC gives an interface another Ethernet address.
func (ns *NS) SetMAC(name string, mac [6]byte) error {
	return ns.change(name, "set the mac of", func(l netlink.Link) error { return ns.netlink.LinkSetHardwareAddr(l, mac[:]) })
}

// DeleteLink removes an interface.
func (ns *NS) DeleteLink(name string) error { return ns.change(name, "delete", ns.netlink.LinkDel) }

func (ns *NS) change(name, what string, how func(netlink.Link) error) error {
	link, err := ns.link(name)
	if err != nil {
		return err
	}
	if err := how(link); err != nil {
		return fmt.Errorf("%s interface %s in namespace %s: %w", what, name, ns.name, err)
	}
	return nil
}

// Index is an interface's index.
func (ns *NS) Index(name string) (int, error) {
	link, err := ns.link(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// MAC is an interface's hardware address.
func (ns *NS) MAC(name string) (net.HardwareAddr, error) {
	link, err := ns.link(name)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

// AddAddress gives an interface addresses, each with the length of its network. IPv6 ones are usable
// at once: nothing looks for duplicates.
func (ns *NS) AddAddress(name string, addresses ...netip.Prefix) error {
	for _, a := range addresses {
		address := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		err := ns.change(name, "add "+a.String()+" to", func(l netlink.Link) error { return ns.netlink.AddrAdd(l, address) })
		if err != nil {
			return err
		}
	}
	return nil
}

// AddRoute adds a route by way of a gateway. A default route has the prefix 0.0.0.0/0 or ::/0.
func (ns *NS) AddRoute(to netip.Prefix, via netip.Addr) error {
	if err := ns.netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("add route to %s via %s in namespace %s: %w", to, via, ns.name, err)
	}
	return nil
}

// ReplaceRoute adds a route by way of a gateway, or changes the one that is there.
func (ns *NS) ReplaceRoute(to netip.Prefix, via netip.Addr) error {
	if err := ns.netlink.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("replace route to %s via %s in namespace %s: %w", to, via, ns.name, err)
	}
	return nil
}

// AddLinkRoute adds a route to what is reached directly on an interface.
func (ns *NS) AddLinkRoute(to netip.Prefix, name string) error {
	return ns.change(name, "add route to "+to.String()+" on", func(l netlink.Link) error {
		return ns.netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK})
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Sysctl sets a knob by its dotted name, such as net.ipv4.ip_forward.
func (ns *NS) Sysctl(name, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	err := ns.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
	if err != nil {
		return fmt.Errorf("set %s to %s in namespace %s: %w", name, value, ns.name, err)
	}
	return nil
}
