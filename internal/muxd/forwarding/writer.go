package forwarding

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

// retryLists is the time between two attempts to write pending lists.
const retryLists = 5 * time.Second

// WriteLists writes pending lists until ctx ends. It calls complete when nothing is pending any more, and rejected
// after an error.
func (s *State) WriteLists(ctx context.Context, complete, rejected func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.fill:
		}
		w := newWriter(s)
		if !w.pending.any() {
			continue
		}
		done := w.write(ctx)
		switch {
		case w.err != nil:
			rejected()
			wake.After(ctx, retryLists)
			s.fill.Set()
		case done:
			complete()
		}
	}
}

// writer writes one set of pending lists, until a later update replaces the set.
type writer struct {
	state   *State
	pending pending
	err     error
}

func newWriter(s *State) *writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &writer{state: s, pending: s.pending}
}

// step runs one write under the lock, and says whether to continue. An error refuses the generation that is ahead now: a
// snapshot that follows may well be applied.
func (w *writer) step(ctx context.Context, do func() error) bool {
	if ctx.Err() != nil {
		return false
	}
	w.state.mu.Lock()
	defer w.state.mu.Unlock()
	if w.state.pending.number != w.pending.number {
		return false
	}
	if w.err = do(); w.err != nil {
		w.state.generations.reject(w.state.generations.ahead, w.err, w.state.log)
	}
	return w.err == nil
}

// write writes the set, and says whether nothing is pending any more.
func (w *writer) write(ctx context.Context) (done bool) {
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(w.pending.lists)) {
		to := w.pending.lists[name]
		if to == nil {
			gone = append(gone, name)
		} else if !w.grow(ctx, name, *to) {
			return false
		}
	}
	if !w.step(ctx, w.state.programPending) {
		return false
	}
	for name, to := range w.pending.lists {
		if to == nil {
			to = &model.PrefixSet{}
		}
		if !w.shrink(ctx, name, *to) {
			return false
		}
	}
	return w.step(ctx, func() error {
		if err := w.state.programPending(); err != nil {
			return err
		}
		if err := w.state.config.Datapath.Update(endpoint.Update{ListsRemoved: gone}); err != nil {
			return err
		}
		w.state.pending, w.state.generations.rejected = pending{number: w.pending.number + 1}, nil
		return w.state.finish()
	})
}

// grow adds the new prefixes of a list, shrink deletes the old ones.
func (w *writer) grow(ctx context.Context, name string, to model.PrefixSet) bool {
	has := w.state.config.Datapath.PrefixList(name)
	for part := range slices.Chunk(to.Minus(has), w.state.piece) {
		if has = has.Change(part, nil); !w.change(ctx, name, has) {
			return false
		}
	}
	return w.change(ctx, name, has) // also if it is empty
}

func (w *writer) shrink(ctx context.Context, name string, to model.PrefixSet) bool {
	has := w.state.config.Datapath.PrefixList(name)
	for part := range slices.Chunk(has.Minus(to), w.state.piece) {
		if has = has.Change(nil, part); !w.change(ctx, name, has) {
			return false
		}
	}
	return true
}

func (w *writer) change(ctx context.Context, name string, to model.PrefixSet) bool {
	return w.step(ctx, func() error {
		return w.state.config.Datapath.Update(endpoint.Update{Lists: []model.MuxPrefixList{{Name: name, Prefixes: to}}})
	})
}

// programPending applies the pending endpoints, whose lists have all new prefixes by now.
func (s *State) programPending() error {
	if len(s.pending.endpoints) == 0 {
		return nil
	}
	endpoints := slices.SortedFunc(maps.Values(s.pending.endpoints), func(a, b model.MuxEndpoint) int {
		return a.Key.Compare(b.Key)
	})
	changed, err := s.program(wire.MuxUpdate{Endpoints: endpoints})
	if err != nil {
		return err
	}
	s.pending.endpoints = nil
	s.programmed(changed)
	return nil
}
