package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// Explanation says why a VIP is where it is.
type Explanation struct {
	VIP      string       `json:"vip"`
	Rate     traffic.Rate `json:"kbitPerS"`
	Backends int64        `json:"backends"`
	Turn     int          `json:"turn"` // so many VIPs were placed or refused when it came to this one, itself included
	Of       int          `json:"of"`
	Switches []string     `json:"switches"` // that announce it; none: it stays with the software muxes
	Rule     string       `json:"rule,omitempty"`
	Resource Resource     `json:"resource,omitempty"` // that binds; of a VIP on switches, the most used that it touches
	Reason   string       `json:"reason"`
	Options  []Option     `json:"options"` // by kind
}

// Option is the best candidate of a kind, when it was the VIP's turn.
type Option struct {
	Kind        string   `json:"kind"`
	Candidates  int      `json:"candidates"`
	Fit         int      `json:"fit"` // so many of them have room
	Switches    []string `json:"switches"`
	Utilisation float64  `json:"utilisation"` // of the most used resource that the VIP would touch; above 1 there is no room
	Resource    Resource `json:"resource"`
	Reason      string   `json:"reason"`
}

// Explain places demands as Place does, and says what the choice was for one VIP.
func Explain(
	ctx context.Context, f *fabric.Fabric, demands []traffic.Demand, current Where, policy Policy, vip string,
) (*Explanation, error) {
	e, items, err := prepare(ctx, f, demands, current, policy)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(items, func(it *item) bool { return it.vip == vip })
	if at < 0 {
		return nil, fmt.Errorf("the traffic has no vip %q", vip)
	}
	it := items[at]
	x := &Explanation{VIP: vip, Rate: it.rate, Backends: it.flow.Backends, Turn: at + 1, Of: len(items), Rule: it.rule()}
	e.before = func(next *item) {
		if next == it && x.Options == nil {
			x.Options = e.options(ctx, it)
		}
	}
	if err := e.run(ctx, items); err != nil {
		return nil, err
	}
	if it.at < 0 {
		x.Resource, x.Reason = it.why.resource, e.describe(it.why)
		if it.swapped {
			x.Reason = "others with more traffic have its place, now " + x.Reason
		}
		return x, nil
	}
	x.Switches = names(f, e.cands[it.at].members)
	slices.Sort(x.Switches)
	top := e.bottleneck(it.flow, it.at, 0)
	x.Resource, x.Reason = top.resource, e.describe(top)
	return x, nil
}

// rule is what was asked for a VIP.
func (it *item) rule() string {
	switch {
	case it.policy.Never:
		return "never"
	case it.pin >= 0:
		return "pin"
	case it.policy.Require:
		return "require"
	}
	return ""
}

// options tries every candidate, or, once the context ends, no more.
func (e *engine) options(ctx context.Context, it *item) []Option {
	var options []Option
	best := map[string]int{} // option by kind
	for at := range e.cands {
		if at%checkEvery == 0 && ctx.Err() != nil {
			break
		}
		c := &e.cands[at]
		if c.closed || len(c.members) == 0 {
			continue
		}
		cost, why := e.try(it, at)
		i, ok := best[c.kind]
		if !ok {
			i = len(options)
			best[c.kind] = i
			options = append(options, Option{Kind: c.kind, Utilisation: cost + 1})
		}
		o := &options[i]
		o.Candidates++
		if why == nil {
			o.Fit++
		}
		if cost < o.Utilisation {
			if why == nil {
				why = e.bottleneck(it.flow, at, 1)
			}
			o.Utilisation, o.Switches, o.Resource, o.Reason = cost, names(e.f, c.members), why.resource, e.describe(why)
		}
	}
	slices.SortStableFunc(options, func(a, b Option) int { return cmp.Compare(a.Utilisation, b.Utilisation) })
	return options
}

// bottleneck is the most used of the resources that a VIP touches at a candidate. It is added so many times: 0 if it is
// there already, else 1.
func (e *engine) bottleneck(flow *fabric.Flow, at int, times int64) *misfit {
	c, loads := &e.cands[at], e.trial(flow, at).loads
	top := &misfit{policy: "it uses nothing"}
	take := func(m *misfit) {
		if m.cost > top.cost {
			top = m
		}
	}
	need, lost := times*need(flow, c, e.policy.Whole), times*int64(loss(flow, c))
	for _, sw := range c.members {
		take(newMisfit(SwitchTable, sw, need, e.entries[sw], e.sizes[sw]))
		if e.switchBudget != unlimited && loss(flow, c) > 0 {
			take(newMisfit(SwitchBudget, sw, lost, int64(e.switchLoss[sw]), int64(e.switchBudget)))
		}
	}
	if k := c.container; k >= 0 && e.containerBudget != unlimited {
		take(newMisfit(ContainerBudget, c.members[0], times*int64(flow.Total), int64(e.containerLoss[k]), int64(e.containerBudget)))
	}
	for _, link := range loads.Touched {
		take(newMisfit(LinkBandwidth, link, times*int64(loads.ByLink[link]), int64(e.usage.Load[link]), int64(e.f.Capacity(link))))
	}
	return top
}
