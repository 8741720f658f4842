package entries

import (
	"testing"

	"github.com/weirlb/weir/internal/hardware"
)

// A switch without weights serves the VIP with members that are equal: hosts steer, so only the load is less even.
func TestSwitchWithoutWeights(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.sw.SetCapabilities(func(c *hardware.Capabilities) { c.Weights = false })
		r.start()
		heavy := entry(1, true, 1, 2)
		heavy.Members[0].Entries = 3
		r.all(heavy)
		r.wantHeld(entry(1, true, 1, 2))
		r.wantAnnounced(1)
		r.wantReport()
		r.start()
		r.wantHeld(entry(1, true, 1, 2))
		r.wantAnnounced(1)
	})
}
