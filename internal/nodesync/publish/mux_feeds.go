package publish

import (
	"iter"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
)

// muxFeeds are the feeds of muxes, by name: one of each, or two for a moment.
type muxFeeds map[string]map[*MuxFeed]bool

func (m muxFeeds) add(f *MuxFeed) {
	if m[f.mux] == nil {
		m[f.mux] = map[*MuxFeed]bool{}
	}
	m[f.mux][f] = true
}

func (m muxFeeds) remove(f *MuxFeed) {
	if delete(m[f.mux], f); len(m[f.mux]) == 0 {
		delete(m, f.mux)
	}
}

// all are the feeds of all muxes.
func (m muxFeeds) all() iter.Seq[*MuxFeed] {
	return func(yield func(*MuxFeed) bool) {
		for _, feeds := range m {
			for f := range feeds {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// progress is how far a mux is, and the generation at which it is waited for: not while it joins or does not answer.
func (m muxFeeds) progress(mux string) (at progress.Mux, generation model.Generation, isAwaited bool) {
	first := true
	for f := range m[mux] {
		one := progress.Mux{Runs: f.runs, Answered: f.acked, Joins: f.joins && !f.answered}
		if first || one.Answered > at.Answered {
			at, first = one, false
		}
		if !one.Joins && !f.silent && (!isAwaited || one.Answered < generation) {
			generation, isAwaited = one.Answered, true
		}
	}
	return at, generation, isAwaited
}
