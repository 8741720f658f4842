package muxd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/muxd/synflood"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/telemetry"
)

// DefaultPinPath is where the data plane is pinned unless a flag says otherwise.
const DefaultPinPath = "/sys/fs/bpf/weir-mux"

// DefaultNATSessions is how many sessions of full NAT there is room for.
const DefaultNATSessions = 1 << 16

// withdrawLead is how long a VIP's endpoints outlive its routes: routers need about 0.1 s.
const withdrawLead = 250 * time.Millisecond

// Options are the flags of weir-mux.
type Options struct {
	daemon.Node
	Interface string
	PinPath   string
	XDPMode   string
	Source4   string
	Source6   string

	Encapsulation string
	SourcePrefix4 string
	SourcePrefix6 string
	NATPrefix4    string
	NATPrefix6    string

	AS              uint32
	RouterID        string
	Peers           []string
	Announce        string
	Aggregates      []string
	Neighbors       []string
	HoldTime        time.Duration
	GracefulRestart time.Duration
	DrainTime       time.Duration

	SYNFloodLeast, SYNFloodMost uint32

	FairDrop bool

	MaxEndpoints, MaxBuckets, MaxBackends, MaxSNATPorts, MaxFlows, MaxVIPFlows, MaxSources, MaxNATSessions int

	Telemetry telemetry.Options
}

// The values of --announce.
const (
	announceVIP       = "vip"
	announceAggregate = "aggregate"
)

// Flags adds the flags to cmd; the pin path also to its subcommands.
func (o *Options) Flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	o.Node.Flags(flags, "name of this node", "/var/lib/weir-mux")
	flags.StringVar(&o.Interface, "interface", "", "interface that packets for VIPs arrive on and leave by (required)")
	flags.StringVar(&o.XDPMode, "xdp-mode", string(mux.Auto),
		"native (in the driver), generic (slow, works everywhere), or auto")
	flags.StringVar(&o.Source4, "source4", "", "outer source and next hop of IPv4 (default: the interface's address)")
	flags.StringVar(&o.Source6, "source6", "", "outer source and next hop of IPv6 (default: the interface's address)")
	flags.StringVar(&o.Encapsulation, "encapsulation", string(pool.IPIP),
		"what packets travel to the hosts in: ipip (an IP header) or gue (over UDP port 6080)")
	flags.StringVar(&o.SourcePrefix4, "source-prefix4", "",
		"prefix that the outer IPv4 sources are taken from, one for each flow (default: --source4 alone)")
	flags.StringVar(&o.SourcePrefix6, "source-prefix6", "",
		"prefix that the outer IPv6 sources are taken from, one for each flow (default: --source6 alone)")
	flags.StringVar(&o.NATPrefix4, "nat-prefix4", "",
		"prefix of this mux alone, by whose addresses backends see clients with full NAT in the mux (default: there is none)")
	flags.StringVar(&o.NATPrefix6, "nat-prefix6", "",
		"prefix of this mux alone, by whose addresses backends see clients with full NAT in the mux (default: there is none)")
	flags.Uint32Var(&o.AS, "as", 0, "our AS number; required with --peer")
	flags.StringVar(&o.RouterID, "router-id", "", "BGP identifier, an IPv4 address (default: the IPv4 source)")
	flags.StringArrayVar(&o.Peers, "peer", nil,
		"router to announce to, as address=ADDRESS,as=NUMBER[,password-file=PATH][,bfd=INTERVAL][,evpn=true]; repeatable")
	flags.StringVar(&o.Announce, "announce", announceVIP, "what to announce: vip (a route for each VIP) or aggregate")
	flags.StringArrayVar(&o.Aggregates, "aggregate", nil,
		"prefix to announce while a VIP lies in it; repeatable; with --announce aggregate")
	flags.StringArrayVar(&o.Neighbors, "neighbor-prefix", nil,
		"prefix of VIPs that this mux can answer ARP and NDP for on the interface, where no router has routes to them; repeatable")
	flags.DurationVar(&o.HoldTime, "bgp-hold-time", bgp.DefaultHoldTime, "silence after which a BGP session is lost")
	flags.DurationVar(&o.GracefulRestart, "graceful-restart", 30*time.Second,
		"how long routers keep our routes while this program restarts; 0: not at all")
	flags.DurationVar(&o.DrainTime, "drain-time", 2*time.Second,
		"how long to forward on after the routes are withdrawn, when stopped")
	flags.Uint32Var(&o.SYNFloodLeast, "syn-flood-min-rate", uint32(synflood.DefaultLimits.Least),
		"SYNs a second of an endpoint below which nothing is a flood")
	flags.Uint32Var(&o.SYNFloodMost, "syn-flood-max-rate", uint32(synflood.DefaultLimits.Most),
		"SYNs a second of an endpoint from which it is sampled for a flood, whatever its usual rate")
	flags.BoolVar(&o.FairDrop, "fair-drop", true,
		"when this mux is overloaded, drop first what exceeds a tenant's fair share")
	flags.IntVar(&o.MaxEndpoints, "max-endpoints", 0, "room for endpoints (default 16384)")
	flags.IntVar(&o.MaxBuckets, "max-buckets", 0, "room for buckets of all endpoints (default 8388608)")
	flags.IntVar(&o.MaxBackends, "max-backends", 0, "room for backends of all endpoints (default 262144)")
	flags.IntVar(&o.MaxSNATPorts, "max-snat-ports", 0,
		"room for source NAT ports, 65536 for each VIP with source NAT (default 4194304)")
	flags.IntVar(&o.MaxFlows, "max-flows", 0, "room in the flow table (default 1048576)")
	flags.IntVar(&o.MaxSources, "max-source-prefixes", 0, "prefixes in all lists of sources together (default 1048576)")
	flags.IntVar(&o.MaxVIPFlows, "max-flows-per-vip", 0,
		"most flows in the flow table of a VIP without flowLimit (default: half of --max-flows)")
	flags.IntVar(&o.MaxNATSessions, "max-nat-sessions", DefaultNATSessions,
		"room for sessions of full NAT in the mux, a power of two; with --nat-prefix4 or --nat-prefix6")
	o.Telemetry.Flags(flags, telemetry.MuxListen)
	daemon.PinPathFlag(cmd, &o.PinPath, DefaultPinPath)
}

// Unload removes the data plane that is pinned at pinPath.
func Unload(pinPath string) error {
	if err := daemon.CheckRoot(); err != nil {
		return err
	}
	attachedTo, lost := mux.AttachedTo(pinPath)
	err := mux.Unload(pinPath)
	if errors.Is(err, pin.ErrLocked) {
		return fmt.Errorf("%w: stop weir-mux first", err)
	}
	if err != nil || lost != nil {
		return err
	}
	discard, err := netlink.NewDiscard(attachedTo, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer discard.Close()
	return discard.Set(nil)
}

// settings are the options, read.
type settings struct {
	mode             mux.Mode
	link             netlink.Interface
	prefix4, prefix6 netip.Prefix
	aggregates       []netip.Prefix
	natPrefixes      []netip.Prefix
	neighbors        []netip.Prefix
	bgp              bgp.Config
}

// settings reads the options; an error names the flag, the reason and what to do.
func (o *Options) settings(find func(string) (netlink.Interface, error)) (s settings, err error) {
	if err := o.Check(); err != nil {
		return s, err
	}
	if o.Interface == "" {
		return s, errors.New("read --interface: is missing: name the interface that packets for VIPs arrive on")
	}
	s.mode = mux.Mode(o.XDPMode)
	if s.mode != mux.Auto && s.mode != mux.Native && s.mode != mux.Generic {
		return s, fmt.Errorf("read --xdp-mode: must be auto, native or generic, is %q", o.XDPMode)
	}
	if o.DrainTime < 0 {
		return s, fmt.Errorf("read --drain-time: must not be negative, is %s", o.DrainTime)
	}
	if min(o.MaxEndpoints, o.MaxBuckets, o.MaxBackends, o.MaxSNATPorts, o.MaxFlows, o.MaxVIPFlows, o.MaxSources, o.MaxNATSessions) < 0 {
		return s, errors.New("read --max-endpoints, --max-buckets, --max-backends, --max-snat-ports, --max-flows, " +
			"--max-flows-per-vip, --max-source-prefixes and --max-nat-sessions: must not be negative")
	}
	if o.SYNFloodLeast == 0 || o.SYNFloodMost < o.SYNFloodLeast {
		return s, fmt.Errorf("read --syn-flood-min-rate and --syn-flood-max-rate: "+
			"must be at least 1, and at most the other: %d, %d", o.SYNFloodLeast, o.SYNFloodMost)
	}
	if s.prefix4, s.prefix6, err = o.outer(); err != nil {
		return s, err
	}
	if s.natPrefixes, err = o.natPrefixes(); err != nil {
		return s, err
	}
	if s.aggregates, err = o.aggregates(); err != nil {
		return s, err
	}
	if s.neighbors, err = o.neighbors(); err != nil {
		return s, err
	}
	link, err := find(o.Interface)
	if err != nil {
		return s, fmt.Errorf("read --interface: %w", err)
	}
	s.link = link
	s.bgp, err = o.speaker(link)
	return s, err
}

// outer reads what packets travel to the hosts in.
func (o *Options) outer() (prefix4, prefix6 netip.Prefix, err error) {
	if kind := pool.Encapsulation(o.Encapsulation); kind != pool.IPIP && kind != pool.GUE {
		return prefix4, prefix6, fmt.Errorf("read --encapsulation: must be ipip or gue, is %q", o.Encapsulation)
	}
	if prefix4, err = sourcePrefix("--source-prefix4", o.SourcePrefix4, netip.Addr.Is4, 8); err != nil {
		return prefix4, prefix6, err
	}
	prefix6, err = sourcePrefix("--source-prefix6", o.SourcePrefix6, netip.Addr.Is6, 64)
	return prefix4, prefix6, err
}

// sourcePrefix reads a prefix of the family that is at least so long, or none.
func sourcePrefix(flag, text string, family func(netip.Addr) bool, shortest int) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !family(prefix.Addr()) || prefix.Bits() < shortest || !prefix.Addr().IsGlobalUnicast() {
		return prefix, fmt.Errorf("read %s: must be a routable prefix of that family, at least /%d long, is %q",
			flag, shortest, text)
	}
	return prefix.Masked(), nil
}

// natPrefixes reads the NAT prefixes: each has addresses and ports for all sessions.
func (o *Options) natPrefixes() (all []netip.Prefix, err error) {
	for _, of := range []struct {
		flag, text string
		family     func(netip.Addr) bool
		bits       int
	}{{"--nat-prefix4", o.NATPrefix4, netip.Addr.Is4, 32}, {"--nat-prefix6", o.NATPrefix6, netip.Addr.Is6, 128}} {
		prefix, err := sourcePrefix(of.flag, of.text, of.family, of.bits-vnet.MaxNATBits)
		if err != nil {
			return nil, err
		}
		if !prefix.IsValid() {
			continue
		}
		if o.MaxNATSessions == 0 {
			return nil, fmt.Errorf("read --max-nat-sessions: must be at least 1 with %s", of.flag)
		}
		if room := nat.Room(prefix); room < o.MaxNATSessions {
			return nil, fmt.Errorf("read %s: %s has addresses and ports for %d sessions, and --max-nat-sessions is %d", of.flag, prefix, room, o.MaxNATSessions)
		}
		all = append(all, prefix)
	}
	return all, nil
}

// aggregates reads what is announced instead of routes to single VIPs.
func (o *Options) aggregates() (all []netip.Prefix, err error) {
	switch {
	case o.Announce != announceVIP && o.Announce != announceAggregate:
		return nil, fmt.Errorf("read --announce: must be vip or aggregate, is %q", o.Announce)
	case o.Announce == announceVIP && len(o.Aggregates) > 0:
		return nil, errors.New("read --aggregate: has no effect without --announce aggregate")
	case o.Announce == announceAggregate && len(o.Aggregates) == 0:
		return nil, errors.New("read --announce: aggregate needs at least one --aggregate")
	}
	for _, text := range o.Aggregates {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("read --aggregate: must be a prefix such as 203.0.113.0/24, is %q", text)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// maxNeighborPrefixes bounds what a mux registers with.
const maxNeighborPrefixes = 64

// neighbors reads the prefixes of VIPs that ARP and NDP are answered for.
func (o *Options) neighbors() (all []netip.Prefix, err error) {
	if len(o.Neighbors) > maxNeighborPrefixes {
		return nil, fmt.Errorf("read --neighbor-prefix: must be at most %d, are %d", maxNeighborPrefixes, len(o.Neighbors))
	}
	for _, text := range o.Neighbors {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			return nil, fmt.Errorf("read --neighbor-prefix: must be a prefix such as 192.0.2.0/24, is %q", text)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// speaker reads what concerns BGP, with defaults from the interface.
func (o *Options) speaker(link netlink.Interface) (c bgp.Config, err error) {
	c = bgp.Config{AS: o.AS, HoldTime: o.HoldTime, GracefulRestart: o.GracefulRestart}
	if c.NextHop4, err = source("--source4", o.Source4, link.Address4(), netip.Addr.Is4); err != nil {
		return c, err
	}
	if c.NextHop6, err = source("--source6", o.Source6, link.Address6(), netip.Addr.Is6); err != nil {
		return c, err
	}
	if !c.NextHop4.IsValid() && !c.NextHop6.IsValid() {
		return c, fmt.Errorf("interface %s has no routable address: give it one, or set --source4 or --source6", link.Name)
	}
	for _, text := range o.Peers {
		peer, err := bgp.ParsePeer(text)
		if err != nil {
			return c, fmt.Errorf("read --peer %q: %w", text, err)
		}
		c.Peers = append(c.Peers, peer)
	}
	if len(c.Peers) > 0 && o.AS == 0 {
		return c, errors.New("read --as: is missing: BGP with --peer needs our AS number")
	}
	c.RouterID = c.NextHop4
	if o.RouterID != "" {
		if c.RouterID, err = netip.ParseAddr(o.RouterID); err != nil {
			return c, fmt.Errorf("read --router-id: must be an IPv4 address, is %q", o.RouterID)
		}
	}
	if len(c.Peers) > 0 && !c.RouterID.IsValid() {
		return c, errors.New("read --router-id: is missing, and there is no IPv4 source to take it from")
	}
	return c, nil
}

func source(flag, text string, fallback netip.Addr, family func(netip.Addr) bool) (netip.Addr, error) {
	if text == "" {
		return fallback, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !family(addr) || !addr.IsGlobalUnicast() {
		return addr, fmt.Errorf("read %s: must be a routable address of that family, is %q", flag, text)
	}
	return addr, nil
}
