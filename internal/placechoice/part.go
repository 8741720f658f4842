package placechoice

import (
	"slices"

	"github.com/weirlb/weir/internal/fabric"
)

// sizes are what is computed of a World once.
type sizes struct {
	whole  uint32 // tunnels of a VIP that a switch may hold: that which may hold most
	widest int    // switches that are equally far from everywhere, at most
}

func (w World) sizesOf() sizes {
	of, in := sizes{widest: 1}, map[int32]int{}
	for _, s := range w.Fabric.Switches {
		if device, takes := w.Switches[s.Name]; takes && !s.Down {
			of.whole = max(of.whole, device.mayHold(s.Limits))
		}
		if s.Leaf < 0 {
			in[s.Container]++
			of.widest = max(of.widest, in[s.Container])
		}
	}
	return of
}

// mayHold is how many tunnels of a VIP the switch may hold, if nothing else is there.
func (s Switch) mayHold(of fabric.Limits) uint32 {
	smaller := func(size int32, reported uint32) uint32 {
		if reported == 0 {
			return uint32(max(size, 0))
		}
		return min(uint32(max(size, 0)), reported)
	}
	rows := smaller(of.ECMP, s.ECMP)
	if !s.InPlace {
		rows /= 2
	}
	most := min(rows, smaller(of.Tunnels, s.Tunnels))
	if s.Members > 0 {
		most = min(most, s.Members)
	}
	return most
}

// groups bounds by switch how many tunnels of a VIP one may hold.
func (w World) groups() map[string]int64 {
	groups := map[string]int64{}
	for name, s := range w.Switches {
		if s.Members > 0 {
			groups[name] = int64(s.Members)
		}
	}
	return groups
}

// Splits says whether switches, of those that were chosen for a VIP, are to have parts of its tunnels: one of them can't hold
// all. Of one that is away counts what the fabric says.
func (w World) Splits(vip VIP, chosen []string) bool {
	if len(chosen) < 2 {
		return false
	}
	for _, s := range w.Fabric.Switches {
		if slices.Contains(chosen, s.Name) && len(vip.Tunnels) > int(w.Switches[s.Name].mayHold(s.Limits)) {
			return true
		}
	}
	return false
}

// splits says whether a VIP, of placement auto, has more tunnels than any switch holds: switches then have parts of them.
func (w World) splits(vip VIP) bool {
	return len(vip.Required) == 0 && len(vip.Tunnels) > int(w.sizes.whole)
}

// most is how many switches a VIP of placement auto may be on at once.
func (w World) most(vip VIP) int {
	if vip.Most == 0 && w.splits(vip) {
		return w.sizes.widest
	}
	return max(vip.Most, 1)
}

// least is what a VIP takes of a switch at least: of tunnels, and of rows of the ECMP group.
func (w World) least(vip VIP) (members, rows uint32) {
	members, rows = uint32(len(vip.Tunnels)), vip.Rows
	if n := uint32(min(w.most(vip), w.sizes.widest)); n > 1 && w.splits(vip) {
		each := (rows + members - 1) / members
		members = (members+n-1)/n + 1 // a cut goes through one
		rows = members * each
	}
	return members, rows
}
