package placement

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
)

// region is VIPs among which room is exchanged. All others stay where they are. It searches as simulated annealing does:
// a step brings a VIP in, takes out what is in its way, and lets all that are out come back where there is room. Steps that
// lose are taken, too, the less the longer the search lasts.
type region struct {
	e      *engine       // its tables and budgets change with the search
	room   []fabric.Load // by link: what placement may still use
	vips   []swap
	users  users
	score  int64
	random uint64
	draws  uint64
	work   int64 // links looked at
	most   int64 // of them
	log    []undo
	out    []int // scratch space
}

// swap is a VIP of a region.
type swap struct {
	it      *item
	worth   int64 // its rate; that of all VIPs together more if it must be on switches
	options []option
	at      int // option, -1 for none
	home    int // option where it was and still fits, -1 for none
}

// undo is where a VIP was before a change.
type undo struct{ vip, at int }

func newRegion(x *exchange, items []*item, total int64) *region {
	e := x.e
	r := &region{e: e, room: make([]fabric.Load, len(e.f.Links)), random: mix(e.policy.Seed), most: e.policy.ExchangeWork}
	for link := range r.room {
		r.room[link] = e.f.Capacity(int32(link)) - e.usage.Load[link]
	}
	if r.most == 0 {
		r.most = min(exchangeWork, exchangePairs*int64(len(items)*len(items)))
	}
	r.users = newUsers(len(r.room), len(e.entries))
	for v, it := range items {
		s := swap{it: it, worth: int64(it.rate), options: x.options(it), home: -1}
		slices.SortStableFunc(s.options, func(a, b option) int { return cmp.Compare(a.weight, b.weight) })
		if it.policy.Require {
			s.worth += total
		}
		s.at = slices.IndexFunc(s.options, func(o option) bool { return o.at == it.at })
		if it.at >= 0 && it.at == it.current {
			s.home = s.at
		}
		r.score += s.scoreAt(s.at)
		r.vips = append(r.vips, s)
		if s.at >= 0 {
			r.users.flip(v, &s.options[s.at], &e.cands[it.at])
		}
	}
	return r
}

// scoreAt is what it is worth to have a VIP at an option.
func (s *swap) scoreAt(at int) int64 {
	score := int64(0)
	if at >= 0 {
		score = movesForGain * s.worth
	}
	if s.home >= 0 && at != s.home {
		score -= int64(s.it.rate)
	}
	return score
}

// draw is a number below n that follows from the seed.
func (r *region) draw(n int64) int64 {
	r.draws++
	return int64(mix(r.random+r.draws) % uint64(n))
}

// search leaves the best places that it finds, and says whether they are better than those at first.
func (r *region) search(ctx context.Context) (gained bool, err error) {
	first, best, places := r.score, r.score, r.places()
	heat := r.heat()
	for steps := 0; r.work < r.most; steps++ {
		if steps%64 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		if r.findOut(-1); len(r.out) == 0 {
			break
		}
		before := r.score
		r.log = r.log[:0]
		if !r.step(r.pick()) || r.score < before-r.allowance(heat) {
			r.rollBack()
			continue
		}
		if r.score > best {
			best, places = r.score, r.places()
		}
	}
	r.restore(places)
	r.goHome()
	return r.score > first, nil
}

// heat is the most that a first step may lose: a third of what a VIP is worth in the mean.
func (r *region) heat() int64 {
	sum := int64(0)
	for i := range r.vips {
		sum += int64(r.vips[i].it.rate)
	}
	return sum * movesForGain / int64(3*len(r.vips))
}

// allowance is what a step may lose now.
func (r *region) allowance(heat int64) int64 {
	left := 1 - float64(r.work)/float64(r.most)
	return r.draw(int64(float64(heat)*max(left, 0)) + 1)
}

// findOut lists the VIPs that have no place and may get one, but for one of them.
func (r *region) findOut(but int) {
	r.work += int64(len(r.vips))
	r.out = r.out[:0]
	for v := range r.vips {
		if s := &r.vips[v]; s.at < 0 && len(s.options) > 0 && v != but {
			r.out = append(r.out, v)
		}
	}
}

// pick draws one of the VIPs that are out: of two, the one that is worth more for what it uses at least.
func (r *region) pick() int {
	i, j := int(r.draw(int64(len(r.out)))), int(r.draw(int64(len(r.out))))
	a, b := &r.vips[r.out[i]], &r.vips[r.out[j]]
	if float64(float64(a.worth)*b.options[0].weight) < float64(float64(b.worth)*a.options[0].weight) {
		return j
	}
	return i
}

// mostMadeRoom is how many VIPs are taken out for one.
const mostMadeRoom = 4

// step brings the i-th of the VIPs that are out in, at an option that is drawn.
func (r *region) step(i int) bool {
	v := r.out[i]
	s := &r.vips[v]
	at := min(int(r.draw(int64(len(s.options)))), int(r.draw(int64(len(s.options))))) // lighter ones more often
	for n := 0; !r.fits(s, at); n++ {
		if n == mostMadeRoom || !r.makeRoom(s, at) {
			return false
		}
	}
	r.set(v, at)
	r.findOut(v)
	if r.draw(3) == 0 {
		for i := len(r.out) - 1; i > 0; i-- {
			j := r.draw(int64(i) + 1)
			r.out[i], r.out[j] = r.out[j], r.out[i]
		}
	} else {
		slices.SortStableFunc(r.out, func(a, b int) int { return cmp.Compare(r.vips[b].worth, r.vips[a].worth) })
	}
	for _, v := range r.out {
		r.insert(v)
	}
	return true
}

// fits says that there is room for a VIP.
func (r *region) fits(s *swap, at int) bool {
	e, o := r.e, &s.options[at]
	r.work++
	c := &e.cands[o.at]
	if e.hosts >= e.hostsSize || c.container >= 0 && s.it.flow.Total > e.containerBudget-e.containerLoss[c.container] {
		return false
	}
	for _, m := range c.members {
		if e.entries[m]+o.need > e.sizes[m] || o.lost > e.switchBudget-e.switchLoss[m] {
			return false
		}
	}
	if len(o.links) == 0 {
		return true
	}
	if r.isFull(o, o.full) { // most often it still is
		return false
	}
	for i := range o.links {
		if r.isFull(o, i) {
			r.work += int64(i)
			o.full = i
			return false
		}
	}
	r.work += int64(len(o.links))
	return true
}

// isFull says that a link of an option has no room for it.
func (r *region) isFull(o *option, i int) bool {
	return o.loads[i] > r.room[o.links[i]]
}

// insert brings a VIP in where it uses least of what others use.
func (r *region) insert(v int) {
	s := &r.vips[v]
	best, least := -1, math.Inf(1)
	for at := range s.options {
		if r.fits(s, at) {
			if c := r.cost(&s.options[at]); c < least {
				best, least = at, c
			}
		}
	}
	if best >= 0 {
		r.set(v, best)
	}
}

// cost adds up what an option takes of each resource, times the square of its utilisation then.
func (r *region) cost(o *option) float64 {
	e, cost := r.e, 0.0
	for i, link := range o.links {
		part := float64(o.loads[i]) * e.usage.Inverse[link]
		used := 1 - float64(float64(r.room[link]-o.loads[i])*e.usage.Inverse[link])
		cost += float64(float64(used*used) * part)
	}
	for _, m := range e.cands[o.at].members {
		part := float64(o.need) * e.inverses[m]
		used := float64(e.entries[m]+o.need) * e.inverses[m]
		cost += float64(float64(used*used) * part)
	}
	r.work += int64(len(o.links))
	return cost
}

// makeRoom takes a VIP out that uses a resource of which there is too little. It says whether there is one.
func (r *region) makeRoom(s *swap, at int) bool {
	among := r.shortage(s, &s.options[at])
	if among == nil || among.size() == 0 {
		return false
	}
	r.set(among.nth(int(r.draw(int64(among.size())))), -1)
	return true
}

// shortage is the VIPs that use a resource that is too full for an option; nil if that is the host tables.
func (r *region) shortage(s *swap, o *option) *vipSet {
	e := r.e
	c := &e.cands[o.at]
	for _, m := range c.members {
		if e.entries[m]+o.need > e.sizes[m] || o.lost > e.switchBudget-e.switchLoss[m] {
			return &r.users.bySwitch[m]
		}
	}
	if c.container >= 0 && s.it.flow.Total > e.containerBudget-e.containerLoss[c.container] {
		return &r.users.byContainer[c.container]
	}
	full, n := int32(-1), int64(0)
	for i, link := range o.links {
		if r.isFull(o, i) {
			if n++; r.draw(n) == 0 {
				full = link
			}
		}
	}
	r.work += int64(len(o.links))
	if full < 0 {
		return nil
	}
	return &r.users.byLink[full]
}

// set brings a VIP to an option, or, with -1, takes it out.
func (r *region) set(v, at int) {
	s := &r.vips[v]
	r.log = append(r.log, undo{v, s.at})
	r.score += s.scoreAt(at) - s.scoreAt(s.at)
	if s.at >= 0 {
		r.use(v, -1)
	}
	if s.at = at; at >= 0 {
		r.use(v, 1)
	}
}

func (r *region) use(v int, sign int64) {
	s := &r.vips[v]
	o := &s.options[s.at]
	r.users.flip(v, o, &r.e.cands[o.at])
	for i, link := range o.links {
		r.room[link] -= fabric.Load(sign) * o.loads[i]
	}
	r.work += 2 * int64(len(o.links))
	r.e.applyTables(s.it.flow, &r.e.cands[o.at], sign)
}

func (r *region) rollBack() {
	for i := len(r.log) - 1; i >= 0; i-- {
		r.set(r.log[i].vip, r.log[i].at)
	}
}

func (r *region) places() []int {
	places := make([]int, len(r.vips))
	for v := range r.vips {
		places[v] = r.vips[v].at
	}
	return places
}

// restore brings all VIPs to places.
func (r *region) restore(places []int) {
	for v, at := range places {
		if r.vips[v].at != at {
			r.set(v, -1)
		}
	}
	for v, at := range places {
		if at >= 0 && r.vips[v].at < 0 {
			r.set(v, at)
		}
	}
}

// goHome brings VIPs back that moved for nothing, or that can change places with one that is there.
func (r *region) goHome() {
	for v := range r.vips {
		s := &r.vips[v]
		at := s.at
		if s.home < 0 || at == s.home {
			continue
		}
		if r.set(v, -1); r.fits(s, s.home) {
			r.set(v, s.home)
			continue
		}
		r.set(v, at)
		for other := 0; other < len(r.vips) && at >= 0 && s.at == at; other++ {
			r.changePlaces(v, other)
		}
	}
}

// changePlaces brings a VIP home, and another, which is not at home there, to where the first was, if both fit.
func (r *region) changePlaces(v, other int) {
	s, o := &r.vips[v], &r.vips[other]
	there, here := s.options[s.home].at, s.options[s.at].at
	if o.at < 0 || o.at == o.home || o.options[o.at].at != there {
		return
	}
	to := slices.IndexFunc(o.options, func(x option) bool { return x.at == here })
	if to < 0 {
		return
	}
	was, from := s.at, o.at
	r.set(v, -1)
	r.set(other, -1)
	if r.fits(s, s.home) {
		if r.set(v, s.home); r.fits(o, to) {
			r.set(other, to)
			return
		}
		r.set(v, -1)
	}
	r.set(v, was)
	r.set(other, from)
}

// apply brings the items to their places. Tables and budgets are those of the search already: they are given back first.
func (r *region) apply() {
	e, places := r.e, r.places()
	r.restore(r.origin())
	for v := range r.vips {
		if s := &r.vips[v]; s.it.at >= 0 && places[v] != s.at {
			e.apply(s.it.flow, s.it.at, -1)
			s.it.at, s.it.swapped = -1, true
		}
	}
	for v, at := range places {
		if s := &r.vips[v]; s.it.at < 0 && at >= 0 {
			e.place(s.it, s.options[at].at)
			s.it.swapped = true
		}
	}
}

// origin is where the items are.
func (r *region) origin() []int {
	places := make([]int, len(r.vips))
	for v := range r.vips {
		s := &r.vips[v]
		places[v] = slices.IndexFunc(s.options, func(o option) bool { return o.at == s.it.at })
	}
	return places
}
