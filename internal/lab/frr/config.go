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
	// Fabric are the other routers of a fabric: with BFD, and without graceful restart, as routes to a switch that has rebooted
	// lead nowhere.
	Fabric []Upstream
	// Local is where programs of the router's own machine dial in from, in its AS.
	Local netip.Prefix
	// Networks are announced while there is a route to them.
	Networks []netip.Prefix
	// Source4 and Source6 are what the machine sends from on routes of BGP; invalid: the interface's address.
	Source4, Source6 netip.Addr
	// Own are next hops of which the kernel gets no routes: they are of the programs in Local.
	Own []netip.Addr
	// HostRoutes are prefixes of which the kernel gets no route to a single address: a switch's driver writes these.
	HostRoutes []netip.Prefix

	HoldTime        time.Duration // 0: 3 s
	GracefulRestart bool          // keep a restarting neighbour's routes
	NoHelp          bool          // take no part in graceful restart: FRR helps others by default
	NoIPv6          bool          // the family is not activated for neighbours
	BFD             time.Duration // interval, three lost detect; 0: no bfdd
	EVPN            bool          // be a VTEP of the namespace's VXLAN devices
}

// Upstream is a router that another one dials.
type Upstream struct {
	Address netip.Addr
	AS      uint32
	Dials   bool // of a fabric: it is the other one that dials, so that no two sessions collide
}

const (
	group       = "WEIR"
	fabricGroup = "FABRIC"
	localGroup  = "LOCAL"
	// hostRoutes begins the names of the lists and maps that keep routes out of the kernel.
	hostRoutes = "HOST-ROUTES"
	ownRoutes  = "OWN-ROUTES"
	source     = "SOURCE"
)

func (c Config) bgpd() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	hold := c.HoldTime
	if hold == 0 {
		hold = 3 * time.Second
	}

	b.WriteString(c.common("bgpd"))
	line("bgp route-map delay-timer 0") // else the kernel has no route of a router that boots for 5 s, while others send to it
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
	if c.NoHelp {
		line(" bgp graceful-restart-disable")
	}
	c.neighbors(line)
	for _, family := range []string{"ipv4", "ipv6"} {
		line(" address-family %s unicast", family)
		if family == "ipv4" || !c.NoIPv6 {
			line("  neighbor %s activate", group)
		}
		line("  neighbor %s soft-reconfiguration inbound", group)
		for _, u := range c.Upstream {
			line("  neighbor %s activate", u.Address)
		}
		c.fabric(line, family)
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
	c.ownRoutes(line)
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
	if c.Local.IsValid() {
		line(" neighbor %s peer-group", localGroup)
		line(" neighbor %s remote-as %d", localGroup, c.AS)
		line(" neighbor %s passive", localGroup)
		line(" bgp listen range %s peer-group %s", c.Local, localGroup)
	}
	if len(c.Fabric) > 0 {
		line(" coalesce-time 50") // else a neighbor that comes up is told nothing for more than a second
		line(" update-delay 5")   // a router that boots attracts nothing before it has routes itself, or 5 s
		line(" neighbor %s peer-group", fabricGroup)
		line(" neighbor %s timers connect 1", fabricGroup)
		line(" neighbor %s bfd", fabricGroup)
		line(" neighbor %s bfd profile weir", fabricGroup)
	}
	for _, n := range c.Fabric {
		line(" neighbor %s remote-as %d", n.Address, n.AS)
		line(" neighbor %s peer-group %s", n.Address, fabricGroup)
		line(" neighbor %s graceful-restart-disable", n.Address) // not by the group: its members do not take that from it
		if n.Dials {
			line(" neighbor %s passive", n.Address)
		}
	}
}

// fabric writes what a family has of a fabric.
func (c Config) fabric(line func(format string, args ...any), family string) {
	if c.Local.IsValid() {
		line("  neighbor %s activate", localGroup)
	}
	if len(c.Fabric) > 0 {
		line("  neighbor %s activate", fabricGroup)
	}
	for _, p := range c.Networks {
		if p.Addr().Is4() == (family == "ipv4") {
			line("  network %s", p)
		}
	}
	if len(c.Own) > 0 {
		line("  table-map %s-%s", ownRoutes, family)
	}
}

// ownRoutes writes the maps that keep them out of the kernel.
func (c Config) ownRoutes(line func(format string, args ...any)) {
	if len(c.Own) == 0 {
		return
	}
	for _, of := range []struct{ family, word string }{{"ipv4", "ip"}, {"ipv6", "ipv6"}} {
		name := ownRoutes + "-" + of.family
		for i, hop := range c.Own {
			if hop.Is4() == (of.family == "ipv4") {
				line("route-map %s deny %d", name, i+1)
				line(" match %s next-hop address %s", of.word, hop)
				line("exit")
			}
		}
		line("route-map %s permit %d", name, len(c.Own)+1)
		line("exit")
	}
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

// zebraMaps are what zebra has by its file, or by mgmtd where that is there.
func (c Config) zebraMaps() (lines []string) {
	for word, address := range map[string]netip.Addr{"ip": c.Source4, "ipv6": c.Source6} {
		if address.IsValid() {
			name := source + "-" + word
			lines = append(lines, "zebra route-map delay-timer 0", "route-map "+name+" permit 1", " set src "+address.String(), "exit", word+" protocol bgp route-map "+name)
		}
	}
	return lines
}

func (c Config) bfdd() string {
	ms := c.BFD.Milliseconds()
	return c.common("bfdd") + fmt.Sprintf(
		"bfd\n profile weir\n  detect-multiplier 3\n  receive-interval %d\n  transmit-interval %d\n exit\nexit\n", ms, ms)
}

func (c Config) common(daemon string) string {
	return fmt.Sprintf("hostname router\nlog file %s/%s.log\n", c.Dir, daemon)
}
