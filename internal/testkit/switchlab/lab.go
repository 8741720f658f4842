package switchlab

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// Names of the switch's ports.
const (
	ClientPort = "client"
	FabricPort = "fabric"
)

// Lab is a switch with a client on one port and the fabric, with all tunnels behind it, on the other.
type Lab struct {
	Client, Switch, Fabric *netns.NS

	send      int // socket
	clientMAC pkt.MAC
	switchMAC pkt.MAC
	arrivals  chan drivertest.Arrival
}

// New raises a lab, which lives until the test ends. Names of namespaces begin with prefix.
func New(t *testing.T, prefix string) *Lab {
	t.Helper()
	l := &Lab{
		Client: netns.New(t, prefix+"-client"), Switch: netns.New(t, prefix+"-switch"), Fabric: netns.New(t, prefix+"-fabric"),
		arrivals: make(chan drivertest.Arrival, 1<<14),
	}
	must(t, netns.Veth(l.Client, "eth0", l.Switch, ClientPort))
	must(t, netns.Veth(l.Fabric, "eth0", l.Switch, FabricPort))
	for _, ns := range []*netns.NS{l.Client, l.Fabric} {
		must(t, ns.SetOffload("eth0", netns.TxChecksum, false))
	}
	l.route(t)
	l.clientMAC, l.switchMAC = mac(t, l.Client, "eth0"), mac(t, l.Switch, ClientPort)
	l.openSender(t)
	l.openReceiver(t)
	return l
}

// route makes a router of the switch: tunnels lie behind the fabric, whose neighbour entry stays.
func (l *Lab) route(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf." + ClientPort + ".rp_filter": "0",
		"net.ipv4.conf." + FabricPort + ".rp_filter": "0",
	} {
		must(t, l.Switch.Sysctl(name, value))
	}
	must(t, l.Switch.AddAddress(ClientPort, netip.MustParsePrefix("198.51.100.254/24"), netip.MustParsePrefix("2001:db8:c::ffff/64")))
	must(t, l.Switch.AddAddress("lo", netip.PrefixFrom(drivertest.Source(false), 32), netip.PrefixFrom(drivertest.Source(true), 128)))
	must(t, l.Switch.AddAddress(FabricPort, netip.MustParsePrefix("10.66.0.1/24"), netip.MustParsePrefix("fd66::1/64")))
	index, err := l.Switch.Index(FabricPort)
	must(t, err)
	neighbor := mac(t, l.Fabric, "eth0")
	for tunnels, via := range map[string]string{"10.64.0.0/16": "10.66.0.2", "fd64::/64": "fd66::2"} {
		must(t, l.Switch.Netlink().NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: netip.MustParseAddr(via).AsSlice(), HardwareAddr: neighbor[:],
		}))
		must(t, l.Switch.AddRoute(netip.MustParsePrefix(tunnels), netip.MustParseAddr(via)))
	}
}

func mac(t *testing.T, ns *netns.NS, name string) (m pkt.MAC) {
	t.Helper()
	address, err := ns.MAC(name)
	must(t, err)
	copy(m[:], address)
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
