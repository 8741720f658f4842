package admission

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// roomForSteering holds that hosts have room to steer the VIPs that are to be in hardware, in half of their tables, unless
// they need no more than before. The other half is for VIPs whose switches managers choose.
func (a *admission) roomForSteering(before desired.State) {
	if !slices.ContainsFunc(a.admitted, model.VIP.InHardware) {
		return
	}
	for i, vip := range a.admitted {
		if !vip.InHardware() {
			continue
		}
		_, hosts := desired.Steering(vip)
		for _, host := range slices.Sorted(hosts) {
			was, is := before.SteeringOn(host), a.SteeringOn(host)
			if err := steering.HostRoom().Half().Lacks(is); err != nil && was.Lacks(is) != nil {
				a.refuse(fmt.Sprintf("vips[%d].hardware", i), "host %s can't steer more VIPs in switches: it %s", host, err)
				break
			}
		}
	}
}
