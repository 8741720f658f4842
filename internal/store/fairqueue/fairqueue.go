// Package fairqueue is a queue in which those that add have turns: each one item after the other. All items count alike.
package fairqueue

import (
	"context"
	"slices"

	"github.com/weirlb/weir/internal/trust"
)

// Queue is one. The zero value is empty.
type Queue[T comparable] struct {
	n     int
	of    map[string][]T // never empty
	order []string       // of those in of; the first has the next turn
}

// Len is how many items wait.
func (q *Queue[T]) Len() int { return q.n }

// LenOf is how many of them are of one who added.
func (q *Queue[T]) LenOf(who string) int { return len(q.of[who]) }

// Add queues an item behind those of who.
func (q *Queue[T]) Add(who string, item T) { q.put(who, item, len(q.of[who])) }

// PutFirst queues an item before those of who.
func (q *Queue[T]) PutFirst(who string, item T) { q.put(who, item, 0) }

func (q *Queue[T]) put(who string, item T, at int) {
	if q.of == nil {
		q.of = map[string][]T{}
	}
	if len(q.of[who]) == 0 {
		q.order = append(q.order, who)
	}
	q.of[who] = slices.Insert(q.of[who], at, item)
	q.n++
}

// Remove takes an item out, if it waits.
func (q *Queue[T]) Remove(who string, item T) {
	at := slices.Index(q.of[who], item)
	if at < 0 {
		return
	}
	q.n--
	if q.of[who] = slices.Delete(q.of[who], at, at+1); len(q.of[who]) > 0 {
		return
	}
	delete(q.of, who)
	q.order = slices.DeleteFunc(q.order, func(other string) bool { return other == who })
}

// Take takes at most so many items out, by turns.
func (q *Queue[T]) Take(most int) (taken []T) {
	for len(taken) < most && q.n > 0 {
		who := q.order[0]
		q.order = q.order[1:]
		queue := q.of[who]
		taken = append(taken, queue[0])
		q.n--
		if q.of[who] = queue[1:]; len(queue) > 1 {
			q.order = append(q.order, who)
		} else {
			delete(q.of, who)
		}
	}
	return taken
}

// Share is who a change is of: the tenant of its caller, or the caller itself; empty: the manager's own.
func Share(ctx context.Context) string {
	caller := trust.FromContext(ctx)
	if caller.Anonymous() || caller.Method == trust.Insecure {
		return ""
	}
	return caller.Share()
}
