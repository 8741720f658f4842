package change

import (
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/model"
)

// conflicts says what VIPs have against each other, whatever else there is: an address that two of them have, that is a
// backend of another, or that leads to two hosts. The paths of its field errors begin with vips[i].
func conflicts(list []*weirv1.VIP) error {
	vips, err := compile.VIPs(list)
	if err != nil {
		return err
	}
	for i := range vips {
		vips[i] = alone(vips[i], i)
	}
	_, err = admission.VIPs(desired.State{}, vips, false)
	return err
}

// alone is a VIP without what it needs others for that are not VIPs: pools, lists, networks, and the names of hosts that it
// gives by their addresses. One that takes its address from a pool has one of 100::/64, which nobody has (RFC 6666).
func alone(vip model.VIP, i int) model.VIP {
	vip.Pool, vip.Family, vip.Overload, vip.Attachments = "", "", nil, nil
	if !vip.Address.IsValid() {
		vip.Address = netip.AddrFrom16([16]byte{0: 1, 12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
	}
	vip.Endpoints = slices.Clone(vip.Endpoints)
	for j := range vip.Endpoints {
		e := &vip.Endpoints[j]
		e.AllowLists, e.DenyLists, e.HealthCheck = nil, nil, nil
		e.Backends = slices.DeleteFunc(slices.Clone(e.Backends), func(b model.Backend) bool { return isAddress(b.Host) })
	}
	if vip.SNAT != nil {
		s := *vip.SNAT
		s.Workloads = slices.DeleteFunc(slices.Clone(s.Workloads), func(w model.SNATWorkload) bool { return isAddress(w.Host) })
		vip.SNAT = &s
	}
	return vip
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
