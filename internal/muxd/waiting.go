package muxd

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// Prefix lists may be so long that writing them takes seconds. What of an update would take that waits, and is written in pieces, between which later
// updates get in: they are in force at once but for what waits. Of that the order stays: what is new in lists, then the endpoints, then what is gone.

const (
	listPiece  = 16384 // prefixes that are written at once; with as many that differ a list does not wait
	retryLists = 5 * time.Second
)

// waiting is what of the updates so far the data plane does not have yet. Its maps are never written to.
type waiting struct {
	lists     map[string]*model.PrefixSet             // as they are to be; nil: gone
	endpoints map[model.EndpointKey]model.MuxEndpoint // that name one of them
	number    int                                     // of lists, which tells them from those that waited before
}

func (w waiting) any() bool { return len(w.lists) > 0 }

// listed is what of the data plane tells how long an update of lists takes.
type listed interface {
	PrefixList(name string) model.PrefixSet
	SourceRoom() int
}

// take returns what of an update does not have to wait, and what waits with it. While anything does, no list changes but
// in its turn, as endpoints that wait may still run by it. A snapshot does not wait: what it leaves out would go.
func (w waiting) take(update rpc.MuxUpdate, d listed, piece int) (now rpc.MuxUpdate, next waiting) {
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
		next.number++ // the writer begins anew
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

// long says whether the lists of an update are to be written in pieces: not if the table may lack room for them, as then nothing is to be changed.
func long(update rpc.MuxUpdate, d listed, piece int) bool {
	most, added := 0, 0
	for _, list := range update.Lists {
		has := d.PrefixList(list.Name)
		n := list.Prefixes.Beyond(has)
		most, added = max(most, n, has.Beyond(list.Prefixes)), added+n
	}
	for _, name := range update.ListsRemoved {
		most = max(most, d.PrefixList(name).Len())
	}
	return most > piece && added <= d.SourceRoom()
}

// names says whether an endpoint is to wait for a list.
func (w waiting) names(e model.MuxEndpoint) bool {
	return slices.ContainsFunc(slices.Concat(e.AllowLists, e.DenyLists), func(name string) bool { return w.lists[name] != nil })
}

// write writes what waits until ctx ends. whole is called when nothing waits any more, refused when it can't go on for now.
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

// waitsNow is what waits.
func (t *tables) waitsNow() waiting {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits
}

// refuseWaiting notes why what waits is not in force.
func (t *tables) refuseWaiting(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse(t.ahead, err)
}

// writer brings the data plane to lists that wait, as long as no others do.
type writer struct {
	tables *tables
	waits  waiting
	err    error
}

// step carries out a part. It says whether to go on.
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

// write says whether nothing waits any more.
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

// grow writes what is new in a list, shrink deletes what is gone.
func (w *writer) grow(ctx context.Context, name string, to model.PrefixSet) bool {
	has := w.tables.config.Datapath.PrefixList(name)
	for part := range slices.Chunk(to.Minus(has), w.tables.piece) {
		if has = has.Change(part, nil); !w.change(ctx, name, has) {
			return false
		}
	}
	return w.change(ctx, name, has) // one that is empty is there too
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

// programWaiting has the endpoints that wait run, whose lists have all that is new.
func (t *tables) programWaiting() error {
	if len(t.waits.endpoints) == 0 {
		return nil
	}
	endpoints := slices.SortedFunc(maps.Values(t.waits.endpoints), func(a, b model.MuxEndpoint) int { return a.Key.Compare(b.Key) })
	changed, err := t.program(rpc.MuxUpdate{Endpoints: endpoints})
	if err != nil {
		return err
	}
	t.waits.endpoints = nil
	t.programmed(changed)
	return nil
}
