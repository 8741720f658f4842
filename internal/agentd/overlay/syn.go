package overlay

import (
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model/backlog"
)

// syns counts the sessions of backends, by rule, whose SYN came lately and is without an answer, and those in which there
// was an answer and something came lately.
type syns map[uint32]backlog.SYNs

func (c syns) add(s overlay.Session, now uint32) {
	if s.Events.IsOver() || s.Events&overlay.UDP != 0 || time.Duration(int32(now-s.Seen))*overlay.Tick >= session.SYNWindow {
		return
	}
	of := c[s.Rule]
	if s.Events&overlay.ServerAnswer == 0 {
		of.Unanswered++
	} else {
		of.Answers++
	}
	c[s.Rule] = of
}

// SYNs are the backends of virtual networks' clients that had SYNs without an answer lately, as of the last sweep.
func (c *Controller) SYNs() (all []backlog.SYNs) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rule, of := range c.state.syns {
		if b, known := c.served[rule]; known && of.Unanswered > 0 {
			of.Key = b.Key()
			all = append(all, of)
		}
	}
	return all
}
