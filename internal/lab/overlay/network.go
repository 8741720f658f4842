package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model/vnet"
)

// names are those of networks, and of the tenants that own them.
var names = []string{"acme", "bolt", "coho", "dune", "ergo", "fern", "gala", "hive"}

// Most is how many networks there are at most.
const Most = 8

// What is the same in all networks.
var (
	Prefix4 = netip.MustParsePrefix("192.168.0.0/16")
	Prefix6 = netip.MustParsePrefix("fd12:3456::/48")
	VIP4    = netip.MustParseAddr("10.99.0.1")
	VIP6    = netip.MustParseAddr("fd12:99::1")
	// VXLAN is where hosts send the first packets of connections to; all muxes have it.
	VXLAN = netip.MustParseAddr("203.0.113.250")

	vips4, vips6 = netip.MustParsePrefix("10.99.0.0/24"), netip.MustParsePrefix("fd12:99::/64")
)

// MTU is that of workloads' interfaces: what fits into VXLAN over IPv4.
const MTU = 1450

// Network is one.
type Network struct {
	Number int // from 1
	Name   string
}

// Networks are the first ones.
func Networks(count int) (all []Network) {
	for i := range count {
		all = append(all, Network{Number: i + 1, Name: names[i]})
	}
	return all
}

// VNI is the network's number in VXLAN.
func (n Network) VNI() uint32 { return uint32(100 * n.Number) }

// Client is a workload, which calls VIPs.
type Client struct {
	IPv4, IPv6 netip.Addr
	MAC        vnet.MAC
}

// WorkloadAt is the workload that a network has on a host of clients: the same in all networks.
func WorkloadAt(host int) Client {
	return Client{
		IPv4: netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", 4+host)), IPv6: netip.MustParseAddr(fmt.Sprintf("fd12:3456::%d", 4+host)),
		MAC: vnet.MAC{0x02, 0, 0, 0, 0, byte(4 + host)},
	}
}

// run runs lines of ip(8) and bridge(8).
func run(ns *netns.NS, lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := ns.Run(words[0], words[1:]...); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// Segment makes a host's bridge and VXLAN device. What is for everybody goes to the other hosts, what is for VIPs to the
// muxes.
func (n Network) Segment(host *netns.NS, own netip.Addr, others []netip.Addr) error {
	lines := []string{
		fmt.Sprintf("ip link add br%d type bridge", n.VNI()),
		fmt.Sprintf("ip link add vx%d mtu %d type vxlan id %[1]d local %[3]s dstport 4789 nolearning", n.VNI(), MTU, own),
		fmt.Sprintf("ip link set vx%d master br%[1]d up", n.VNI()),
		fmt.Sprintf("ip link set br%d up", n.VNI()),
		fmt.Sprintf("bridge fdb add %s dev vx%d dst %s", vnet.DefaultGatewayMAC, n.VNI(), VXLAN),
		fmt.Sprintf("bridge fdb add %s dev vx%d master static", vnet.DefaultGatewayMAC, n.VNI()),
	}
	for _, other := range others {
		lines = append(lines, fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx%d dst %s", n.VNI(), other))
	}
	return run(host, lines...)
}

// device is a workload's interface.
const device = "eth0"

// Join connects a workload to a port of the host's bridge.
func (n Network) Join(host *netns.NS, port string, workload *netns.NS, w Client) error {
	return errors.Join(n.connect(host, port, workload, device), address(workload, w))
}

// connect makes a port of the host's bridge, and the workload's end of it.
func (n Network) connect(host *netns.NS, port string, workload *netns.NS, device string) error {
	return errors.Join(
		netns.Veth(host, port, workload, device),
		host.SetMTU(port, MTU), workload.SetMTU(device, MTU),
		run(host, fmt.Sprintf("ip link set %s master br%d up", port, n.VNI())))
}

// address gives a workload's interface its addresses, and the way to VIPs.
func address(workload *netns.NS, w Client) error {
	return errors.Join(
		workload.SetMAC(device, w.MAC),
		workload.AddAddress(device, netip.PrefixFrom(w.IPv4, Prefix4.Bits()), netip.PrefixFrom(w.IPv6, Prefix6.Bits())),
		workload.AddLinkRoute(vips4, device), workload.AddLinkRoute(vips6, device))
}

// Move takes a workload to another host, as the live migration of a VM does: its port there is made, the VM stops, the
// network is told, the VM goes on there, with all its sockets.
func (n Network) Move(host *netns.NS, port string, workload *netns.NS, w Client, tell func() error) error {
	const next = "next"
	if err := errors.Join(n.connect(host, port, workload, next), workload.SetDown(next)); err != nil {
		return err
	}
	if err := workload.DeleteLink(device); err != nil { // and the old host's end with it
		return err
	}
	return errors.Join(
		tell(), run(workload, fmt.Sprintf("ip link set %s name %s", next, device)), workload.SetUp(device), address(workload, w))
}

// Workload is the name of the network's workload on a host of clients, and of its port there.
func (n Network) Workload(host int) string { return fmt.Sprintf("%s%d", n.Name, host) }
