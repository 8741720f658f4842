package placement

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// StepKind is what a step of a migration does.
type StepKind int

const (
	// Withdraw ends a VIP's announcement for good: the new placement has it in software.
	Withdraw StepKind = iota
	// Announce brings a VIP from software to its switches.
	Announce
	// Move announces a VIP at its new switches, then withdraws it from the old ones.
	Move
	// ViaSoftware sends a VIP to software for a while, to break a deadlock of tables. An Announce follows later.
	ViaSoftware
)

var stepKinds = [...]string{"withdraw", "announce", "move", "via-software"}

// String is the name of the kind.
func (k StepKind) String() string {
	if k < 0 || int(k) >= len(stepKinds) {
		return fmt.Sprintf("step(%d)", int(k))
	}
	return stepKinds[k]
}

// Step is one step of a migration. Steps are taken one after the other.
type Step struct {
	Kind     StepKind
	VIP      string
	Rate     traffic.Rate
	From, To []int32
}

// Migrate orders the steps from one placement to another, so that no step overfills a table or a link (section 4.2,
// Figure 4). VIPs go straight from switch to switch, with both announcing for a moment, in ascending order of traffic as
// long as one has room. When none has, the VIP of least traffic among those left goes via software. Each round
// takes a step, and a VIP goes via software once at most: it ends.
//
// A resource that the old placement overfills under today's demands may stay so, but is not filled further. Of the policy it
// matters what switches hold of a VIP.
func Migrate(ctx context.Context, f *fabric.Fabric, demands []traffic.Demand, from, to Where, policy Policy) ([]Step, error) {
	e, items, err := prepare(ctx, f, demands, from, Policy{Whole: policy.Whole})
	if err != nil {
		return nil, err
	}
	m := migration{engine: e}
	for i, it := range items {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		it.pin = -1
		if names := to[it.vip]; len(names) > 0 {
			if it.pin, err = e.find(names); err != nil {
				return nil, fmt.Errorf("new place of vip %q: %w", it.vip, err)
			}
		}
		if it.current >= 0 {
			e.place(it, it.current)
		}
		if it.pin != it.at {
			m.left = append(m.left, it)
		}
	}
	slices.Reverse(m.left) // ascending by rate
	if err := m.run(ctx); err != nil {
		return nil, err
	}
	return m.steps, nil
}

// migration is the steps so far and the items that are not where they go; pin is where that is, -1 for software.
type migration struct {
	engine *engine
	left   []*item
	steps  []Step
}

func (m *migration) run(ctx context.Context) error {
	for len(m.left) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := len(m.left)
		m.left = slices.DeleteFunc(m.left, m.advance)
		if len(m.left) < before {
			continue
		}
		i := slices.IndexFunc(m.left, func(it *item) bool { return it.at >= 0 })
		if i < 0 {
			it := m.left[0]
			return fmt.Errorf("vip %q does not fit where it is to go, although all moves are made: the new placement is overfull", it.vip)
		}
		m.take(ViaSoftware, m.left[i], -1)
	}
	return nil
}

// advance brings an item to its place if there is room.
func (m *migration) advance(it *item) bool {
	switch {
	case it.pin < 0:
		m.take(Withdraw, it, -1)
	case !m.hasRoom(it):
		return false
	case it.at < 0:
		m.take(Announce, it, it.pin)
	default:
		m.take(Move, it, it.pin)
	}
	return true
}

// hasRoom says that the new switches have entries while the old ones still hold theirs, and that no link would be
// overfilled, whichever part of the traffic already goes the new way.
func (m *migration) hasRoom(it *item) bool {
	e, c := m.engine, &m.engine.cands[it.pin]
	for _, sw := range c.members {
		if e.entries[sw]+need(it.flow, c, e.policy.Whole) > e.sizes[sw] {
			return false
		}
	}
	if it.at < 0 && e.hosts >= e.hostsSize {
		return false
	}
	var old []fabric.Load
	if it.at >= 0 {
		old = e.trial(it.flow, it.at).loads.ByLink
		e.keepTrial(it.flow, it.at)
	}
	loads := e.trial(it.flow, it.pin).loads
	for _, link := range loads.Touched {
		more := loads.ByLink[link]
		if old != nil {
			more -= old[link]
		}
		if more > 0 && e.usage.Load[link]+more > e.f.Capacity(link) {
			return false
		}
	}
	return true
}

// take notes a step and moves the item's use of resources.
func (m *migration) take(kind StepKind, it *item, to int) {
	e := m.engine
	step := Step{Kind: kind, VIP: it.vip, Rate: it.rate}
	if it.at >= 0 {
		step.From = e.cands[it.at].members
		e.apply(it.flow, it.at, -1)
		it.at = -1
	}
	if to >= 0 {
		step.To = e.cands[to].members
		e.place(it, to)
	}
	m.steps = append(m.steps, step)
}

// Ready are steps of a migration that may be taken at once now, so many at most, in ascending order of traffic: each has room
// while all others, and the VIPs that are on their way, are at both of their places. From is where VIPs are, also where those
// on their way come from; policy is that of the placement. If nothing is on its way and nothing has room, the VIP of least
// traffic goes via software.
func Ready(
	ctx context.Context, f *fabric.Fabric, demands []traffic.Demand, from, under, to Where, policy Policy, most int,
) ([]Step, error) {
	e, items, err := prepare(ctx, f, demands, from, Policy{Whole: policy.Whole})
	if err != nil {
		return nil, err
	}
	m := migration{engine: e}
	for _, it := range items {
		it.pin = -1
		if names := to[it.vip]; len(names) > 0 {
			if it.pin, err = e.find(names); err != nil {
				return nil, fmt.Errorf("new place of vip %q: %w", it.vip, err)
			}
		}
		if it.current >= 0 {
			e.place(it, it.current)
		}
		if next, moves := under[it.vip]; moves {
			if at, err := e.find(next); err == nil { // else it goes to software, or to a switch that is gone
				e.apply(it.flow, at, 1)
			}
		} else if it.pin != it.at {
			m.left = append(m.left, it)
		}
	}
	slices.Reverse(m.left) // ascending by rate
	for _, it := range m.left {
		if len(m.steps) == most {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m.begin(it)
	}
	if len(m.steps) == 0 && len(under) == 0 {
		if i := slices.IndexFunc(m.left, func(it *item) bool { return it.at >= 0 }); i >= 0 {
			m.take(ViaSoftware, m.left[i], -1)
		}
	}
	return m.steps, nil
}

// begin notes the step that brings an item to its place, if there is room. The item keeps what it uses where it is.
func (m *migration) begin(it *item) {
	step := Step{Kind: Withdraw, VIP: it.vip, Rate: it.rate}
	if it.at >= 0 {
		step.From = m.engine.cands[it.at].members
	}
	if it.pin >= 0 {
		if !m.hasRoom(it) {
			return
		}
		if step.Kind = Move; it.at < 0 {
			step.Kind = Announce
		}
		step.To = m.engine.cands[it.pin].members
		m.engine.apply(it.flow, it.pin, 1)
	}
	m.steps = append(m.steps, step)
}

// ThroughSoftware is the traffic of VIPs that go via software.
func ThroughSoftware(steps []Step) traffic.Rate {
	var sum traffic.Rate
	for _, s := range steps {
		if s.Kind == ViaSoftware {
			sum += s.Rate
		}
	}
	return sum
}
