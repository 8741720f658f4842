package desired

import (
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overloadpolicy"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/sorted"
)

// State is all that tables are computed from, with what finds them by address and by host. A copy that was
// not made by Clone is read only.
type State struct {
	VIPs   sorted.Map[string, model.VIP]  // written by PutVIP and RemoveVIP
	Tables Tables                         // written by PutTable and RemoveTable
	Nodes  sorted.Map[string, model.Node] // written by PutNode and RemoveNode
	Health Health
	Pools  sorted.Map[string, model.AddressPool]
	Ports  snatport.Allocations
	Steps  sorted.Map[string, overloadpolicy.State] // of overload policies, by VIP

	PrefixLists PrefixLists
	Placements  Placements
	Networks    network.Set

	Restored Restored

	Addresses       Addresses
	muxes, switches sorted.Map[string, model.Node]
	places          places
	usage           usage
	fastpaths       fastpaths
	byTenant        byTenant
	hostRooms       hostRooms
	keptRooms       keptRooms
	multipathRooms  multipathRooms
}

// Restored is the state of a recent restore from a backup. Ranges of ports, addresses of pools and slots that were
// allocated after the backup are not in the store, and must not be allocated again.
type Restored struct {
	At      model.Generation // of the newest step of the restore; 0: there is none
	Settled bool             // the nodes have reported what they hold: ranges and addresses are allocated again
}

// Pending says whether nothing may be allocated, because what nodes hold is not known yet.
func (r Restored) Pending() bool { return r.At != 0 && !r.Settled }
