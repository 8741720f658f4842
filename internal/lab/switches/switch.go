package switches

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
)

// What is the same on each switch: nobody else sees it.
const (
	hop    = "weir-hop" // the interface of the session between router and weir-switch
	nobody = "nobody"   // its other end
)

// TIPs are what TIPs of a lab's switches are taken from.
var TIPs = netip.MustParsePrefix("203.0.115.0/24")

// Own are interfaces without a cable.
var Own = []string{hop, nobody}

var (
	ours4 = netip.MustParsePrefix("192.0.2.1/30")
	ours6 = netip.MustParsePrefix("fd00:8::1/64")
	next4 = ours4.Addr().Next()
	next6 = ours6.Addr().Next()
)

// AS is that of a switch by its number.
func AS(number int) uint32 { return uint32(65100 + number) }

// Upstream is a switch as the router above it dials it.
func Upstream(number int, address netip.Addr) frr.Upstream {
	return frr.Upstream{Address: address, AS: AS(number)}
}

// prepare makes the interface of the session between router and weir-switch.
func prepare(ns *netns.NS) error {
	if err := netns.Veth(ns, hop, ns, nobody); err != nil {
		return err
	}
	return ns.AddAddress(hop, ours4, ours6)
}

// Start makes the node a router: its FRR has a session with the one above, and waits for weir-switch.
func Start(ns *netns.NS, dir string, number int, above frr.Upstream, vips ...netip.Prefix) error {
	if err := prepare(ns); err != nil {
		return err
	}
	_, err := frr.Start(ns, frr.Config{
		Dir: dir, AS: AS(number), RouterID: routerID(number), PeerAS: AS(number), Ranges: []netip.Prefix{ours4.Masked()},
		GracefulRestart: true, Upstream: []frr.Upstream{above}, HostRoutes: vips,
	})
	return err
}

func routerID(number int) netip.Addr { return netip.AddrFrom4([4]byte{10, 255, 7, byte(number)}) }

// InFabric makes the node a router with as many sessions as the configuration has, which waits for weir-switch. It may have
// been one before.
func InFabric(ns *netns.NS, number int, config frr.Config) error {
	if _, err := ns.Index(hop); err != nil {
		if err := prepare(ns); err != nil {
			return err
		}
	}
	config.RouterID, config.GracefulRestart = routerID(number), true
	config.Local, config.Own = ours4.Masked(), []netip.Addr{next4, next6}
	_, err := frr.Start(ns, config)
	return err
}

// Flags are those of the switch's weir-switch, beside the ones of every node. Without an IPv4 source its driver is linux, which
// has IPv6 tunnels alone, else xdp.
func Flags(number int, as uint32, source4, source6 netip.Addr, vips ...netip.Prefix) []string {
	texts := make([]string, len(vips))
	for i, p := range vips {
		texts[i] = p.String()
	}
	driver := []string{"--driver", "linux"}
	if source4.IsValid() {
		driver = []string{"--driver", "xdp", "--source4", source4.String()}
	}
	return append(driver,
		"--set-up", "--source6", source6.String(), "--vip-prefixes", strings.Join(texts, ","), "--tip-prefixes", TIPs.String(),
		"--as", strconv.Itoa(int(as)), "--router-id", netip.AddrFrom4([4]byte{10, 255, 8, byte(number)}).String(),
		"--peer", fmt.Sprintf("address=%s,as=%d", ours4.Addr(), as), "--next-hop4", next4.String(), "--next-hop6", next6.String(),
		"--bgp-hold-time", "3s", "--graceful-restart", "5s", "--lldp-socket", fmt.Sprintf("/run/weir-lab-switch-%d.lldp", number),
	)
}
