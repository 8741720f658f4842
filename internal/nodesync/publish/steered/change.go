package steered

import (
	"iter"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
)

// Hosts are those that are to be told of a VIP's change between two States: all that have backends of it.
func Hosts(old, s desired.State, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		before, after := old.VIPs.At(name), s.VIPs.At(name)
		was, held := nodeconfig.Steered(old, before)
		is, holds := nodeconfig.Steered(s, after)
		if held == holds && was.Equal(is) {
			return
		}
		told := map[string]bool{}
		for _, vip := range []model.VIP{before, after} {
			for _, e := range vip.Endpoints {
				for _, b := range e.Backends {
					if !told[b.Host] && !yield(b.Host) {
						return
					}
					told[b.Host] = true
				}
			}
		}
	}
}

// VIPsOf are the names of the VIPs that are to be held by a switch.
func VIPsOf(s desired.State, node string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if s.Nodes.At(node).Role != model.RoleSwitch {
			return
		}
		for vip := range s.VIPs.Values() {
			if !vip.InHardware() {
				continue
			}
			for _, name := range vip.Hardware.Switches {
				if name == node && !yield(vip.Name) {
					return
				}
			}
		}
	}
}
