package steered

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
)

// Hosts are those that are to be told of a VIP's change between two States: all that have backends of it, or workloads that leave as it.
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
			if vip.SNAT == nil {
				continue
			}
			for _, w := range vip.SNAT.Workloads {
				if !told[w.Host] && !yield(w.Host) {
					return
				}
				told[w.Host] = true
			}
		}
	}
}

// Touched are the names of VIPs that a change of placements, or of workloads' ports, may have changed for nodes.
func Touched(old, s desired.State, placements map[netip.Addr]bool, ports map[model.SNATKey]bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, state := range []desired.State{old, s} {
			for address := range placements { // by these hosts know which switches may send packets
				if vip, there := state.VIPAt(address); there && !yield(vip.Name) {
					return
				}
			}
			for key := range ports {
				if vip, there := state.VIPAt(key.VIP); there && len(state.SwitchesAt(key.VIP)) > 0 && !yield(vip.Name) {
					return
				}
			}
		}
	}
}

// VIPsOf are the names of the VIPs that a switch may send packets of.
func VIPsOf(s desired.State, node string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if s.Nodes.At(node).Role != model.RoleSwitch {
			return
		}
		for name := range s.Placements.Required() {
			if slices.Contains(s.VIPs.At(name).Hardware.Switches, node) && !yield(name) {
				return
			}
		}
		for address := range s.Placements.VIPsOf(node) {
			if vip, there := s.VIPAt(address); there && !yield(vip.Name) {
				return
			}
		}
	}
}
