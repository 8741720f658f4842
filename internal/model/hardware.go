package model

import "net/netip"

// Hardware says which switches serve a VIP. Package hardware holds what is valid.
type Hardware struct {
	Placement Placement // never empty
	Switches  []string  // names of nodes, each once
	UDP       UDPHome   // never empty
	Split     bool      // each switch has a part of the backends
	Spread    int       // of PlacementAuto: so many switches at once at most; 0: as many as fit best
	ByHost    bool      // a switch has one tunnel for all backends on a host
	Flood     OnFlood   // never empty
	TIPs      []TIP     // that the switches have in place of backends
}

// TIP is an address that a switch takes a VIP's packets at, which another switch has put into IP-in-IP.
type TIP struct {
	Switch  string // name of a node, once
	Address netip.Addr
}

// Placement says whether switches serve a VIP.
type Placement string

// The placements.
const (
	PlacementNever   Placement = "never"
	PlacementRequire Placement = "require" // the switches that are named, and muxes while they can't
	PlacementAuto    Placement = "auto"    // those that managers choose
)

// UDPHome says where a flow of UDP is served that comes by a switch.
type UDPHome string

// The homes.
const (
	UDPAtHome UDPHome = "home"  // at the backend of its bucket
	UDPLocal  UDPHome = "local" // at the backend that the switch chose
)

// OnFlood says what becomes of a VIP in switches while it is flooded.
type OnFlood string

// What may.
const (
	FloodWithdraw OnFlood = "withdraw" // muxes serve it, which have guards
	FloodStay     OnFlood = "stay"     // switches go on
)

// MayBeInHardware says whether switches serve the VIP at times.
func (vip VIP) MayBeInHardware() bool {
	return vip.Hardware != nil && vip.Hardware.Placement != PlacementNever
}

// LeavesFloods says whether the VIP is in switches, and leaves them while it is flooded.
func (vip VIP) LeavesFloods() bool {
	return vip.MayBeInHardware() && vip.Hardware.Flood != FloodStay
}

// InHardware says whether the switches that the VIP names are to serve it.
func (vip VIP) InHardware() bool {
	return vip.Hardware != nil && vip.Hardware.Placement == PlacementRequire
}

// ChosenSwitches says whether managers choose the switches that serve the VIP.
func (vip VIP) ChosenSwitches() bool {
	return vip.Hardware != nil && vip.Hardware.Placement == PlacementAuto
}
