package hardware

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// TIPAt is the TIP of a VIP at a switch; invalid: it has none.
func TIPAt(vip model.VIP, name string) netip.Addr {
	if vip.Hardware != nil {
		for _, t := range vip.Hardware.TIPs {
			if t.Switch == name {
				return t.Address
			}
		}
	}
	return netip.Addr{}
}

// Named are the switches that are to serve the VIP by its owner's word, and those behind its TIPs.
func Named(vip model.VIP) []string {
	if !vip.InHardware() {
		return nil
	}
	names := slices.Clone(vip.Hardware.Switches)
	for _, t := range vip.Hardware.TIPs {
		names = append(names, t.Switch)
	}
	return names
}

// AsksFor says whether the switch of a name is to serve the VIP, behind a TIP or not.
func AsksFor(vip model.VIP, name string) bool { return slices.Contains(Named(vip), name) }
