package switchd

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	// withdrawLead is how long an entry outlives its route: neighbours need about 0.1 s, more in a fabric of three tiers.
	withdrawLead = time.Second
	// MaxLease is how long VIPs stay announced without a manager, unless a flag says that it is less: managers and hosts
	// count on it that a switch which they do not hear has withdrawn by then (placementpolicy.LeaveTime).
	MaxLease = 10 * time.Minute
)

// Options are the flags of weir-switch.
type Options struct {
	daemon.Node
	Driver    string
	SetUp     bool
	Source4   string
	Source6   string
	NextHop4  string
	NextHop6  string
	VIPs      []string // prefixes
	TIPs      []string // prefixes
	AS        uint32
	RouterID  string
	Peers     []string
	Community []string
	LLDP      string // socket

	HoldTime        time.Duration
	GracefulRestart time.Duration
	Lease           time.Duration
	DrainTime       time.Duration

	Telemetry telemetry.Options
}

// Flags adds the flags to cmd; driver and data directory also to its subcommands.
func (o *Options) Flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	o.Node.Flags(flags, "name of this node, as VIPs name it", "/var/lib/weir-switch")
	cmd.PersistentFlags().AddFlag(flags.Lookup("data-dir"))
	cmd.PersistentFlags().StringVar(&o.Driver, "driver", "", "what programs the switch: "+driverNames()+" (required)")
	flags.BoolVar(&o.SetUp, "set-up", false, "let the driver set what it needs of the machine: of linux, the hash by ports and the source of tunnels")
	flags.StringVar(&o.Source4, "source4", "", "outer source of packets in IPv4; it or --source6 is required, as the driver has it")
	flags.StringVar(&o.Source6, "source6", "", "outer source of packets in IPv6")
	flags.StringSliceVar(&o.VIPs, "vip-prefixes", nil,
		"prefixes, separated by commas, that VIPs lie in: no other is programmed or announced, whatever a manager tells (required)")
	flags.StringSliceVar(&o.TIPs, "tip-prefixes", nil,
		"prefixes, separated by commas, that TIPs of this switch lie in: addresses to which other switches send VIPs' packets; none: it has no TIP")
	flags.Uint32Var(&o.AS, "as", 0, "AS number of the session with the switch's router (required)")
	flags.StringVar(&o.RouterID, "router-id", "", "BGP identifier, an IPv4 address other than the router's own (required)")
	flags.StringArrayVar(&o.Peers, "peer", nil, "the switch's router, as address=ADDRESS,as=NUMBER[,password-file=PATH][,bfd=INTERVAL]; repeatable (required)")
	flags.StringVar(&o.NextHop4, "next-hop4", "", "next hop of IPv4 routes, that the router takes for its own; without one no IPv4 VIP is taken")
	flags.StringVar(&o.NextHop6, "next-hop6", "", "next hop of IPv6 routes; without one no IPv6 VIP is taken")
	flags.StringSliceVar(&o.Community, "community", nil, "communities of the routes, separated by commas, as 65000:100")
	flags.StringVar(&o.LLDP, "lldp-socket", "/run/lldpd.socket",
		"socket of lldpd, which the drivers linux and xdp have the neighbours of ports from; not there: none are heard")
	flags.DurationVar(&o.HoldTime, "bgp-hold-time", bgp.DefaultHoldTime, "silence after which a BGP session is lost")
	flags.DurationVar(&o.GracefulRestart, "graceful-restart", 2*time.Minute,
		"how long the router keeps the routes while this program is away; 0: not at all")
	flags.DurationVar(&o.Lease, "lease", MaxLease, "how long routes are announced while no manager is heard")
	flags.DurationVar(&o.DrainTime, "drain-time", 2*time.Second, "how long to wait after the routes are withdrawn, when stopped")
	o.Telemetry.Flags(flags, telemetry.SwitchListen)
}

// settings are the options, read.
type settings struct {
	source4, source6 netip.Addr
	vips, tips       []netip.Prefix
	communities      []model.Community
	bgp              bgp.Config
}

// settings reads the options; an error names the flag, the reason and what to do.
func (o *Options) settings() (s settings, err error) {
	if err := o.Check(); err != nil {
		return s, err
	}
	if !slices.Contains(drivers, o.Driver) {
		return s, fmt.Errorf("read --driver: must be %s, is %q", driverNames(), o.Driver)
	}
	for _, a := range []struct {
		flag, text string
		family     func(netip.Addr) bool
		to         *netip.Addr
	}{
		{"--source4", o.Source4, netip.Addr.Is4, &s.source4},
		{"--source6", o.Source6, netip.Addr.Is6, &s.source6},
		{"--next-hop4", o.NextHop4, netip.Addr.Is4, &s.bgp.NextHop4},
		{"--next-hop6", o.NextHop6, netip.Addr.Is6, &s.bgp.NextHop6},
		{"--router-id", o.RouterID, netip.Addr.Is4, &s.bgp.RouterID},
	} {
		if *a.to, err = address(a.flag, a.text, a.family); err != nil {
			return s, err
		}
	}
	if !s.source4.IsValid() && !s.source6.IsValid() {
		return s, errors.New("read --source4 and --source6: one must be set: hosts know the switch's packets by it")
	}
	if len(o.VIPs) == 0 {
		return s, errors.New("read --vip-prefixes: is required: name the prefixes of the address pools")
	}
	if s.vips, err = prefixes("--vip-prefixes", o.VIPs); err != nil {
		return s, err
	}
	if s.tips, err = prefixes("--tip-prefixes", o.TIPs); err != nil {
		return s, err
	}
	for _, text := range o.Community {
		c, err := model.ParseCommunity(text)
		if err != nil {
			return s, fmt.Errorf("read --community: %w", err)
		}
		s.communities = append(s.communities, c)
	}
	if o.Lease < time.Minute || o.Lease > MaxLease {
		return s, fmt.Errorf("read --lease: must be from 1m to %s: managers count on it", MaxLease)
	}
	if o.DrainTime < 0 {
		return s, errors.New("read --drain-time: must not be negative")
	}
	err = o.speaker(&s.bgp)
	return s, err
}

// address reads an address, or none.
func address(flag, text string, family func(netip.Addr) bool) (a netip.Addr, err error) {
	if text == "" {
		return a, nil
	}
	if a, err = netip.ParseAddr(text); err != nil || !family(a) || !a.IsGlobalUnicast() || a.Zone() != "" || a.Is4In6() {
		return a, fmt.Errorf("read %s: must be a routable address of that family, is %.60q", flag, text)
	}
	return a, nil
}

// Bounds of prefixes: no list of addresses, and not the Internet.
const (
	maxVIPPrefixes = 256
	minVIPBits     = 8
)

// prefixes reads those of a flag.
func prefixes(flag string, texts []string) (all []netip.Prefix, err error) {
	if len(texts) > maxVIPPrefixes {
		return nil, fmt.Errorf("read %s: must be at most %d, are %d: name the prefixes of the address pools", flag, maxVIPPrefixes, len(texts))
	}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() || p.Bits() < minVIPBits {
			return nil, fmt.Errorf("read %s: must be prefixes such as 203.0.113.0/24, at least /%d, has %.60q", flag, minVIPBits, text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// speaker reads what concerns BGP.
func (o *Options) speaker(c *bgp.Config) error {
	c.AS, c.HoldTime, c.GracefulRestart = o.AS, o.HoldTime, o.GracefulRestart
	for _, text := range o.Peers {
		peer, err := bgp.ParsePeer(text)
		if err != nil {
			return fmt.Errorf("read --peer %q: %w", text, err)
		}
		if peer.EVPN {
			return fmt.Errorf("read --peer %q: evpn is for muxes", text)
		}
		c.Peers = append(c.Peers, peer)
	}
	switch {
	case len(c.Peers) == 0:
		return errors.New("read --peer: is missing: name the switch's own router, as address=192.0.2.1,as=65000")
	case o.AS == 0:
		return errors.New("read --as: is missing: take the router's own AS, so that the session is an internal one")
	case !c.RouterID.IsValid():
		return errors.New("read --router-id: is missing: take an IPv4 address that no other speaker has as its identifier")
	case !c.NextHop4.IsValid() && !c.NextHop6.IsValid():
		return errors.New("read --next-hop4 and --next-hop6: one must be set: a VIP whose family has none is not taken")
	}
	return nil
}
