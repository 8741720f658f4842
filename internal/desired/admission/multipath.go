package admission

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/multipath"
)

// roomForMultipath holds that hosts have room for endpoints with multipath, in half of their tables, unless they need no more
// than before.
func (a *admission) roomForMultipath(before desired.State) {
	for i, vip := range a.admitted {
		for _, host := range slices.Sorted(maps.Keys(multipath.RoomOf(vip))) {
			if need := a.MultipathOn(host); need.IsLacking(before.MultipathOn(host)) {
				a.refuse(fmt.Sprintf("vips[%d].endpoints", i), "host %s can't have more multipath: it needs %d endpoints and %d peers, has room for %d and %d", host,
					need.Endpoints, need.Peers, multipath.MaxEndpoints/2, multipath.MaxPeers/2)
				break
			}
		}
	}
}
