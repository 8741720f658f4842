package store

import (
	"sync/atomic"
	"time"
)

// congestionLasts is how long after a State that several VIPs changed in users' changes count as congestion.
const congestionLasts = 500 * time.Millisecond

// congestion notes when users' changes last came faster than they are written.
type congestion struct {
	nanos atomic.Int64

	// Whether there are VIPs of other tenants than of one, looked at lately.
	tenant string
	shared bool
	looked time.Time
}

// sharedLook is how long what was found of other tenants holds: to look at all VIPs costs more than a State.
const sharedLook = 5 * time.Second

// note looks at what a new State changed. Changes that come one by one are of a State each. Those of one tenant among
// several are none: it would hold up the port requests of all others.
func (c *congestion) note(delta Delta, s *State, now time.Time) {
	if len(delta.VIPs) < 2 {
		return
	}
	tenants := map[string]bool{}
	for name := range delta.VIPs {
		if vip, there := s.VIPs.Get(name); there {
			tenants[vip.Tenant] = true
		}
	}
	for tenant := range tenants {
		if len(tenants) == 1 && c.sharedWith(tenant, s, now) {
			return
		}
	}
	c.nanos.Store(now.UnixNano())
}

// sharedWith says whether other tenants than that have VIPs.
func (c *congestion) sharedWith(tenant string, s *State, now time.Time) bool {
	if c.tenant == tenant && now.Sub(c.looked) < sharedLook {
		return c.shared
	}
	c.tenant, c.looked, c.shared = tenant, now, false
	for _, vip := range s.VIPs.All() {
		if vip.Tenant != tenant {
			c.shared = true
			break
		}
	}
	return c.shared
}

func (c *congestion) now(now time.Time) bool {
	return now.Sub(time.Unix(0, c.nanos.Load())) < congestionLasts
}

// Congested says whether users' changes come faster than they are written, as this replica sees by the States that it gets.
func (s *Store) Congested() bool { return s.congestion.now(time.Now()) }
