package frr

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Config describes a router whose neighbours dial in.
type Config struct {
	// Dir holds the router's files. Empty: a new one below the system's temporary folder.
	// It must be short (Unix sockets lie in it) and reachable by the user frr.
	Dir      string
	AS       uint32
	RouterID netip.Addr // IPv4

	PeerAS    uint32         // of every neighbour
	Ranges    []netip.Prefix // neighbours are accepted from these
	Neighbors []netip.Addr   // and these are configured one by one
	Password  string         // TCP MD5 of every neighbour; empty: none

	// Upstream are routers of other ASes that this one dials.
	Upstream []Upstream
	// HostRoutes are prefixes of which the kernel gets no route to a single address: a switch's driver writes these.
	HostRoutes []netip.Prefix

	HoldTime        time.Duration // 0: 3 s
	GracefulRestart bool          // keep a restarting neighbour's routes
	BFD             time.Duration // interval, three lost detect; 0: no bfdd
	EVPN            bool          // be a VTEP of the namespace's VXLAN devices
}

// Upstream is a router that another one dials.
type Upstream struct {
	Address netip.Addr
	AS      uint32
}

const (
	group = "WEIR"
	// hostRoutes begins the names of the lists and maps that keep routes out of the kernel.
	hostRoutes = "HOST-ROUTES"
)

func (c Config) bgpd() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	hold := c.HoldTime
	if hold == 0 {
		hold = 3 * time.Second
	}

	b.WriteString(c.common("bgpd"))
	line("router bgp %d", c.AS)
	line(" bgp router-id %s", c.RouterID)
	line(" no bgp ebgp-requires-policy") // else nothing is accepted
	line(" no bgp default ipv4-unicast")
	line(" bgp bestpath as-path multipath-relax")
	line(" timers bgp %d %d", max(1, int(hold.Seconds())/3), int(hold.Seconds()))
	if c.GracefulRestart {
		line(" bgp graceful-restart")
		line(" bgp graceful-restart preserve-fw-state")
	}
	c.neighbors(line)
	for _, family := range []string{"ipv4", "ipv6"} {
		line(" address-family %s unicast", family)
		line("  neighbor %s activate", group)
		line("  neighbor %s soft-reconfiguration inbound", group)
		for _, u := range c.Upstream {
			line("  neighbor %s activate", u.Address)
		}
		if len(c.HostRoutes) > 0 {
			line("  table-map %s-%s", hostRoutes, family)
		}
		line("  maximum-paths 64")
		line(" exit-address-family")
	}
	if c.EVPN {
		line(" address-family l2vpn evpn")
		line("  neighbor %s activate", group)
		line("  advertise-all-vni")
		line(" exit-address-family")
	}
	line("exit")
	c.hostRoutes(line)
	return b.String()
}

// neighbors writes who they are.
func (c Config) neighbors(line func(format string, args ...any)) {
	line(" neighbor %s peer-group", group)
	line(" neighbor %s remote-as %d", group, c.PeerAS)
	if c.Password != "" {
		line(" neighbor %s password %s", group, c.Password)
	}
	line(" neighbor %s passive", group)
	if c.BFD > 0 {
		line(" neighbor %s bfd", group)
		line(" neighbor %s bfd profile weir", group)
	}
	for _, n := range c.Neighbors {
		line(" neighbor %s peer-group %s", n, group)
	}
	for _, r := range c.Ranges {
		line(" bgp listen range %s peer-group %s", r, group)
	}
	for _, u := range c.Upstream {
		line(" neighbor %s remote-as %d", u.Address, u.AS)
	}
	line(" neighbor %s capability extended-nexthop", group)
}

// hostRoutes writes the maps of what the kernel gets.
func (c Config) hostRoutes(line func(format string, args ...any)) {
	if len(c.HostRoutes) == 0 {
		return
	}
	for _, of := range []struct{ family, word string }{{"ipv4", "ip"}, {"ipv6", "ipv6"}} {
		name := hostRoutes + "-" + of.family
		for _, p := range c.HostRoutes {
			if p.Addr().Is4() == (of.family == "ipv4") {
				line("%s prefix-list %s deny %s ge %d", of.word, name, p, p.Addr().BitLen())
			}
		}
		line("%s prefix-list %s permit any", of.word, name)
		line("route-map %s permit 10", name)
		line(" match %s address prefix-list %s", of.word, name)
		line("exit")
	}
}

// zebra forgets soon the groups of next hops that no route uses. FRR 8.4 keeps them for 3 minutes, and
// the kernel takes a link that goes down out of them, unseen: it would miss when it is back.
func (c Config) zebra() string { return c.common("zebra") + "zebra nexthop-group keep 1\n" }

func (c Config) bfdd() string {
	ms := c.BFD.Milliseconds()
	return c.common("bfdd") + fmt.Sprintf(
		"bfd\n profile weir\n  detect-multiplier 3\n  receive-interval %d\n  transmit-interval %d\n exit\nexit\n", ms, ms)
}

func (c Config) common(daemon string) string {
	return fmt.Sprintf("hostname router\nlog file %s/%s.log\n", c.Dir, daemon)
}
