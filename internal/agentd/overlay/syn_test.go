package overlay

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/overlay"
)

// Of a backend's sessions count those that are new, by whether it has answered.
func TestSYNsOfSessions(t *testing.T) {
	const now = 100_000
	old := uint32(now - session.SYNWindow/overlay.Tick - 1)
	counted := syns{}
	for _, s := range []overlay.Session{
		{Rule: 1, Seen: now},
		{Rule: 1, Seen: now + 1}, // since the sweep began
		{Rule: 1, Seen: uint32(now - time.Second/overlay.Tick), Events: overlay.Proxied | overlay.ClientACK},
		{Rule: 1, Seen: old},
		{Rule: 1, Seen: now, Events: overlay.Reset},
		{Rule: 1, Seen: now, Events: overlay.UDP},
		{Rule: 1, Seen: now, Events: overlay.ServerAnswer},
		{Rule: 1, Seen: old, Events: overlay.ServerAnswer | overlay.ClientACK},
		{Rule: 2, Seen: now, Events: overlay.ServerAnswer | overlay.ClientACK},
	} {
		counted.add(s, now)
	}
	if of := counted[1]; of.Unanswered != 3 || of.Answers != 1 {
		t.Errorf("%d without an answer, %d with one, want 3 and 1", of.Unanswered, of.Answers)
	}
	if of := counted[2]; of.Unanswered != 0 || of.Answers != 1 {
		t.Errorf("%d without an answer, %d with one, want 0 and 1", of.Unanswered, of.Answers)
	}
}
