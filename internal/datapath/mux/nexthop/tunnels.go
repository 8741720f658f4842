package nexthop

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// Tunnels counts the backends of live endpoints, and workloads with source NAT, by their tunnels, so that a change of
// one endpoint costs no look at all others.
type Tunnels struct {
	backends map[netip.Addr]int
	sorted   []netip.Addr // nil: to be made again
}

// NewTunnels has none yet.
func NewTunnels() *Tunnels { return &Tunnels{backends: map[netip.Addr]int{}} }

// Replace counts next instead of old.
func (t *Tunnels) Replace(old, next []model.MuxBackend) {
	for _, b := range next {
		t.Add(b.Tunnel, 1)
	}
	for _, b := range old {
		t.Add(b.Tunnel, -1)
	}
}

// Add counts n more users of a tunnel.
func (t *Tunnels) Add(tunnel netip.Addr, n int) {
	before := t.backends[tunnel]
	t.backends[tunnel] = before + n
	if before+n == 0 {
		delete(t.backends, tunnel)
	}
	if before == 0 || before+n == 0 {
		t.sorted = nil
	}
}

// List is in order. It is shared, and another one once the tunnels change: leave it as it is.
func (t *Tunnels) List() []netip.Addr {
	if t.sorted == nil {
		t.sorted = slices.SortedFunc(maps.Keys(t.backends), netip.Addr.Compare)
	}
	return t.sorted
}
