package placement

import (
	"context"
	"math"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// Bounds of an exchange.
const (
	exchangeVIPs    = 160         // of a region
	exchangeAbsent  = 40          // of them, those that have no place
	exchangeOptions = 64          // of a VIP
	exchangeLinks   = 1 << 21     // of all options together: 24 MiB
	exchangeWork    = 800_000_000 // links looked at: two seconds
	exchangePairs   = 125_000     // links looked at for each pair of VIPs
)

// exchangeShare is which part of all traffic must want room for an exchange to be worth its work: 1/1000.
const exchangeShare = 1000

// movesForGain is how much traffic that fits may move for what an exchange brings to switches.
const movesForGain = 8

// exchange finds the VIPs of a region and their options.
type exchange struct {
	e      *engine
	near   []bool  // by switch: a resource is short there
	leaves []int32 // switches of leaves
	links  int     // of all options so far
}

// exchange makes room for VIPs that found none: others move aside, and ones with less traffic go to software. It searches
// among few VIPs, those that are in the way first. What fits moves only for a gain: at least 1/8 of the traffic that an
// exchange moves or sends to software is added to what is on switches. Without a gain nothing changes.
func (e *engine) exchange(ctx context.Context, items []*item) error {
	x := exchange{e: e, near: make([]bool, len(e.f.Switches)), leaves: e.f.LeafSwitches()}
	chosen := x.inTheWay(items)
	if len(chosen) == 0 {
		return nil
	}
	var total traffic.Rate
	for _, it := range items {
		total += it.rate
	}
	r := newRegion(&x, chosen, int64(total))
	gained, err := r.search(ctx)
	if err != nil || !gained {
		return err
	}
	r.apply()
	for _, it := range chosen {
		if it.at < 0 { // says why, if there is no room even now
			e.settle(it)
		}
	}
	e.highest = x.mostUsed()
	return nil
}

// wantsRoom says that a VIP has no place for want of a resource that others may free.
func (it *item) wantsRoom() bool {
	return it.at < 0 && it.pin < 0 && it.rate > 0 && it.why.resource != NoResource && it.why.resource != HostTable
}

// inTheWay chooses the VIPs of a region, in the order of items: those that want room, and placed ones. It returns none if
// too little traffic wants room.
func (x *exchange) inTheWay(items []*item) []*item {
	var absent, total traffic.Rate
	in := make([]bool, len(items))
	wanting := 0
	for i, it := range items {
		if total += it.rate; !it.wantsRoom() {
			continue
		}
		absent += it.rate
		if wanting < exchangeAbsent {
			in[i] = true
			wanting++
			x.addNear(it.why)
		}
	}
	if absent == 0 || absent*exchangeShare < total {
		return nil
	}
	n := wanting
	for _, related := range []bool{true, false} {
		for i := len(items) - 1; i >= 0 && n < exchangeVIPs; i-- { // those with least traffic first
			if it := items[i]; !in[i] && it.at >= 0 && it.pin < 0 && x.isNear(it) == related {
				in[i] = true
				n++
			}
		}
	}
	var chosen []*item
	for i, it := range items {
		if in[i] {
			chosen = append(chosen, it)
		}
	}
	return chosen
}

// addNear adds the switches of a resource that is short.
func (x *exchange) addNear(m *misfit) {
	if m.resource == LinkBandwidth {
		l := x.e.f.Links[m.at]
		x.near[l.From], x.near[l.To] = true, true
	} else {
		x.near[m.at] = true
	}
}

// isNear says that a VIP is announced by one of the switches, or has clients or backends below one.
func (x *exchange) isNear(it *item) bool {
	if slices.ContainsFunc(x.e.cands[it.at].members, func(sw int32) bool { return x.near[sw] }) {
		return true
	}
	return slices.ContainsFunc(it.flow.Leaves, func(l fabric.LeafFlow) bool {
		sw := x.leaves[l.Leaf]
		return sw >= 0 && x.near[sw]
	})
}

// mostUsed is the utilisation of the most used resource.
func (x *exchange) mostUsed() float64 {
	e := x.e
	most := 0.0
	for link := range e.f.Links {
		if e.usage.Load[link] > 0 {
			most = max(most, e.usage.Utilisation(int32(link), 0))
		}
	}
	for sw, n := range e.entries {
		most = max(most, float64(n)*e.inverses[sw])
	}
	return most
}

// option is what a VIP uses at a candidate.
type option struct {
	at    int
	links []int32 // ascending
	loads []fabric.Load
	full  int // index of the link that had no room the last time
	need  int64
	lost  fabric.Load

	weight float64 // sum of the parts that it uses of each resource
}

// options are the candidates that have room for a VIP if it is alone, or, of many, those that have most room now. The
// one where it is comes first. There are few if links are many.
func (x *exchange) options(it *item) []option {
	e := x.e
	for at := range e.bounds {
		if c := &e.cands[at]; c.closed || len(c.members) == 0 || at == it.at || !it.mayUse(c) {
			e.bounds[at] = math.Inf(1)
		} else {
			e.bounds[at] = e.tables(it.flow, c)
		}
	}
	if len(e.bounds) > exchangeOptions {
		e.estimator.Estimate(it.flow, e.bounds, 0)
	}
	var options []option
	if it.at >= 0 {
		options = append(options, x.option(it.flow, it.at))
	}
	for len(options) < exchangeOptions && x.links < exchangeLinks {
		next := e.lowest(it.hash)
		if next.at < 0 {
			break
		}
		e.bounds[next.at] = math.Inf(1)
		if x.hasRoomAlone(it.flow, next.at) {
			options = append(options, x.option(it.flow, next.at))
		}
	}
	return options
}

func (x *exchange) option(flow *fabric.Flow, at int) option {
	c := &x.e.cands[at]
	o := option{at: at, need: need(flow, c, x.e.policy.Whole), lost: loss(flow, c)}
	t := x.e.trial(flow, at)
	x.links += len(t.loads.Touched)
	o.links = slices.Clone(t.loads.Touched)
	slices.Sort(o.links)
	for _, link := range o.links {
		o.loads = append(o.loads, t.loads.ByLink[link])
		o.weight += float64(float64(t.loads.ByLink[link]) * x.e.usage.Inverse[link])
	}
	for _, m := range c.members {
		o.weight += float64(float64(o.need) * x.e.inverses[m])
	}
	return o
}

// hasRoomAlone says that a VIP fits at a candidate if no other is anywhere.
func (x *exchange) hasRoomAlone(flow *fabric.Flow, at int) bool {
	e := x.e
	c := &e.cands[at]
	for _, m := range c.members {
		if n := need(flow, c, e.policy.Whole); n > e.sizes[m] || n > e.groups[m] || loss(flow, c) > e.switchBudget {
			return false
		}
	}
	if c.container >= 0 && flow.Total > e.containerBudget {
		return false
	}
	t := e.trial(flow, at)
	for i := range c.members {
		if isUneven(t.received[i], flow.Total, len(c.members)) {
			return false
		}
	}
	return !slices.ContainsFunc(t.loads.Touched, func(link int32) bool { return t.loads.ByLink[link] > e.f.Capacity(link) })
}
