package placed

import (
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/store"
)

// Move is which switches serve a VIP, or are about to, and which will once it is applied; nil: the same, or managers choose
// them, which they do when it is applied. Switches that are not registered or drained take no VIP.
func Move(s *store.State, vip model.VIP) *weirv1.PlacementMove {
	if vip.ChosenSwitches() {
		return nil
	}
	move := &weirv1.PlacementMove{Vip: vip.Name}
	old, there := s.VIPs.Get(vip.Name)
	for name, place := range s.Placements.At(old.Address).Places {
		if there && place.Phase.Serves() {
			move.From = append(move.From, name)
		}
	}
	for _, name := range hardware.Named(vip) {
		if node := s.Nodes.At(name); node.Role == model.RoleSwitch && node.Drained.IsZero() {
			move.To = append(move.To, name)
		}
	}
	slices.Sort(move.From)
	if slices.Sort(move.To); slices.Equal(move.From, move.To) {
		return nil
	}
	return move
}
