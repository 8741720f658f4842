package natrule

import (
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// beyondShare are the endpoints with multipath whose peers do not fit into their tenant's share of the room: each of their
// backends has each other one as a peer, for good. Nothing is handed on to them here, nor a SYN of a subflow delivered that belongs
// elsewhere. What chaining needs of other endpoints has the other half of the table.
func beyondShare(rules map[model.HostBackendKey]model.HostBackend, room int) map[model.EndpointKey]bool {
	need, tenants := map[model.EndpointKey]int{}, map[string][]model.EndpointKey{}
	for key, b := range rules {
		if len(b.Homes) == 0 {
			continue
		}
		if _, known := need[key.Endpoint]; !known {
			tenants[b.Tenant] = append(tenants[b.Tenant], key.Endpoint)
		}
		need[key.Endpoint] += len(b.ChainPeers)
	}
	beyond := map[model.EndpointKey]bool{}
	for _, endpoints := range tenants {
		slices.SortFunc(endpoints, model.EndpointKey.Compare) // the same each time
		left := room / len(tenants)
		for _, endpoint := range endpoints {
			if need[endpoint] > left {
				beyond[endpoint] = true
				continue
			}
			left -= need[endpoint]
		}
	}
	return beyond
}
