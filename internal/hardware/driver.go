package hardware

import (
	"context"
	"net/netip"

	"github.com/weirlb/weir/internal/model/vnet"
)

// Driver programs a switch. Its methods are called by one goroutine at a time. A call that the switch does not answer ends
// with the context.
type Driver interface {
	// Capabilities are what the switch can do and hold, and what of its tables is in use.
	Capabilities(ctx context.Context) (Capabilities, error)
	// Program makes the switch have exactly e for its VIP: idempotent, and it returns when the hardware, not only a database,
	// has it. While it runs packets find the entry before or this one, never a mixture, never none. What does not fit is
	// refused whole with a *Refusal: the entry before stays.
	Program(ctx context.Context, e Entry) error
	// Remove takes the entry of a VIP away, if there is one.
	Remove(ctx context.Context, vip netip.Addr) error
	// Read reads back what the switch has of ours, by VIP: for the audit, and after a restart.
	Read(ctx context.Context) ([]Entry, error)
	// Boot changes when the switch has lost its tables, as by a reboot.
	Boot(ctx context.Context) (string, error)
	// Ports reads the ports to other switches and to hosts. It runs beside the other methods.
	Ports(ctx context.Context) (Ports, error)
	Close() error
}

// Watcher is a Driver that hears at once of what others do to the switch's tables. Others are read from time to time.
type Watcher interface {
	// Watch calls changed when a table may be other than this driver left it, until ctx ends, once in the driver's life. It runs
	// beside the other methods.
	Watch(ctx context.Context, changed func()) error
}

// Router is a Driver of a switch that routes what it sends into tunnels by this machine's tables.
type Router interface {
	// Unreachable are those of the tunnels that there is no route to, of TIPs none to the address alone. It runs beside the
	// other methods.
	Unreachable(ctx context.Context, tunnels []Tunnel) ([]netip.Addr, error)
}

// Tunnel is where members of entries lead.
type Tunnel struct {
	Address netip.Addr
	// TIP says that it is one of another switch, which tells routers of it alone: a route to more than that may be there without
	// it, and lead nowhere.
	TIP bool
}

// Entry is a VIP in a switch.
type Entry struct {
	VIP     netip.Addr
	Source  netip.Addr // of the outer headers, in the family of the members' tunnels
	Members []Member   // in the order of the ECMP group; at least one, all of one family
	// Inner makes VIP a TIP (Duet, section 5.2): packets come to it from another switch in IP-in-IP, whose header is taken
	// off. What is inside must be for Inner. Invalid: VIP is none.
	Inner netip.Addr
	// Sources are the outer sources, of the family of VIP, that a TIP takes packets from, in order; none: any.
	Sources []netip.Addr
}

// Member is a next hop of an ECMP group.
type Member struct {
	Tunnel  netip.Addr // destination of the outer header; once in an entry
	Entries uint32     // of the group, at least 1: its weight
}

// Encapsulation is what a switch puts in front of a packet.
type Encapsulation string

// Encapsulations that hosts take.
const (
	IPinIP Encapsulation = "ip-in-ip"
	VXLAN  Encapsulation = "vxlan"
)

// VXLANNetwork is the network (VNI) of packets to hosts in VXLAN. Hosts take them in no other.
const VXLANNetwork = vnet.SwitchVNI

// Capabilities are what a switch can do and hold.
type Capabilities struct {
	Driver         string
	Encapsulations []Encapsulation
	Outer4, Outer6 bool   // families of the outer header
	Weights        bool   // members may have different numbers of entries
	TIPs           bool   // entries may have an Inner, and Sources
	Resilient      bool   // a member that leaves moves only its own flows
	MaxMembers     uint32 // entries of one group
	Hosts          Table
	ECMP           Table
	Tunnels        Table
	Warnings       []string // what an operator should set up otherwise
}

// Table is one of a switch's tables. Entries of others count as used.
type Table struct {
	Size, Used uint32
}

// Free is how many rows may still be added.
func (t Table) Free() uint32 { return t.Size - min(t.Used, t.Size) }
