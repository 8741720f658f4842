package muxd

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// Long prefix lists take seconds to write, so they are written in pieces in the background. Later updates apply
// immediately, except for parts that depend on a pending list. Pending work is ordered: add prefixes, update endpoints,
// delete prefixes.

const (
	listPiece  = 16384 // prefixes in one write; a list with at most so many changes is written at once
	retryLists = 5 * time.Second
)

// waiting is the pending part of the updates so far. Its maps are immutable.
type waiting struct {
	lists     map[string]*model.PrefixSet             // wanted; nil: to be deleted
	endpoints map[model.EndpointKey]model.MuxEndpoint // that refer to one of them
	number    int                                     // of the set of lists, to tell it from earlier ones
}

func (w waiting) any() bool { return len(w.lists) > 0 }

// listed tells how much of the lists is in the data plane.
type listed interface {
	PrefixList(name string) model.PrefixSet
	FreeSourceRows() int
}

// take splits an update into the part to apply now and the pending part. While any list is pending all changes of lists
// are, in order, as pending endpoints may still use the old ones. A snapshot is never split: it deletes what it lacks.
func (w waiting) take(update wire.MuxUpdate, d listed, piece int) (now wire.MuxUpdate, next waiting) {
	if update.Snapshot {
		return update, waiting{number: w.number + 1}
	}
	if !w.any() && !long(update, d, piece) {
		return update, w
	}
	next = waiting{lists: map[string]*model.PrefixSet{}, endpoints: map[model.EndpointKey]model.MuxEndpoint{}, number: w.number}
	maps.Copy(next.lists, w.lists)
	maps.Copy(next.endpoints, w.endpoints)
	if len(update.Lists)+len(update.ListsRemoved) > 0 {
		next.number++ // the writer starts over
	}
	for _, name := range update.ListsRemoved {
		next.lists[name] = nil
	}
	for _, list := range update.Lists {
		next.lists[list.Name] = &list.Prefixes
	}
	now = update
	now.Lists, now.ListsRemoved, now.Endpoints = nil, nil, nil
	for _, e := range update.Endpoints {
		if next.names(e) {
			next.endpoints[e.Key] = e
		} else {
			delete(next.endpoints, e.Key)
			now.Endpoints = append(now.Endpoints, e)
		}
	}
	for _, key := range update.Removed {
		delete(next.endpoints, key)
	}
	return now, next
}

// long says whether the lists of an update are written in pieces. They are not if the table may lack room for them:
// then the whole update must be rejected.
func long(update wire.MuxUpdate, d listed, piece int) bool {
	most, added := 0, 0
	for _, list := range update.Lists {
		has := d.PrefixList(list.Name)
		n := list.Prefixes.Beyond(has)
		most, added = max(most, n, has.Beyond(list.Prefixes)), added+n
	}
	for _, name := range update.ListsRemoved {
		most = max(most, d.PrefixList(name).Len())
	}
	return most > piece && added <= d.FreeSourceRows()
}

// names says whether an endpoint refers to a pending list.
func (w waiting) names(e model.MuxEndpoint) bool {
	return slices.ContainsFunc(slices.Concat(e.AllowLists, e.DenyLists), func(name string) bool { return w.lists[name] != nil })
}

// write writes pending lists until ctx ends. It calls whole when nothing is pending any more, and refused after an
// error.
func (t *tables) write(ctx context.Context, whole, refused func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.fill:
		}
		w := writer{tables: t, waits: t.waitsNow()}
		if !w.waits.any() {
			continue
		}
		done := w.write(ctx)
		switch {
		case w.err != nil:
			t.refuseWaiting(w.err)
			refused()
			wait(ctx, retryLists)
			wake(t.fill)
		case done:
			whole()
		}
	}
}

// waitsNow is the pending part.
func (t *tables) waitsNow() waiting {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits
}

// refuseWaiting records why the pending part is not in force.
func (t *tables) refuseWaiting(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse(t.ahead, err)
}

// writer writes one set of pending lists, until a later update replaces the set.
type writer struct {
	tables *tables
	waits  waiting
	err    error
}

// step runs one write, and says whether to continue.
func (w *writer) step(ctx context.Context, do func() error) bool {
	if ctx.Err() != nil {
		return false
	}
	w.tables.mu.Lock()
	defer w.tables.mu.Unlock()
	if w.tables.waits.number != w.waits.number {
		return false
	}
	w.err = do()
	return w.err == nil
}

// write writes the set, and says whether nothing is pending any more.
func (w *writer) write(ctx context.Context) (done bool) {
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(w.waits.lists)) {
		to := w.waits.lists[name]
		if to == nil {
			gone = append(gone, name)
		} else if !w.grow(ctx, name, *to) {
			return false
		}
	}
	if !w.step(ctx, w.tables.programWaiting) {
		return false
	}
	for name, to := range w.waits.lists {
		if to == nil {
			to = &model.PrefixSet{}
		}
		if !w.shrink(ctx, name, *to) {
			return false
		}
	}
	return w.step(ctx, func() error {
		if err := w.tables.programWaiting(); err != nil {
			return err
		}
		if err := w.tables.config.Datapath.Update(mux.Update{ListsRemoved: gone}); err != nil {
			return err
		}
		w.tables.waits, w.tables.rejected = waiting{number: w.waits.number + 1}, nil
		return w.tables.runs()
	})
}

// grow adds the new prefixes of a list, shrink deletes the old ones.
func (w *writer) grow(ctx context.Context, name string, to model.PrefixSet) bool {
	has := w.tables.config.Datapath.PrefixList(name)
	for part := range slices.Chunk(to.Minus(has), w.tables.piece) {
		if has = has.Change(part, nil); !w.change(ctx, name, has) {
			return false
		}
	}
	return w.change(ctx, name, has) // also if it is empty
}

func (w *writer) shrink(ctx context.Context, name string, to model.PrefixSet) bool {
	has := w.tables.config.Datapath.PrefixList(name)
	for part := range slices.Chunk(has.Minus(to), w.tables.piece) {
		if has = has.Change(nil, part); !w.change(ctx, name, has) {
			return false
		}
	}
	return true
}

func (w *writer) change(ctx context.Context, name string, to model.PrefixSet) bool {
	return w.step(ctx, func() error {
		return w.tables.config.Datapath.Update(mux.Update{Lists: []model.MuxPrefixList{{Name: name, Prefixes: to}}})
	})
}

// programWaiting applies the pending endpoints, whose lists have all new prefixes by now.
func (t *tables) programWaiting() error {
	if len(t.waits.endpoints) == 0 {
		return nil
	}
	endpoints := slices.SortedFunc(maps.Values(t.waits.endpoints), func(a, b model.MuxEndpoint) int { return a.Key.Compare(b.Key) })
	changed, err := t.program(wire.MuxUpdate{Endpoints: endpoints})
	if err != nil {
		return err
	}
	t.waits.endpoints = nil
	t.programmed(changed)
	return nil
}
