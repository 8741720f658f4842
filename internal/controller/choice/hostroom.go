package choice

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/store"
)

// rooms are what VIPs of placement auto need of their hosts. They may have half of each one's tables: the other half is for
// placement require.
type rooms map[string]*need // by VIP

// need is what a VIP needs of each of its hosts, as of the generation of what that follows from.
type need struct {
	written model.Generation
	room    steering.Room
	hosts   []string // in order
	chosen  bool

	granted steering.Room // what it had room for last
	had     []string      // at which hosts, in order
	unfit   string        // why it has none
}

// grew says whether the VIP needs more than it had, or the same at other hosts.
func (n *need) grew() bool {
	return n.granted.Lacks(n.room) != nil || slices.ContainsFunc(n.hosts, func(host string) bool {
		_, had := slices.BinarySearch(n.had, host)
		return !had
	})
}

// clone is a copy that shares nothing that is written.
func (r rooms) clone() rooms {
	all := make(rooms, len(r))
	for name, n := range r {
		is := *n
		all[name] = &is
	}
	return all
}

// keep has those VIPs stay with the muxes that a host has no room to steer. Those that were chosen, and need no more than they
// had, come first, then those that grew, then others. It is computed anew when a VIP, or whether it is chosen, changed.
func (r rooms) keep(s *store.State, vips []placechoice.VIP) {
	changed, is := false, make(map[string]bool, len(vips))
	for i := range vips {
		if vip := &vips[i]; vip.Unfit == "" && len(vip.Required) == 0 {
			is[vip.Name] = true
			changed = r.note(s, *vip) || changed
		}
	}
	for name := range r {
		if !is[name] {
			delete(r, name)
			changed = true
		}
	}
	if changed {
		r.grant(vips)
	}
	for i := range vips {
		if n := r[vips[i].Name]; n != nil {
			vips[i].Unfit = n.unfit
		}
	}
}

// note takes over what a VIP needs now, and says whether that or its being chosen changed.
func (r rooms) note(s *store.State, seen placechoice.VIP) (changed bool) {
	vip, n := s.VIPs.At(seen.Name), r[seen.Name]
	written, chosen := condition.GenerationOf(s, vip), len(seen.Chosen) > 0
	if n != nil && n.written == written {
		changed, n.chosen = n.chosen != chosen, chosen
		return changed
	}
	room, hosts := desired.Steering(vip)
	next := &need{written: written, room: room.Plus(desired.KeptRoom(s.State, vip)), hosts: slices.Sorted(hosts), chosen: chosen}
	if next.granted, next.had = next.room, next.hosts; n != nil {
		next.granted, next.had = n.granted, n.had
	}
	r[seen.Name] = next
	return true
}

// grant gives VIPs what they need, as far as hosts have room.
func (r rooms) grant(vips []placechoice.VIP) {
	taken, half := map[string]steering.Room{}, steering.HostRoom().Half()
	var turns [3][]*need
	for _, vip := range vips {
		switch n := r[vip.Name]; {
		case n == nil:
		case n.chosen && !n.grew():
			turns[0] = append(turns[0], n)
		case n.chosen:
			turns[1] = append(turns[1], n)
		default:
			turns[2] = append(turns[2], n)
		}
	}
	for _, n := range slices.Concat(turns[:]...) {
		n.unfit = ""
		for _, host := range n.hosts {
			if err := half.Lacks(taken[host].Plus(n.room)); err != nil {
				n.unfit = fmt.Sprintf("host %s can't steer it: it %s", host, err)
				break
			}
		}
		if n.unfit != "" {
			continue
		}
		n.granted, n.had = n.room, n.hosts
		for _, host := range n.hosts {
			taken[host] = taken[host].Plus(n.room)
		}
	}
}
