package manager

import (
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// acks remember what was sent to the nodes of this manager and not yet answered.
type acks struct {
	meters *meters

	mu   sync.Mutex
	open map[string][]sending // by node, in the order that they were sent
}

// sending is a generation on its way to a node.
type sending struct {
	generation model.Generation
	role       model.Role
	at         time.Time
	ended      func(error) // of its spans
}

// maxOpen bounds what is remembered of a node that does not answer.
const maxOpen = 64

func newAcks(m *meters) *acks { return &acks{meters: m, open: map[string][]sending{}} }

// sent notes that a generation goes to a node; ended is called once, with how it ended there.
func (a *acks) sent(node string, role model.Role, generation model.Generation, ended func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open[node]) == maxOpen {
		a.open[node][0].ended(errUnanswered)
		a.open[node] = a.open[node][1:]
	}
	a.open[node] = append(a.open[node], sending{generation, role, time.Now(), ended})
}

// answered notes that a node runs all up to a generation, or refused one.
func (a *acks) answered(node string, running, rejected model.Generation, reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	open := a.open[node]
	done := 0
	for _, s := range open {
		if s.generation > max(running, rejected) {
			break
		}
		if s.generation > running {
			s.ended(reason)
			a.meters.refusals.WithLabelValues(string(s.role)).Inc()
		} else {
			s.ended(nil)
			a.meters.acked.WithLabelValues(string(s.role)).Observe(time.Since(s.at).Seconds())
		}
		done++
	}
	if open = open[done:]; len(open) == 0 {
		delete(a.open, node)
		return
	}
	a.open[node] = open
}

// closed notes that the node's stream ended.
func (a *acks) closed(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.open[node] {
		s.ended(errUnanswered)
	}
	delete(a.open, node)
}
