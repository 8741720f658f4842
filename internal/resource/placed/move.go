package placed

import (
	"context"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/store"
)

// chooseTime bounds the choice of switches for a dry run.
const chooseTime = 2 * time.Second

// Moves are the moves of VIPs, whose applying would be change: nil of one that stays or does not change, and of one whose
// switches the leader has no time to choose.
func (m *Placements) Moves(ctx context.Context, s *store.State, vips []model.VIP, change store.Change) []*weirv1.PlacementMove {
	moves := make([]*weirv1.PlacementMove, len(vips))
	chosen := m.wouldChoose(ctx, s, change)
	changes := map[string]bool{}
	for _, vip := range change.VIPs {
		changes[vip.Name] = true
	}
	for i, vip := range vips {
		switch {
		case !vip.ChosenSwitches():
			moves[i] = move(s, vip, named(s, vip))
		case chosen != nil && changes[vip.Name]:
			moves[i] = move(s, vip, chosen.Target[vip.Name])
		}
	}
	return moves
}

// wouldChoose is what the leader would choose after a change; nil: it has nothing to choose of it, or no time.
func (m *Placements) wouldChoose(ctx context.Context, s *store.State, change store.Change) (chosen *placechoice.Choice) {
	if !slices.ContainsFunc(change.VIPs, model.VIP.ChosenSwitches) {
		return nil
	}
	next := s.Clone()
	for key, table := range change.Tables {
		desired.PutTable(&next.State, key, table)
	}
	for _, vip := range change.VIPs {
		next.PutVIP(vip)
		next.Written.Set(vip.Name, s.Generation+1)
	}
	ctx, cancel := context.WithTimeout(ctx, chooseTime)
	defer cancel()
	err := m.turns.compute(ctx, tenants(change), func(ctx context.Context) error {
		w, err := m.Chooser.WorldOf(ctx, next)
		if err == nil {
			chosen, err = placechoice.Choose(ctx, w, false)
		}
		return err
	})
	if err != nil {
		return nil
	}
	return chosen
}

// tenants are those that a change writes VIPs of.
func tenants(change store.Change) (names []string) {
	for _, vip := range change.VIPs {
		names = append(names, vip.Tenant)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// named are the switches that an owner names and that take VIPs: they are registered and not drained.
func named(s *store.State, vip model.VIP) (to []string) {
	for _, name := range hardware.Named(vip) {
		if node := s.Nodes.At(name); node.Role == model.RoleSwitch && node.Drained.IsZero() {
			to = append(to, name)
		}
	}
	return to
}

// move is which switches serve a VIP, or are about to, and which will; nil: the same.
func move(s *store.State, vip model.VIP, to []string) *weirv1.PlacementMove {
	move := &weirv1.PlacementMove{Vip: vip.Name, To: slices.Clone(to)}
	old, there := s.VIPs.Get(vip.Name)
	for name, place := range s.Placements.At(old.Address).Places {
		if there && place.Phase.Serves() {
			move.From = append(move.From, name)
		}
	}
	slices.Sort(move.From)
	if slices.Sort(move.To); slices.Equal(move.From, move.To) {
		return nil
	}
	return move
}
