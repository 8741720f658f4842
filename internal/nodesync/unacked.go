package nodesync

import (
	"errors"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// errUnanswered ends the span of a generation that the node did not acknowledge.
var errUnanswered = errors.New("the node did not answer")

// maxUnacked bounds the generations that are remembered of a node that does not acknowledge.
const maxUnacked = 64

// unacked are the generations that were sent to nodes of this manager and are not acknowledged yet: their time is measured and
// their spans end when they are.
type unacked struct {
	metrics *Metrics

	mu     sync.Mutex
	byNode map[string][]sent // in the order that they were sent
}

// sent is a generation on its way to a node.
type sent struct {
	generation model.Generation
	role       model.Role
	at         time.Time
	ended      func(error) // of its spans
}

func newUnacked(m *Metrics) *unacked { return &unacked{metrics: m, byNode: map[string][]sent{}} }

// add notes that a generation is sent to a node; ended is called once, with how it ended there.
func (u *unacked) add(node string, role model.Role, generation model.Generation, ended func(error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.byNode[node]) == maxUnacked {
		u.byNode[node][0].ended(errUnanswered)
		u.byNode[node] = u.byNode[node][1:]
	}
	u.byNode[node] = append(u.byNode[node], sent{generation, role, time.Now(), ended})
}

// answered notes that a node runs all generations up to one, or rejected one with a reason.
func (u *unacked) answered(node string, running, rejected model.Generation, reason error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	waiting := u.byNode[node]
	done := 0
	for _, s := range waiting {
		if s.generation > max(running, rejected) {
			break
		}
		if s.generation > running {
			s.ended(reason)
			u.metrics.rejections.WithLabelValues(string(s.role)).Inc()
		} else {
			s.ended(nil)
			u.metrics.acked.WithLabelValues(string(s.role)).Observe(time.Since(s.at).Seconds())
		}
		done++
	}
	if waiting = waiting[done:]; len(waiting) == 0 {
		delete(u.byNode, node)
		return
	}
	u.byNode[node] = waiting
}

// closed notes that the node's stream ended.
func (u *unacked) closed(node string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.byNode[node] {
		s.ended(errUnanswered)
	}
	delete(u.byNode, node)
}
