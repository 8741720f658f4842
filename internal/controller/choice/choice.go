// Package choice chooses switches for the VIPs of placement auto while a manager leads. What package placechoice decides
// is in the store before anybody acts on it; package placement then takes each VIP there, and back.
package choice

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wake"
)

const (
	// lookInterval is the time between two looks.
	lookInterval = time.Second
	// repairInterval is after how long VIPs are placed anew if nothing happened: traffic changes.
	repairInterval = 10 * time.Minute
	// silentTime is after how long of silence the VIPs of a switch go elsewhere.
	silentTime = time.Minute
	// mostMoves bounds the VIPs that are on their way at once.
	mostMoves = 32
	// stuckTime is after how long a step counts as one that will not come: of a switch that is dead, or does not report. It
	// takes no room of moves, and the VIP's way into that switch is given up.
	stuckTime = time.Minute
	// restShare is how much longer than a choice took the next one waits at least.
	restShare = 10
)

// Controller chooses switches for VIPs.
type Controller struct {
	Store *store.Store
	// Newest is what a node said last, to this manager or another one.
	Newest func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus)
	// Matrix reads what the agents of all managers counted; nil: it is not known.
	Matrix func(context.Context, *weirv1.ReadTrafficRequest, func(*weirv1.ReadTrafficResponse) error) error
	Now    func() time.Time
	Log    *slog.Logger

	turn   wake.Turn // guards what follows; it is held for as long as a choice and its writes take
	view   view
	choice *placechoice.Choice // nil: there is none yet
	seen   uint64              // what led to it
	due    time.Time           // of the next one, if nothing happens
	rest   time.Time           // before, there is no other
}

// Run chooses until ctx ends. What is not in the store begins anew with each leader: since when switches are silent, what
// of traffic was seen, and what is left of the moves of weir placement optimize.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.turn.Take(ctx); err != nil {
		return nil //nolint:nilerr // it ends before it begins
	}
	c.view, c.choice = newView(), nil
	c.turn.Leave()
	var measuring sync.WaitGroup
	defer measuring.Wait()
	measuring.Go(func() { // a manager that is away is waited for
		for ctx.Err() == nil {
			c.measure(ctx)
			wake.After(ctx, lookInterval)
		}
	})
	for {
		if err := c.Step(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("switches are not chosen for VIPs, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookInterval):
		}
	}
}

// decision is what is written of a VIP.
type decision struct {
	vip      string
	chosen   []string
	split    bool // each of them has a part
	unplaced string
	rate     uint64
}

// Step looks at switches and VIPs, chooses if something happened, and begins the moves that may begin.
func (c *Controller) Step(ctx context.Context) error {
	if err := c.turn.Take(ctx); err != nil {
		return err
	}
	defer c.turn.Leave()
	s, now := c.Store.State(), c.Now()
	w, why := c.world(s, now)
	if why != "" {
		c.choice = nil
		return c.write(ctx, unplaced(s, why))
	}
	if err := c.choose(ctx, w, now); err != nil {
		return err
	}
	return c.write(ctx, c.decide(ctx, s, w))
}

// unplaced are the decisions while nothing can be placed. VIPs leave their switches if the fabric was deleted; else they
// stay, as with a manager that is cut off from switches which serve them.
func unplaced(s *store.State, why string) (all []decision) {
	for name := range s.Placements.Auto() {
		state := s.Placements.At(s.VIPs.At(name).Address)
		if len(state.Chosen) > 0 && s.Fabrics.Len() == 0 || len(state.Chosen) == 0 && state.Unplaced != why {
			all = append(all, decision{vip: name, unplaced: why, rate: state.KbitPerS})
		}
	}
	return all
}

// choose makes a choice if it is time for one.
func (c *Controller) choose(ctx context.Context, w placechoice.World, now time.Time) error {
	seen := signature(w)
	if c.choice != nil && (seen == c.seen && now.Before(c.due) || now.Before(c.rest)) {
		return nil
	}
	begin := time.Now()
	choice, err := placechoice.Choose(ctx, w, false)
	if err != nil {
		return err
	}
	c.choice, c.seen, c.due = choice, seen, now.Add(repairInterval)
	c.rest = now.Add(restShare * time.Since(begin))
	return nil
}

// decide is what is to be written: the moves that may begin, and why VIPs stay with the muxes.
func (c *Controller) decide(ctx context.Context, s *store.State, w placechoice.World) (all []decision) {
	at, moving, seen := map[string]placechoice.At{}, 0, map[string]placechoice.VIP{}
	for _, vip := range w.VIPs {
		if seen[vip.Name] = vip; len(vip.Required) == 0 {
			if at[vip.Name] = vip.At; vip.Moves && !isStuck(s.Placements.At(s.VIPs.At(vip.Name).Address), c.Now()) {
				moving++
			}
		}
	}
	moved := map[string]bool{}
	moves, err := c.choice.Ready(ctx, at, max(mostMoves-moving, 0))
	if err != nil {
		c.Log.Warn("VIPs are not moved among switches", "err", err)
	}
	if len(moves) > 0 { // an optimisation goes on: it is not cut short by the next repair
		c.due = c.Now().Add(repairInterval)
	}
	reasons := map[string]string{}
	for _, u := range c.choice.Unplaced {
		reasons[u.VIP] = u.Reason
	}
	for _, m := range moves {
		d := decision{vip: m.VIP, chosen: m.To, split: w.Splits(seen[m.VIP], m.To), unplaced: reasons[m.VIP], rate: uint64(c.choice.Rate(m.VIP))}
		if m.ViaMuxes {
			d.chosen, d.unplaced = nil, "makes room for others, and goes to a switch then"
		}
		moved[m.VIP] = true
		all = append(all, d)
	}
	for _, u := range c.choice.Unplaced {
		vip, there := s.VIPs.Get(u.VIP)
		if state := s.Placements.At(vip.Address); there && !moved[u.VIP] && len(state.Chosen) == 0 && state.Unplaced != u.Reason {
			all = append(all, decision{vip: u.VIP, unplaced: u.Reason, rate: state.KbitPerS})
		}
	}
	for _, vip := range w.VIPs { // it has more tunnels than before, or fewer, and stays
		state := s.Placements.At(s.VIPs.At(vip.Name).Address)
		if len(vip.Required) == 0 && !moved[vip.Name] && len(state.Chosen) > 1 && state.Split != w.Splits(vip, state.Chosen) {
			all = append(all, decision{vip: vip.Name, chosen: state.Chosen, split: !state.Split, rate: state.KbitPerS})
		}
	}
	return all
}

// isStuck says whether all steps that a VIP waits for have been due for long.
func isStuck(state placementpolicy.State, now time.Time) bool {
	waits := false
	for _, p := range state.Places {
		if p.Phase.Moves() {
			if now.Sub(p.Since) < stuckTime {
				return false
			}
			waits = true
		}
	}
	return waits
}

// write writes decisions.
func (c *Controller) write(ctx context.Context, all []decision) error {
	for part := range slices.Chunk(all, etcd.SafeOperations) {
		_, err := c.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			change := store.Change{Placements: map[netip.Addr]placementpolicy.State{}}
			for _, d := range part {
				vip, there := s.VIPs.Get(d.vip)
				if !there || !vip.ChosenSwitches() {
					continue
				}
				before := s.Placements.At(vip.Address)
				next := before
				next.VIP, next.Tenant = vip.Name, vip.Tenant
				next.Chosen, next.Split, next.Unplaced, next.KbitPerS = d.chosen, d.split && len(d.chosen) > 1, d.unplaced, d.rate
				if len(d.chosen) > 0 {
					next.Unplaced = ""
				}
				if !next.Equal(before) {
					change.Placements[vip.Address] = next
				}
			}
			return change, nil
		})
		if err != nil {
			return err
		}
		for _, d := range part {
			c.Log.Info("switches chosen", "vip", d.vip, "result", strings.Join(d.chosen, ","), "reason", d.unplaced)
		}
	}
	return nil
}

// Plan is where VIPs would be if they were placed now, and the moves that lead there; anew: also those that may stay.
func (c *Controller) Plan(ctx context.Context, anew bool) (*placechoice.Choice, []placechoice.Move, error) {
	w, err := c.World(ctx)
	if err != nil {
		return nil, nil, err
	}
	return plan(ctx, w, anew)
}

func plan(ctx context.Context, w placechoice.World, anew bool) (*placechoice.Choice, []placechoice.Move, error) {
	choice, err := placechoice.Choose(ctx, w, anew)
	if err != nil {
		return nil, nil, err
	}
	moves, err := choice.Moves(ctx)
	return choice, moves, err
}

// Optimize places all VIPs anew, and has them moved there.
func (c *Controller) Optimize(ctx context.Context) (*placechoice.Choice, []placechoice.Move, error) {
	w, err := c.World(ctx)
	if err != nil {
		return nil, nil, err
	}
	choice, moves, err := plan(ctx, w, true)
	if err != nil {
		return nil, nil, err
	}
	if err := c.turn.Take(ctx); err != nil {
		return nil, nil, err
	}
	defer c.turn.Leave()
	c.choice, c.seen, c.due = choice, signature(w), c.Now().Add(repairInterval)
	return choice, moves, nil
}

// World is what the leader would choose by now.
func (c *Controller) World(ctx context.Context) (placechoice.World, error) {
	if err := c.turn.Take(ctx); err != nil {
		return placechoice.World{}, err
	}
	defer c.turn.Leave()
	w, why := c.world(c.Store.State(), c.Now())
	if why != "" {
		return w, errors.New(why)
	}
	return w, nil
}

// WorldOf is what the leader would choose by if this were the state. It notes nothing.
func (c *Controller) WorldOf(ctx context.Context, s *store.State) (placechoice.World, error) {
	if err := c.turn.Take(ctx); err != nil {
		return placechoice.World{}, err
	}
	asIf := &Controller{Newest: c.Newest, view: c.view.copy(c.Now())}
	c.turn.Leave()
	w, why := asIf.world(s, c.Now())
	if why != "" {
		return w, errors.New(why)
	}
	return w, nil
}
