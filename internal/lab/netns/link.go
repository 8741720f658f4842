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

// links are the interfaces of a namespace, with their addresses and routes.
type links struct {
	name    string // of the namespace
	netlink *netlink.Handle
}

func (l *links) link(name string) (netlink.Link, error) {
	link, err := l.netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface %s in namespace %s: %w", name, l.name, err)
	}
	return link, nil
}

// SetUp sets an interface up.
func (l *links) SetUp(name string) error { return l.change(name, "set up", l.netlink.LinkSetUp) }

// SetDown takes an interface down. Routes by it are lost.
func (l *links) SetDown(name string) error { return l.change(name, "take down", l.netlink.LinkSetDown) }

// SetMTU sets an interface's MTU.
func (l *links) SetMTU(name string, mtu int) error {
	return l.change(name, "set the MTU of", func(link netlink.Link) error { return l.netlink.LinkSetMTU(link, mtu) })
}

// SetMAC gives an interface another Ethernet address.
func (l *links) SetMAC(name string, mac [6]byte) error {
	return l.change(name, "set the mac of", func(link netlink.Link) error {
		return l.netlink.LinkSetHardwareAddr(link, mac[:])
	})
}

// DeleteLink removes an interface.
func (l *links) DeleteLink(name string) error { return l.change(name, "delete", l.netlink.LinkDel) }

func (l *links) change(name, what string, how func(netlink.Link) error) error {
	link, err := l.link(name)
	if err != nil {
		return err
	}
	if err := how(link); err != nil {
		return fmt.Errorf("%s interface %s in namespace %s: %w", what, name, l.name, err)
	}
	return nil
}

// Index is an interface's index.
func (l *links) Index(name string) (int, error) {
	link, err := l.link(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// MAC is an interface's hardware address.
func (l *links) MAC(name string) (net.HardwareAddr, error) {
	link, err := l.link(name)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

// AddAddress gives an interface addresses, each with the length of its network. IPv6 ones are usable
// at once: nothing looks for duplicates.
func (l *links) AddAddress(name string, addresses ...netip.Prefix) error {
	for _, a := range addresses {
		address := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		err := l.change(name, "add "+a.String()+" to", func(link netlink.Link) error {
			return l.netlink.AddrAdd(link, address)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AddRoute adds a route by way of a gateway. A default route has the prefix 0.0.0.0/0 or ::/0.
func (l *links) AddRoute(to netip.Prefix, via netip.Addr) error {
	if err := l.netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("add route to %s via %s in namespace %s: %w", to, via, l.name, err)
	}
	return nil
}

// ReplaceRoute adds a route by way of a gateway, or changes the one that is there.
func (l *links) ReplaceRoute(to netip.Prefix, via netip.Addr) error {
	if err := l.netlink.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("replace route to %s via %s in namespace %s: %w", to, via, l.name, err)
	}
	return nil
}

// AddLinkRoute adds a route to what is reached directly on an interface.
func (l *links) AddLinkRoute(to netip.Prefix, name string) error {
	return l.change(name, "add route to "+to.String()+" on", func(link netlink.Link) error {
		return l.netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK})
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
