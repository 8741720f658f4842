package placechoice

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// Choice is where VIPs of placement auto are to be.
type Choice struct {
	Target   placement.Where // VIPs that are to be in switches
	Unplaced []placement.Unplaced
	Total    traffic.Rate // of all VIPs, those of placement require too
	Hardware traffic.Rate // of it in switches
	HotLinks []placement.HotLink

	Unmeasured int // VIPs whose traffic is not known

	model model
	at    map[string]At
}

// Choose places the VIPs. What fits where it is stays there, unless all are to be placed anew.
func Choose(ctx context.Context, w World, anew bool) (*Choice, error) {
	m := newModel(w)
	current := m.current
	if anew {
		current = requiredAlone(current)
	}
	r, err := placement.Place(ctx, m.fabric, m.demands, current, m.policy)
	if err != nil {
		return nil, err
	}
	c := &Choice{Target: placement.Where{}, Total: r.Total, Hardware: r.Hardware, HotLinks: r.HotLinks, model: m, at: map[string]At{}}
	for name, switches := range r.Where(m.fabric) {
		if !isRequired(name) {
			slices.Sort(switches)
			c.Target[name] = switches
		}
	}
	for _, u := range r.Unplaced {
		if !isRequired(u.VIP) {
			c.Unplaced = append(c.Unplaced, u)
		}
	}
	for _, vip := range w.VIPs {
		if !vip.Measured {
			c.Unmeasured++
		}
		if why, unfit := m.unfit[vip.Name]; unfit && len(vip.Required) == 0 {
			c.Unplaced = append(c.Unplaced, placement.Unplaced{VIP: vip.Name, Rate: vip.Rate, Reason: why})
			c.Total += vip.Rate
		}
		if len(vip.Required) == 0 {
			c.at[vip.Name] = vip.At
		}
	}
	slices.SortFunc(c.Unplaced, func(a, b placement.Unplaced) int { return strings.Compare(a.VIP, b.VIP) })
	return c, nil
}

// requiredAlone is where VIPs of placement require are.
func requiredAlone(all placement.Where) placement.Where {
	where := placement.Where{}
	for name, switches := range all {
		if isRequired(name) {
			where[name] = switches
		}
	}
	return where
}

func isRequired(demand string) bool { return strings.Contains(demand, "@") }

// Move is a change of where a VIP is.
type Move struct {
	VIP      string
	Rate     traffic.Rate
	From, To []string // none: the muxes
	ViaMuxes bool     // To is where it goes later: muxes serve it meanwhile
}

// Moves are all that lead to the choice, in an order in which each has room.
func (c *Choice) Moves(ctx context.Context) ([]Move, error) {
	from, _ := c.places(c.at)
	steps, err := placement.Migrate(ctx, c.model.fabric, c.model.demands, from, c.target(from), c.model.policy)
	return c.moves(steps), err
}

// Ready are the moves that may begin now, so many at most, where VIPs are as at has them.
func (c *Choice) Ready(ctx context.Context, at map[string]At, most int) ([]Move, error) {
	moves, left := []Move(nil), map[string]At{}
	for name, a := range at {
		switch _, unfit := c.model.unfit[name]; {
		case !unfit:
			left[name] = a
		case len(a.Chosen) > 0:
			moves = append(moves, Move{VIP: name, From: a.Chosen})
		}
	}
	slices.SortFunc(moves, func(a, b Move) int { return strings.Compare(a.VIP, b.VIP) })
	from, under := c.places(left)
	steps, err := placement.Ready(ctx, c.model.fabric, c.model.demands, from, under, c.target(from), c.model.policy, max(most-len(moves), 0))
	return append(moves, c.moves(steps)...), err
}

// places are where moves begin, and where the VIPs go that are on their way. A VIP on its way to a switch that it can't be in
// any more is not on its way.
func (c *Choice) places(at map[string]At) (from, under placement.Where) {
	from, under = placement.Where{}, placement.Where{}
	for name, a := range at {
		if switches := a.from(); len(switches) > 0 {
			from[name] = switches
		}
		if a.Moves && !slices.ContainsFunc(a.Chosen, func(s string) bool { return c.avoids(name, s) }) {
			under[name] = a.Chosen
		}
	}
	maps.Copy(from, requiredAlone(c.model.current))
	return from, under
}

// avoids says whether the VIP can't be in the switch.
func (c *Choice) avoids(vip, name string) bool {
	_, excluded := slices.BinarySearch(c.model.policy.Exclude, name)
	_, avoided := slices.BinarySearch(c.model.policy.VIPs[vip].Avoid, name)
	return excluded || avoided
}

// target is where all demands are to be: those of placement require stay.
func (c *Choice) target(from placement.Where) placement.Where {
	to := maps.Clone(c.Target)
	maps.Copy(to, requiredAlone(from))
	return to
}

func (c *Choice) moves(steps []placement.Step) []Move {
	names := func(members []int32) (all []string) {
		for _, sw := range members {
			all = append(all, c.model.fabric.Switches[sw].Name)
		}
		slices.Sort(all)
		return all
	}
	moves := make([]Move, 0, len(steps))
	for _, s := range steps {
		move := Move{VIP: s.VIP, Rate: s.Rate, From: names(s.From), To: names(s.To)}
		if s.Kind == placement.ViaSoftware {
			move.To, move.ViaMuxes = c.Target[s.VIP], true
		}
		moves = append(moves, move)
	}
	return moves
}

// Rate is the traffic that the choice reckons with of a VIP.
func (c *Choice) Rate(vip string) traffic.Rate { return c.model.rates[vip] }

// Explain says what there was to choose for a VIP of placement auto, or why it can't be in any switch.
func Explain(ctx context.Context, w World, vip string) (explained *placement.Explanation, unfit string, err error) {
	m := newModel(w)
	if why, is := m.unfit[vip]; is {
		return nil, why, nil
	}
	explained, err = placement.Explain(ctx, m.fabric, m.demands, m.current, m.policy, vip)
	return explained, "", err
}
