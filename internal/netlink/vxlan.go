package netlink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	vnl "github.com/vishvananda/netlink"
)

const vxlanPort = 4789

// vxlanIdle are the idle devices, by whether their socket is of IPv4. Their networks are nobody's.
var vxlanIdle = map[bool]struct {
	name string
	vni  int
}{true: {"weir-vxlan4", 1<<24 - 1}, false: {"weir-vxlan6", 1<<24 - 2}}

// KeepVXLANSockets has the kernel merge (GRO) what comes in VXLAN to these addresses of the host: it does so only where a
// vxlan device has opened the port. For a family without such a device it makes an idle one; when another device of the
// family is there, the idle one goes. It returns the names of those that it keeps. To be called now and then, in the
// uplink's network namespace.
func KeepVXLANSockets(tunnels []netip.Addr) ([]string, error) {
	ours, others, err := vxlanDevices()
	if err != nil {
		return nil, err
	}
	var kept []string
	for v4, idle := range vxlanIdle {
		local := netip.Addr{}
		for _, a := range tunnels {
			if a.Is4() == v4 {
				local = a
			}
		}
		wanted := local.IsValid() && !others[v4]
		switch {
		case !wanted && ours[v4] != nil:
			err = errors.Join(err, vnl.LinkDel(ours[v4]))
		case wanted && ours[v4] == nil:
			err = errors.Join(err, addIdleVXLAN(idle.name, idle.vni, local))
		case wanted && ours[v4].Attrs().Flags&net.FlagUp == 0: // a process died before it set it up
			err = errors.Join(err, vnl.LinkSetUp(ours[v4]))
		}
		if wanted {
			kept = append(kept, idle.name)
		}
	}
	if err != nil {
		return kept, fmt.Errorf("keep sockets of VXLAN: %w", err)
	}
	return kept, nil
}

// vxlanDevices are the idle devices that are there, and of which families others have sockets, by whether they are of IPv4.
func vxlanDevices() (ours map[bool]vnl.Link, others map[bool]bool, err error) {
	links, err := retry(vnl.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list interfaces: %w", err)
	}
	ours, others = map[bool]vnl.Link{}, map[bool]bool{}
	for _, l := range links {
		v, ok := l.(*vnl.Vxlan)
		if !ok || v.Port != vxlanPort {
			continue
		}
		for v4, idle := range vxlanIdle {
			switch {
			case v.Name == idle.name:
				ours[v4] = l
			case v4 == vxlanIs4(v) || v.FlowBased: // that one has sockets of both
				others[v4] = others[v4] || v.Name != vxlanIdle[!v4].name
			}
		}
	}
	return ours, others, nil
}

// vxlanIs4 says of which family a device's socket is.
func vxlanIs4(v *vnl.Vxlan) bool {
	return (v.SrcAddr == nil || v.SrcAddr.To4() != nil) && (v.Group == nil || v.Group.To4() != nil)
}

func addIdleVXLAN(name string, vni int, local netip.Addr) error {
	attributes := vnl.NewLinkAttrs()
	attributes.Name = name
	device := &vnl.Vxlan{
		LinkAttrs: attributes, VxlanId: vni, Port: vxlanPort, SrcAddr: local.AsSlice(), UDP6ZeroCSumRx: local.Is6(),
	}
	if err := vnl.LinkAdd(device); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if err := vnl.LinkSetUp(device); err != nil {
		return errors.Join(fmt.Errorf("set up %s: %w", name, err), vnl.LinkDel(device))
	}
	return nil
}
