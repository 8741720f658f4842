package fabric

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/traffic"
)

// Load is traffic on a link, in 2^-20 kbit/s: rates are split over many paths, and each part is rounded up.
type Load int64

// loadBits are the binary digits of a Load below one kbit/s.
const loadBits = 20

// LoadOf is a rate as a load.
func LoadOf(rate traffic.Rate) Load { return Load(rate) << loadBits }

// Rate is the load in kbit/s, rounded up.
func (l Load) Rate() traffic.Rate { return traffic.Rate((l + 1<<loadBits - 1) >> loadBits) }

// Limits are the sizes of a switch's tables.
type Limits struct {
	Hosts   int32 // routes to single addresses
	ECMP    int32 // members of ECMP groups
	Tunnels int32 // encapsulation headers
	Reserve int32 // percent of each table that placement leaves free
}

// DefaultLimits are those of the switches in the paper (section 3.1).
var DefaultLimits = Limits{Hosts: 16384, ECMP: 4096, Tunnels: 512}

// usable is what placement may use of a table.
func (l Limits) usable(size int32) int64 { return int64(size) * int64(100-l.Reserve) / 100 }

// Spec describes a fabric by lists. Names are unique.
type Spec struct {
	Switches  []SwitchSpec
	Links     []LinkSpec
	Racks     []RackSpec
	External  []string // switches where traffic from outside enters; empty: those of the highest tier
	LinkShare int      // percent of bandwidth that placement may use; 0: 80
}

// SwitchSpec is a switch of a Spec.
type SwitchSpec struct {
	Name   string
	Limits *Limits // nil: DefaultLimits
	Down   bool    // its links carry nothing
}

// LinkSpec is a cable between two switches: the same bandwidth in both directions.
type LinkSpec struct {
	A, B           string
	Rate           traffic.Rate
	Background     traffic.Rate // other traffic from A to B
	BackgroundBack traffic.Rate // other traffic from B to A
	Down           bool
}

// RackSpec is a rack of hosts below a switch.
type RackSpec struct {
	Name, Switch string
	Prefixes     []netip.Prefix // of addresses in the rack
}

// Fabric is a checked model. It is not changed after New.
type Fabric struct {
	Switches  []Switch
	Links     []Link // directed: 2i and 2i+1 are the two directions of a cable
	Racks     []Rack
	External  []int32 // switches where traffic from outside enters
	Tiers     int32
	LinkShare int

	capacity []Load  // by link
	adjacent [][]hop // by switch, ascending by peer, then by link
	classes  []class
	leaves   []leaf
	hasRack  []bool // by switch
	byPrefix rackIndex
}

// Switch is a switch of a Fabric. Container and Plane are -1 for a switch that is in none.
type Switch struct {
	Name      string
	Limits    Limits
	Down      bool
	Tier      int32 // hops to the nearest switch with a rack
	Container int32 // switches that stay connected without the highest tier
	Plane     int32 // switches that stay connected without the lowest tier
	Leaf      int32 // index among the leaves, -1 if it is none
}

// Hosts, ECMP and Tunnels are the usable sizes of its tables.
func (s Switch) Hosts() int64   { return s.Limits.usable(s.Limits.Hosts) }
func (s Switch) ECMP() int64    { return s.Limits.usable(s.Limits.ECMP) }
func (s Switch) Tunnels() int64 { return s.Limits.usable(s.Limits.Tunnels) }

// Link is one direction of a cable.
type Link struct {
	From, To   int32
	Rate       traffic.Rate // bandwidth
	Background traffic.Rate // other traffic
	Down       bool
}

// Rack is a rack of hosts.
type Rack struct {
	Name     string
	Leaf     int32          // index among the leaves
	Prefixes []netip.Prefix // of addresses in the rack
}

// hop is a way out of a switch.
type hop struct{ peer, link int32 }

// leaf is a switch with racks, or, if a neighbour has racks too, a stub below the switch: then the switch itself is no
// leaf, and the class of the stub has the switch as its only neighbour.
type leaf struct {
	sw    int32
	class int32
	ways  []hop // out of the switch; none for a stub
}

// class is leaves with the same neighbours; their ways out are in the same order.
type class struct {
	neighbours []int32 // ascending, once each
	uplinks    []int32 // neighbour of each way out, as index of neighbours
	parallel   []int32 // ways out to that neighbour, by neighbour
	distance   []int32 // of each switch to the nearest neighbour
}

// Capacity is what placement may use of a link.
func (f *Fabric) Capacity(link int32) Load { return f.capacity[link] }

// LinkName names a direction of a cable.
func (f *Fabric) LinkName(link int32) string {
	return f.Switches[f.Links[link].From].Name + " to " + f.Switches[f.Links[link].To].Name
}

// LeafSwitches are the switches of leaves, in their order; -1 for a stub.
func (f *Fabric) LeafSwitches() []int32 {
	switches := make([]int32, len(f.leaves))
	for i, l := range f.leaves {
		switches[i] = l.sw
		if l.ways == nil {
			switches[i] = -1
		}
	}
	return switches
}

// WithLimits is the fabric with the tables of switches as limits has them, by name; others keep theirs.
func (f *Fabric) WithLimits(limits map[string]Limits) *Fabric {
	next := *f
	next.Switches = slices.Clone(f.Switches)
	for i := range next.Switches {
		if l, ok := limits[next.Switches[i].Name]; ok {
			next.Switches[i].Limits = l
		}
	}
	return &next
}
