package linux

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware/knob"
)

const bootPrefix = "weir-switch boot "

// ensureDevice has our interface there and up, and returns the boot that its alias names: whoever loses the tables loses it.
func (d *Driver) ensureDevice() (boot string, err error) {
	link, err := d.links.LinkByName(d.config.Device)
	if errors.As(err, &vnl.LinkNotFoundError{}) {
		if err := d.addDevice(); err != nil {
			return "", err
		}
		link, err = d.links.LinkByName(d.config.Device)
	}
	if err != nil {
		return "", fmt.Errorf("find interface %s: %w", d.config.Device, err)
	}
	alias := link.Attrs().Alias
	if alias == "" { // new, or its driver got no further
		d.tables = nil
		alias = bootPrefix + rand.Text()
		if err := d.links.LinkSetAlias(link, alias); err != nil {
			return "", fmt.Errorf("set the alias of interface %s: %w", d.config.Device, err)
		}
	}
	boot, ours := strings.CutPrefix(alias, bootPrefix)
	if !ours {
		return "", fmt.Errorf("interface %s is not ours: its alias is %q", d.config.Device, alias)
	}
	if link.Attrs().Flags&unix.IFF_UP == 0 {
		d.tables = nil
		if err := d.links.LinkSetUp(link); err != nil {
			return "", fmt.Errorf("set interface %s up: %w", d.config.Device, err)
		}
	}
	d.device = uint32(link.Attrs().Index)
	return boot, nil
}

// addDevice adds an interface that always has a carrier: a dummy, or where the kernel has none an ifb.
func (d *Driver) addDevice() error {
	attributes := vnl.NewLinkAttrs()
	attributes.Name = d.config.Device
	err := d.links.LinkAdd(&vnl.Dummy{LinkAttrs: attributes})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = d.links.LinkAdd(&vnl.Ifb{LinkAttrs: attributes})
	}
	if err != nil {
		return fmt.Errorf("add interface %s: %w", d.config.Device, err)
	}
	return nil
}

const compatMode = "net.ipv4.nexthop_compat_mode"

// knobs are settable where they change nothing but the routes of several next hops.
var knobs = []knob.Knob{
	{Name: "net.ipv4.fib_multipath_hash_policy", Value: "1", Settable: true, Otherwise: "all packets of a client go to one member: IPv4 hashes no ports"},
	{Name: "net.ipv6.fib_multipath_hash_policy", Value: "1", Settable: true, Otherwise: "all packets of a client go to one member: IPv6 hashes no ports"},
	{Name: compatMode, Value: "0", Settable: true, Otherwise: "groups are bounded at 256 entries: routes are told with all their next hops"},
	{Name: "net.ipv4.ip_forward", Value: "1", Otherwise: "the machine does not forward IPv4"},
	{Name: "net.ipv6.conf.all.forwarding", Value: "1", Otherwise: "the machine does not forward IPv6"},
}

// setUpKnobs sets sysctls of the namespace that the calling thread is in, or warns of them.
func (d *Driver) setUpKnobs() error {
	warnings, err := knob.SetUp(knobs, d.config.Configure)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(warnings)) {
		d.warnings = append(d.warnings, warnings[name])
	}
	if warnings[compatMode] != "" {
		d.config.Members = min(d.config.Members, compatibleMembers)
	}
	return nil
}
