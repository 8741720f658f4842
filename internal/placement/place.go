package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// Place decides where VIPs go. Demands and policy are checked first; of current, switches that are gone count as none.
func Place(ctx context.Context, f *fabric.Fabric, demands []traffic.Demand, current Where, policy Policy) (*Result, error) {
	e, items, err := prepare(ctx, f, demands, current, policy)
	if err != nil {
		return nil, err
	}
	if err := e.run(ctx, items); err != nil {
		return nil, err
	}
	return e.result(items), nil
}

// checkEvery is after how many VIPs the context is looked at: on the largest networks a VIP takes milliseconds.
const checkEvery = 64

func prepare(
	ctx context.Context, f *fabric.Fabric, demands []traffic.Demand, current Where, policy Policy,
) (*engine, []*item, error) {
	if err := policy.check(); err != nil {
		return nil, nil, err
	}
	var total traffic.Rate
	for _, d := range demands {
		if rate := d.Rate(); rate >= 0 && rate <= traffic.MaxRate { // else it is refused below
			total += rate
		}
		if total > traffic.MaxRate {
			return nil, nil, fmt.Errorf("vip %q: with it, demands are above %d kbit/s together: correct the rates", d.VIP, traffic.MaxRate)
		}
	}
	e, err := newEngine(ctx, f, policy, total)
	if err != nil {
		return nil, nil, err
	}
	items := make([]*item, 0, len(demands))
	seen := make(map[string]bool, len(demands))
	for i, d := range demands {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if seen[d.VIP] {
			return nil, nil, fmt.Errorf("vip %q has two demands: add them up", d.VIP)
		}
		seen[d.VIP] = true
		it, err := e.newItem(d, current[d.VIP])
		if err != nil {
			return nil, nil, err
		}
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(b.rate, a.rate), cmp.Compare(a.vip, b.vip))
	})
	if policy.Algorithm == Repair && policy.FailureBudget > 0 && policy.Spread < Twins { // twins lose nothing with a container
		e.favourHighestTier(items)
	}
	return e, items, nil
}

func (e *engine) newItem(d traffic.Demand, current []string) (*item, error) {
	flow, err := e.f.NewFlow(d)
	if err != nil {
		return nil, err
	}
	it := &item{vip: d.VIP, rate: d.Rate(), flow: flow, policy: e.policy.VIPs[d.VIP], pin: -1, current: -1, at: -1}
	it.hash = hashOf(d.VIP) ^ mix(e.policy.Seed)
	if len(it.policy.Pin) > 0 {
		if it.pin, err = e.find(it.policy.Pin); err != nil {
			return nil, fmt.Errorf("pin of vip %q: %w: correct or remove the pin", d.VIP, err)
		}
	}
	for _, name := range it.policy.Avoid {
		if sw, ok := e.byName[name]; ok {
			it.avoid = append(it.avoid, sw)
		}
	}
	slices.Sort(it.avoid)
	if len(current) > 0 {
		if at, err := e.find(current); err == nil { // else its switches are gone, and it has no place
			it.current = at
		}
	}
	return it, nil
}

// urgency orders pinned VIPs before required ones, and those before all others.
func (it *item) urgency() int {
	switch {
	case it.pin >= 0:
		return 0
	case it.policy.Require:
		return 1
	}
	return 2
}

// begin leaves the items where they are that Repair or Keep leave, and places those that Repair has come first.
func begin(ctx context.Context, e *engine, items []*item) error {
	for i, it := range items {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if (it.urgency() == 2 || e.policy.Algorithm == Keep) && e.stays(it) {
			continue
		}
		if it.urgency() < 2 && e.policy.Algorithm == Repair {
			e.settle(it)
		}
	}
	return nil
}

// run places the items in their order.
func (e *engine) run(ctx context.Context, items []*item) error {
	if e.policy.Algorithm == Repair || e.policy.Algorithm == Keep {
		if err := begin(ctx, e, items); err != nil {
			return err
		}
	}
	for i, it := range items {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if it.at >= 0 || e.policy.Algorithm == Keep {
			continue
		}
		e.settle(it)
		if it.at < 0 && e.policy.StopAtMisfit {
			for _, rest := range items[i+1:] {
				rest.why = &misfit{policy: fmt.Sprintf("placement stopped at %s, which did not fit", it.vip)}
			}
			return nil
		}
	}
	if e.policy.Algorithm == Repair && e.policy.ExchangeWork >= 0 {
		return e.exchange(ctx, items)
	}
	return nil
}

// refusal is why a VIP can't be on any switch, nil if it can.
func (e *engine) refusal(it *item) *misfit {
	switch {
	case it.policy.Never:
		return &misfit{policy: "its policy keeps it with the software muxes"}
	case it.flow.Backends == 0:
		return &misfit{policy: "it has no backends"}
	case e.hosts >= e.hostsSize:
		return newMisfit(HostTable, -1, 1, e.hosts, e.hostsSize)
	}
	return nil
}

// stays leaves a VIP where it is, if that has room.
func (e *engine) stays(it *item) bool {
	if it.why = e.refusal(it); it.why != nil {
		return false
	}
	if it.current < 0 {
		it.why = &misfit{policy: "it has no place to keep"}
		return false
	}
	if c := e.cands[it.current]; c.closed && it.current < e.estimated && !slices.Equal(it.policy.Pin, names(e.f, c.members)) {
		it.why = &misfit{policy: "its switch takes no VIP"}
		return false
	}
	if !it.mayUse(&e.cands[it.current]) {
		it.why = &misfit{policy: "it may not be on its switches any more"}
		return false
	}
	if _, it.why = e.try(it, it.current); it.why != nil {
		return false
	}
	e.place(it, it.current)
	return true
}

// settle places a VIP, or notes why it can't be placed.
func (e *engine) settle(it *item) {
	if e.before != nil {
		e.before(it)
	}
	if it.why = e.refusal(it); it.why != nil {
		return
	}
	if it.pin >= 0 {
		if _, it.why = e.try(it, it.pin); it.why == nil {
			e.place(it, it.pin)
		}
		return
	}
	floor := 0.0
	switch e.policy.Algorithm {
	case Greedy, Sticky:
		floor = e.highest
	case Random:
		floor = 1 // all that fit tie
	case Repair, Keep:
		if it.policy.Require && e.stays(it) {
			return
		}
	}
	best, why := e.choose(it, floor)
	if best.at < 0 {
		it.why = cmp.Or(why, &misfit{policy: "no switch may take it"})
		return
	}
	if e.policy.Algorithm == Sticky && it.current >= 0 && it.current != best.at {
		if cost, why := e.try(it, it.current); why == nil && max(floor, cost)-best.cost <= e.policy.Delta {
			best.at = it.current
		}
	}
	e.place(it, best.at)
}

// hotLinks is how many links a Result names.
const hotLinks = 10

func (e *engine) result(items []*item) *Result {
	r := &Result{}
	for _, it := range items {
		r.Total += it.rate
		if it.at < 0 {
			r.Unplaced = append(r.Unplaced, Unplaced{it.vip, it.rate, it.policy.Require, it.why.resource, e.describe(it.why)})
			continue
		}
		r.Hardware += it.rate
		r.Placed = append(r.Placed, Placed{it.vip, it.rate, e.cands[it.at].members})
	}
	slices.SortFunc(r.Placed, func(a, b Placed) int { return cmp.Compare(a.VIP, b.VIP) })
	slices.SortFunc(r.Unplaced, func(a, b Unplaced) int { return cmp.Compare(a.VIP, b.VIP) })
	for i := range e.f.Links {
		if link := int32(i); e.usage.Load[link] > 0 {
			r.HotLinks = append(r.HotLinks, HotLink{link, e.f.LinkName(link), e.usage.Load[link].Rate(), e.usage.Utilisation(link, 0)})
		}
	}
	slices.SortFunc(r.HotLinks, func(a, b HotLink) int {
		return cmp.Or(cmp.Compare(b.Utilisation, a.Utilisation), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Link, b.Link))
	})
	if len(r.HotLinks) > hotLinks {
		r.HotLinks = slices.Clone(r.HotLinks[:hotLinks])
	}
	r.Highest = e.highest
	return r
}

// Where is the placement by names, as the next Place takes it.
func (r *Result) Where(f *fabric.Fabric) Where {
	w := make(Where, len(r.Placed))
	for _, p := range r.Placed {
		w[p.VIP] = names(f, p.Switches)
	}
	return w
}
