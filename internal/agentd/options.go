package agentd

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/agentd/snat"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/telemetry"
)

// DefaultPinPath is where the data plane is pinned unless a flag says otherwise.
const DefaultPinPath = "/sys/fs/bpf/weir-agent"

// Options are the flags of weir-agent.
type Options struct {
	daemon.Node
	Uplink      string
	PinPath     string
	MaxSessions int
	MaxRules    int
	MaxVIP      int // sessions of one VIP; 0: its guaranteed share, and more while others leave room
	Timeouts    session.Timeouts
	SNATFlows   int
	Queue       snat.QueueBounds
	Network     NetworkRoom
	Sources     bool     // anti-spoofing
	Native      []string // prefixes
	Telemetry   telemetry.Options

	native []netip.Prefix // what Native says
}

// NetworkRoom is that of virtual networks.
type NetworkRoom struct{ Sessions, Flows int }

// networkPins is where the programs of virtual networks are pinned: beside the agent's own.
func networkPins(pinPath string) string { return filepath.Clean(pinPath) + "-networks" }

// Flags adds the flags to cmd; the pin path also to its subcommands.
func (o *Options) Flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.Node.Flags(flags, "name of this node, as backends name their host", "/var/lib/weir-agent")
	flags.StringVar(&o.Uplink, "uplink", "", "interface towards the network, where the muxes' packets arrive (required)")
	flags.IntVar(&o.MaxSessions, "max-sessions", agent.DefaultMaxSessions, "room for sessions; the longest idle one is evicted")
	flags.IntVar(&o.MaxVIP, "max-sessions-per-vip", 0, "most sessions of one VIP (default: its guaranteed share of --max-sessions, and up to half of the table while others leave room)")
	flags.IntVar(&o.MaxRules, "max-rules", agent.DefaultMaxRules, "room for backends of this host")
	o.Timeouts = session.DefaultTimeouts()
	flags.DurationVar(&o.Timeouts.SYN, "tcp-syn-timeout", o.Timeouts.SYN, "idle time that ends a TCP session before its handshake is done")
	flags.DurationVar(&o.Timeouts.Established, "tcp-established-timeout", o.Timeouts.Established, "idle time that ends a workload's own established TCP connection")
	flags.DurationVar(&o.Timeouts.Closing, "tcp-closing-timeout", o.Timeouts.Closing, "idle time that ends a TCP session that both sides have finished")
	flags.DurationVar(&o.Timeouts.Reset, "tcp-reset-timeout", o.Timeouts.Reset, "idle time that ends a TCP session that was reset")
	flags.DurationVar(&o.Timeouts.SNATUDP, "snat-udp-timeout", o.Timeouts.SNATUDP, "idle time that ends a workload's own UDP flow")
	flags.DurationVar(&o.Timeouts.ICMP, "snat-icmp-timeout", o.Timeouts.ICMP, "idle time that ends a workload's own pings")
	flags.IntVar(&o.SNATFlows, "max-snat-flows", agentsnat.DefaultMaxFlows, "room for workloads' own connections, half of it for those of one workload")
	o.Queue = snat.DefaultQueueBounds()
	flags.IntVar(&o.Queue.Packets, "snat-queue-packets", o.Queue.Packets, "most packets of a workload that wait for a port")
	flags.IntVar(&o.Queue.Bytes, "snat-queue-bytes", o.Queue.Bytes, "most bytes of a workload's packets that wait for a port")
	flags.DurationVar(&o.Queue.Time, "snat-queue-timeout", o.Queue.Time, "how long a packet waits for a port at most")
	flags.IntVar(&o.Network.Sessions, "max-network-sessions", 1<<16, "room for sessions of virtual networks' clients with backends here, used once there are any")
	flags.IntVar(&o.Network.Flows, "max-network-flows", 1<<16, "room for what is remembered of connections of virtual networks' workloads here")
	flags.BoolVar(&o.Sources, "anti-spoofing", true, "drop what a workload sends from an address that is not behind its interface")
	flags.StringSliceVar(&o.Native, "native-prefixes", nil, "prefixes, separated by commas: addresses of the host itself that may be backends, beside the uplink's")
	o.Telemetry.Flags(flags, telemetry.AgentListen)
	daemon.PinPathFlag(cmd, &o.PinPath, DefaultPinPath)
}

// check says what is wrong with the options, and what to do.
func (o *Options) check() error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.Uplink == "" {
		return errors.New("read --uplink: is missing: name the interface that the muxes' packets arrive on")
	}
	if o.SNATFlows < 2 || min(o.Queue.Packets, o.Queue.Bytes) <= 0 || o.Queue.Time <= 0 {
		return errors.New("read --max-snat-flows and the --snat-queue flags: must be positive")
	}
	if o.MaxSessions <= 0 || o.MaxRules <= 0 {
		return errors.New("read --max-sessions and --max-rules: must be positive")
	}
	if n := o.Network; n.Sessions <= 0 || n.Sessions > overlay.MaxRows || n.Flows <= 0 || n.Flows > overlay.MaxFlows {
		return fmt.Errorf("read --max-network-sessions and --max-network-flows: must be positive, and at most %d and %d", overlay.MaxRows, overlay.MaxFlows)
	}
	if o.MaxVIP < 0 {
		return errors.New("read --max-sessions-per-vip: must not be negative")
	}
	if err := o.readNative(); err != nil {
		return err
	}
	t := o.Timeouts
	if min(t.SYN, t.Established, t.Closing, t.Reset, t.UDP, t.SNATUDP, t.ICMP) <= 0 {
		return errors.New("read the timeouts: must be positive")
	}
	return nil
}

// readNative reads --native-prefixes.
func (o *Options) readNative() error {
	o.native = make([]netip.Prefix, 0, len(o.Native))
	for _, text := range o.Native {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return fmt.Errorf("read --native-prefixes: must be prefixes such as 10.3.1.0/24, has %.60q", text)
		}
		o.native = append(o.native, p)
	}
	return nil
}

// Unload removes the data plane that is pinned at pinPath.
func Unload(pinPath string) error {
	if err := daemon.CheckRoot(); err != nil {
		return err
	}
	err := errors.Join(agent.Unload(pinPath), overlay.Unload(networkPins(pinPath)))
	_, failed := netlink.KeepVXLANSockets(nil) // none
	err = errors.Join(err, failed)
	if errors.Is(err, pin.ErrLocked) {
		return fmt.Errorf("%w: stop weir-agent first", err)
	}
	return err
}

// uplinkAddresses are the addresses that the host registers with.
func uplinkAddresses(uplink string) ([]netip.Addr, error) {
	found, err := netlink.FindInterface(uplink)
	if err != nil {
		return nil, fmt.Errorf("read --uplink: %w", err)
	}
	var addresses []netip.Addr
	for _, a := range found.Addresses {
		if a.IsGlobalUnicast() {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("read --uplink: %s has no routable address: give it one", uplink)
	}
	return addresses, nil
}
