package table

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// How long slots of removed backends are reserved counts by the clock of whoever leads, whatever the clock of the
// leader before said.
func TestFreeSlotsAreCountedByTheLeader(t *testing.T) {
	now := time.Unix(100000, 0)
	key := model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	for _, ahead := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		row := desired.Row{Slot: 1, Backend: netip.MustParseAddrPort("10.3.1.11:8080"), Freed: now.Add(ahead)}
		s := &store.State{}
		s.Tables.Set(key, desired.Table{Rows: []desired.Row{row, {Slot: 2}}})
		at, c := now, &Controller{}
		c.Now = func() time.Time { return at }
		if c.FreeFor(key, row) != 0 {
			t.Error("a slot is free that was never seen")
		}
		var seen freeSlots
		for after := time.Duration(0); after <= 2*desired.RetireTime; after += 10 * time.Minute {
			at = now.Add(after)
			seen = seen.observe(s, at)
			c.free.Store(&seen)
			if got := c.FreeFor(key, row); got != after || len(seen) != 1 {
				t.Errorf("the leader before was %s ahead: after %s the slot is free for %s", ahead, after, got)
			}
		}
		s.Tables.Set(key, desired.Table{Rows: []desired.Row{{Slot: 2}}})
		if seen = seen.observe(s, at); len(seen) != 0 {
			t.Errorf("%v are remembered of what is no more", seen)
		}
	}
}
