package placed

import (
	"context"
	"errors"
	"slices"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/store"
)

// Chooser is who chooses switches while this manager leads.
type Chooser interface {
	// Plan is where VIPs would be, and the moves that lead there; anew: also those that may stay.
	Plan(ctx context.Context, anew bool) (*placechoice.Choice, []placechoice.Move, error)
	// Optimize is Plan anew, and begins the moves.
	Optimize(ctx context.Context) (*placechoice.Choice, []placechoice.Move, error)
	// World is what is chosen by.
	World(ctx context.Context) (placechoice.World, error)
	// WorldOf is what would be chosen by if this were the state.
	WorldOf(ctx context.Context, s *store.State) (placechoice.World, error)
}

// Placements are the calls about where VIPs are of switches.
type Placements struct {
	Store   *store.Store
	Chooser Chooser

	turns turns
}

// PlanPlacement says where VIPs would be.
func (m *Placements) PlanPlacement(ctx context.Context, r *weirv1.PlanPlacementRequest) (*weirv1.PlanPlacementResponse, error) {
	var plan *weirv1.PlanPlacementResponse
	err := m.turns.compute(ctx, nil, func(ctx context.Context) (err error) {
		plan, err = planned(m.Chooser.Plan(ctx, r.GetOptimize()))
		return err
	})
	return plan, err
}

// OptimizePlacement places all VIPs anew.
func (m *Placements) OptimizePlacement(ctx context.Context, _ *weirv1.OptimizePlacementRequest) (*weirv1.OptimizePlacementResponse, error) {
	var plan *weirv1.PlanPlacementResponse
	err := m.turns.compute(ctx, nil, func(ctx context.Context) (err error) {
		plan, err = planned(m.Chooser.Optimize(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.OptimizePlacementResponse{Plan: plan}, nil
}

// refused is an error of the leader's choice.
func refused(err error) error { return connect.NewError(connect.CodeFailedPrecondition, err) }

func planned(c *placechoice.Choice, moves []placechoice.Move, err error) (*weirv1.PlanPlacementResponse, error) {
	if err != nil {
		return nil, refused(err)
	}
	p := &weirv1.PlanPlacementResponse{
		Placed: uint32(len(c.Target)), KbitPerS: uint64(c.Total), HardwareKbitPerS: uint64(c.Hardware), Unmeasured: uint32(c.Unmeasured),
	}
	for _, m := range moves {
		p.Moves = append(p.Moves, &weirv1.PlacementMove{Vip: m.VIP, From: m.From, To: m.To, KbitPerS: uint64(m.Rate), ViaMuxes: m.ViaMuxes})
	}
	for _, u := range c.Unplaced {
		p.Unplaced = append(p.Unplaced, &weirv1.UnplacedVIP{Vip: u.VIP, KbitPerS: uint64(u.Rate), Resource: string(u.Resource), Reason: u.Reason})
	}
	for _, l := range c.HotLinks {
		p.HotLinks = append(p.HotLinks, &weirv1.PlacementLink{Name: l.Name, KbitPerS: uint64(l.Rate), UtilisationPermille: permille(l.Utilisation)})
	}
	return p, nil
}

func permille(x float64) uint32 { return uint32(min(max(x, 0), 1e6)*1000 + 0.5) }

// ExplainPlacement says why a VIP is where it is.
func (m *Placements) ExplainPlacement(ctx context.Context, r *weirv1.ExplainPlacementRequest) (*weirv1.ExplainPlacementResponse, error) {
	s := m.Store.State()
	vip, there := s.VIPs.Get(r.GetVip())
	if !there {
		return nil, apierr.ToConnect(apierr.NotFound("VIP", r.GetVip(), s.VIPs, authz.CanViewVIP(ctx)))
	}
	state := s.Placements.At(vip.Address)
	p := &weirv1.ExplainPlacementResponse{Vip: vip.Name, Placement: string(model.PlacementNever), Switches: state.Switches(), Reason: "its owner keeps it with the muxes"}
	switch {
	case vip.InHardware():
		p.Placement, p.Switches, p.Reason = string(vip.Hardware.Placement), vip.Hardware.Switches, "its owner names the switches"
		return p, nil
	case !vip.ChosenSwitches():
		return p, nil
	}
	p.Placement, p.Switches = string(vip.Hardware.Placement), state.Chosen
	return p, m.turns.compute(ctx, nil, func(ctx context.Context) error { return m.explainChoice(ctx, vip.Name, p) })
}

// explainChoice adds what the leader would choose, and why.
func (m *Placements) explainChoice(ctx context.Context, vip string, p *weirv1.ExplainPlacementResponse) error {
	w, err := m.Chooser.World(ctx)
	if err != nil {
		p.Reason = err.Error()
		return nil
	}
	at := slices.IndexFunc(w.VIPs, func(v placechoice.VIP) bool { return v.Name == vip })
	if at < 0 { // it was written since
		return apierr.ToConnect(errors.New("the leader has not looked at it yet: try again"))
	}
	seen := w.VIPs[at]
	p.KbitPerS, p.Unmeasured, p.Backends = uint64(seen.Rate), !seen.Measured, uint32(len(seen.Tunnels))
	explained, unfit, err := placechoice.Explain(ctx, w, vip)
	switch {
	case err != nil:
		return refused(err)
	case unfit != "":
		p.Reason = unfit
		return nil
	}
	explain(p, explained)
	return nil
}

// explain adds what there was to choose.
func explain(p *weirv1.ExplainPlacementResponse, e *placement.Explanation) {
	p.KbitPerS, p.WouldBe, p.Resource, p.Reason = uint64(e.Rate), e.Switches, string(e.Resource), e.Reason
	for _, o := range e.Options {
		p.Options = append(p.Options, &weirv1.PlacementOption{
			Kind: o.Kind, Candidates: uint32(o.Candidates), Fit: uint32(o.Fit), Switches: o.Switches, UtilisationPermille: permille(o.Utilisation), Reason: o.Reason,
		})
	}
}
