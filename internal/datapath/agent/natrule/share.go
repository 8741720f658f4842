package natrule

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// spareShare is which part of the table is free when peers are given back.
const spareShare = 8

// beyondShare are the endpoints with multipath whose peers there is no room for: each of their backends has each other one as a peer,
// for good. Nothing is handed on to them here, nor a SYN of a subflow delivered that belongs elsewhere. A tenant is sure of its share
// of half of the table. The rest is first for what chaining needs of other endpoints; what is left of all is for those beyond their
// share, the tenants by turns. What was beyond before comes back when there is room to spare, so that what chaining needs, which
// comes and goes, does not take peers away and give them back again and again.
func beyondShare(rules map[model.HostBackendKey]model.HostBackend, capacity int, before map[model.EndpointKey]bool) map[model.EndpointKey]bool {
	need, tenants, left := map[model.EndpointKey]int{}, map[string][]model.EndpointKey{}, capacity
	for key, b := range rules {
		if len(b.Homes) == 0 {
			left -= len(b.ChainPeers)
			continue
		}
		if _, known := need[key.Endpoint]; !known {
			tenants[b.Tenant] = append(tenants[b.Tenant], key.Endpoint)
		}
		need[key.Endpoint] += len(b.ChainPeers)
	}
	beyond, turns := map[model.EndpointKey]bool{}, [][]model.EndpointKey{}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) { // the same each time, as is their order
		slices.SortFunc(tenants[tenant], model.EndpointKey.Compare)
		share, turn := capacity/2/len(tenants), 0
		for _, endpoint := range tenants[tenant] {
			if need[endpoint] <= share {
				share -= need[endpoint]
				left -= need[endpoint]
				continue
			}
			beyond[endpoint] = true
			if turn == len(turns) {
				turns = append(turns, nil)
			}
			turns[turn] = append(turns[turn], endpoint)
			turn++
		}
	}
	for _, endpoint := range slices.Concat(turns...) {
		spare := 0
		if before[endpoint] {
			spare = capacity / spareShare
		}
		if need[endpoint]+spare <= left {
			left -= need[endpoint]
			delete(beyond, endpoint)
		}
	}
	return beyond
}
