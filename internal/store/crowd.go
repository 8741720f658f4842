package store

import (
	"sync/atomic"
	"time"
)

// crowdLasts is how long after a State that several VIPs changed in users' changes count as a crowd.
const crowdLasts = 500 * time.Millisecond

// crowd notes when users' changes last came faster than they are written.
type crowd struct{ nanos atomic.Int64 }

// note looks at what a new State changed. Changes that come one by one are of a State each.
func (c *crowd) note(delta Delta, now time.Time) {
	if len(delta.VIPs) > 1 {
		c.nanos.Store(now.UnixNano())
	}
}

func (c *crowd) now(now time.Time) bool {
	return now.Sub(time.Unix(0, c.nanos.Load())) < crowdLasts
}

// Crowded says whether users' changes come faster than they are written, as this replica sees by the States that it gets.
func (s *Store) Crowded() bool { return s.crowd.now(time.Now()) }
