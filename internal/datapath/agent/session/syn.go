package session

import (
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
)

// SYNWindow is for how long a SYN without an answer counts, and an answer. It is longer than the time between two sweeps.
const SYNWindow = 6 * time.Second

// addSYN counts a session of TCP whose SYN came lately and is without an answer, or in which the workload spoke lately.
func (c sessionReport) addSYN(s Session, row bpf.AgentSession, now time.Duration) {
	const (
		begun  = bpf.AgentSessionEventSESSION_CLIENT_SYN | bpf.AgentSessionEventSESSION_PROXIED
		answer = bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER
	)
	if s.Protocol != model.TCP || s.State == StateReset {
		return
	}
	isRecent := func(at uint64) bool { return now-time.Duration(at) < SYNWindow }
	waits := s.State == StateSYN && row.Events&begun != 0 && row.Events&answer == 0 && isRecent(row.LastSeen)
	answers := row.Events&answer != 0 && isRecent(row.LastSent)
	if !waits && !answers {
		return
	}
	r := c.countOf(s)
	switch {
	case r == nil:
	case waits:
		r.syns.Unanswered++
	default:
		r.syns.Answers++
	}
}

// unanswered are the backends that have such SYNs.
func (c sessionReport) unanswered() (all []backlog.SYNs) {
	for _, r := range c.rules {
		if r.syns.Unanswered > 0 {
			all = append(all, r.syns)
		}
	}
	return all
}
