package choice

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/placechoice"
)

// keepToHosts has VIPs of placement auto stay with the muxes that a host has no room to steer, in half of its tables: the
// other half is for placement require. Those that have been chosen come first.
func keepToHosts(s desired.State, vips []placechoice.VIP) {
	needs, room := map[string]steering.Room{}, steering.HostRoom().Half()
	for _, chosen := range []bool{true, false} {
		for i := range vips {
			vip := &vips[i]
			if vip.Unfit != "" || len(vip.Required) > 0 || chosen != (len(vip.Chosen) > 0) {
				continue
			}
			need, hosts := desired.Steering(s.VIPs.At(vip.Name))
			on := slices.Sorted(hosts)
			for _, host := range on {
				if err := room.Lacks(needs[host].Plus(need)); err != nil {
					vip.Unfit = fmt.Sprintf("host %s can't steer it: it %s", host, err)
					break
				}
			}
			for _, host := range on {
				if vip.Unfit == "" {
					needs[host] = needs[host].Plus(need)
				}
			}
		}
	}
}
