package desired

import (
	"slices"
	"time"

	"github.com/weirlb/weir/internal/bucket"
	"github.com/weirlb/weir/internal/model"
)

// SettleTime is how long a move lasts at least, from when it was made and from when all muxes run it:
// for packets under way, and for a host to count its connections after.
const SettleTime = 15 * time.Second

// Ended says which moves are over: those away from a slot that began at or before a time.
type Ended map[model.EndpointKey]map[model.Slot]time.Time

// fresh marks, in what stands for the table of an endpoint that has none, that no connection is older
// than its cookies.
const fresh model.Cookies = "fresh"

// cookies says how muxes read the cookies of e. When they begin to, connections without may live for as
// long as they are remembered: until then the flow table is asked first.
func cookies(vip model.VIP, e model.Endpoint, old Table, now time.Time) (model.Cookies, time.Time) {
	switch {
	case e.Protocol != model.TCP || vip.Consistency == model.ConsistencyFlowTable:
		return model.CookiesOff, time.Time{}
	case old.Cookies == fresh || old.Cookies == model.CookiesOn:
		return model.CookiesOn, time.Time{}
	case old.Cookies != model.CookiesSettling:
		return model.CookiesSettling, now
	case now.Sub(old.Settles) < e.Idle():
		return model.CookiesSettling, old.Settles
	}
	return model.CookiesOn, time.Time{}
}

// down says whether the slot's backend is gone or down: no connection of it is left to care for.
func (t Table) down(slot model.Slot) bool {
	row, there := t.Row(slot)
	return !there || row.Down
}

// waiting are the moves of old that go on: not ended, begun after bound, and away from a backend that
// lives.
func (t Table) waiting(old Table, bound time.Time, ended map[model.Slot]time.Time) []Move {
	var waiting []Move
	for _, m := range old.Moves {
		end, over := ended[m.From]
		over = over && !m.Since.After(end)
		if !over && m.Since.After(bound) && !t.down(m.From) {
			waiting = append(waiting, m)
		}
	}
	return waiting
}

// moves are those that waited, as far as their buckets stayed, and the new ones: of buckets that name
// another slot than in old, whose backend lives. A bucket that moved again, as its backend died or is
// ailing, still names the one from before.
func (t Table) moves(old []model.Slot, ailing slots, waited []Move, now time.Time) []Move {
	if len(old) == 0 {
		return nil
	}
	var moves []Move
	last := make([]*Move, len(old))
	for i := range waited {
		last[waited[i].Bucket] = &waited[i]
	}
	alive := make([]bool, model.MaxBackends+1)
	for _, r := range t.Rows {
		alive[r.Slot] = !r.Down
	}
	lives := func(slot model.Slot) bool { return int(slot) < len(alive) && alive[slot] }
	for i, slot := range t.Buckets {
		at := i & (len(old) - 1)
		switch was := old[at]; {
		case slot != was && lives(was) && (last[at] == nil || !ailing.keepsPrevious(last[at].From, was, slot)):
			moves = append(moves, Move{Bucket: uint32(i), From: was, Since: now})
		case last[at] != nil && last[at].From != slot:
			moves = append(moves, Move{Bucket: uint32(i), From: last[at].From, Since: last[at].Since})
		}
	}
	return moves
}

// Expired says whether a move of e's table is over by time, or its cookies have settled.
func (t Table) Expired(vip model.VIP, e model.Endpoint, now time.Time) bool {
	bound := overByTime(vip, e, now)
	return t.Cookies == model.CookiesSettling && !t.Settles.After(now.Add(-e.Idle())) ||
		slices.ContainsFunc(t.Moves, func(m Move) bool { return !m.Since.After(bound) })
}

// overByTime is when those moves of e began, at the latest, that are over by time. Muxes remember the flows that are
// left. Switches remember none: what a VIP of theirs moves is over when its hosts have counted none, and no time is late
// enough.
func overByTime(vip model.VIP, e model.Endpoint, now time.Time) time.Time {
	if vip.MayBeInHardware() {
		return time.Time{}
	}
	return now.Add(-e.Idle())
}

// waitingBuckets counts the buckets of e's table that should move too, and wait for the end of an earlier
// move.
func waitingBuckets(s *State, vip model.VIP, e model.Endpoint, t Table) int {
	members := t.members(effectOf(s, vip, e).members)
	if len(members) == 0 || len(t.Moves) == 0 {
		return 0
	}
	return bucket.Waiting(t.Buckets, members)
}
