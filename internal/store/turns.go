package store

import (
	"context"
	"slices"

	"github.com/weirlb/weir/internal/trust"
)

// turns is a queue in which those that write have turns: each tenant, or caller of none, one change after the other. All
// changes count alike.
type turns struct {
	n     int
	of    map[string][]*write // never empty
	order []string            // of those in of; the first has the next turn
}

// shareOf is who a change is of: the tenant of its caller, or the caller itself; empty: the manager's own.
func shareOf(ctx context.Context) string {
	caller := trust.FromContext(ctx)
	if caller.Anonymous() || caller.Method == trust.Insecure {
		return ""
	}
	return caller.Share()
}

// add queues a change behind those of its tenant.
func (t *turns) add(w *write) { t.put(w, len(t.of[w.who])) }

// putFirst queues a change before those of its tenant.
func (t *turns) putFirst(w *write) { t.put(w, 0) }

func (t *turns) put(w *write, at int) {
	if t.of == nil {
		t.of = map[string][]*write{}
	}
	if len(t.of[w.who]) == 0 {
		t.order = append(t.order, w.who)
	}
	t.of[w.who] = slices.Insert(t.of[w.who], at, w)
	t.n++
}

// remove takes a change out, if it waits.
func (t *turns) remove(w *write) {
	at := slices.Index(t.of[w.who], w)
	if at < 0 {
		return
	}
	t.n--
	if t.of[w.who] = slices.Delete(t.of[w.who], at, at+1); len(t.of[w.who]) > 0 {
		return
	}
	delete(t.of, w.who)
	t.order = slices.DeleteFunc(t.order, func(who string) bool { return who == w.who })
}

// take takes at most so many changes out, by turns.
func (t *turns) take(most int) (taken []*write) {
	for len(taken) < most && t.n > 0 {
		who := t.order[0]
		t.order = t.order[1:]
		queue := t.of[who]
		taken = append(taken, queue[0])
		t.n--
		if t.of[who] = queue[1:]; len(queue) > 1 {
			t.order = append(t.order, who)
		} else {
			delete(t.of, who)
		}
	}
	return taken
}
