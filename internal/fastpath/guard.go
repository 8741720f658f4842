package fastpath

import (
	"time"

	"github.com/weirlb/weir/internal/model"
)

// maxSeen bounds how many messages a Guard remembers. What overflows is refused: it only comes later.
const maxSeen = 1 << 16

// Guard opens messages, each one once and in its time. The zero value is ready.
type Guard struct {
	seen  map[string]time.Time // MACs of those that were opened, until they can't be any more
	clean time.Time            // when to forget those that expired
}

// Open returns the message that b is, if one of keys has signed it, it has not expired by the clock, and
// was not opened before.
func (g *Guard) Open(b []byte, keys []model.FastpathKey, now time.Time) (Message, error) {
	m, err := Open(b, keys)
	if err != nil {
		return Message{}, err
	}
	if m.Expires.Before(now.Add(-Skew)) || m.Expires.After(now.Add(Lifetime+Skew)) {
		return Message{}, ErrExpired
	}
	if now.After(g.clean) {
		g.forget(now)
	}
	id := string(b[atMAC:])
	if _, again := g.seen[id]; again || len(g.seen) >= maxSeen {
		return Message{}, ErrReplayed
	}
	if g.seen == nil {
		g.seen = map[string]time.Time{}
	}
	g.seen[id] = m.Expires.Add(Skew)
	return m, nil
}

// forget lets go of messages that would be refused for their age.
func (g *Guard) forget(now time.Time) {
	for id, until := range g.seen {
		if now.After(until) {
			delete(g.seen, id)
		}
	}
	g.clean = now.Add(time.Second)
}
