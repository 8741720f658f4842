package admission

import (
	"fmt"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// snat holds that each workload leaves as this VIP alone, and that there are ports for all.
func (a *admission) snat(path string, vip model.VIP) {
	for i, w := range vip.SNAT.Workloads {
		at := fmt.Sprintf("%s.workloads[%d]", path, i)
		a.backend(at, vip, model.Backend{Address: w.Address, Host: w.Host, Tunnel: w.Tunnel})
		for u := range a.Addresses.Of(w.Address, desired.AsWorkload) {
			if u.Name != vip.Name {
				a.refuse(at+".address", "%s leaves as %s already", w.Address, a.other(u.Name, vip))
			}
		}
	}
	ports := snat.FreeCount(nil, snat.Blocked(vip)) * model.RangePorts
	if wanted := len(vip.SNAT.Workloads) * int(vip.SNAT.Preallocate); wanted > ports {
		a.refuse(path+".preallocate", "%d ports for each of %d workloads are more than the %d that can be given out",
			vip.SNAT.Preallocate, len(vip.SNAT.Workloads), ports)
	}
}

// portFree holds that no workload leaves with the endpoint's port.
func (a *admission) portFree(field string, vip model.VIP, e model.Endpoint) {
	r := model.RangeOf(e.Port)
	if e.Port == model.AllPorts || !a.Ports.Taken(vip.Address).Has(r) {
		return
	}
	for key, h := range a.Ports.Of(vip.Address) {
		if h.Has(r) {
			a.refuse(field, "%d is one of the ports %d to %d, which %s leaves with, or did lately: add it to snat.reserved, "+
				"and apply the endpoint when weir snat shows them no more", e.Port, r.First(), r.First()+model.RangePorts-1, key.Address)
		}
	}
}
