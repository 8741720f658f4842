package mux

import (
	"maps"
	"net/netip"
	"slices"
)

// tunnels counts the backends of live endpoints, and workloads with source NAT, by their tunnels, so that a change of
// one endpoint costs no look at all others.
type tunnels struct {
	backends map[netip.Addr]int
	sorted   []netip.Addr // nil: to be made again
}

func newTunnels() *tunnels { return &tunnels{backends: map[netip.Addr]int{}} }

// replace counts next instead of old; either may be nil.
func (t *tunnels) replace(old, next *liveEndpoint) {
	if next != nil {
		for _, b := range next.backends {
			t.add(b.Tunnel, 1)
		}
	}
	if old != nil {
		for _, b := range old.backends {
			t.add(b.Tunnel, -1)
		}
	}
}

func (t *tunnels) add(tunnel netip.Addr, n int) {
	before := t.backends[tunnel]
	t.backends[tunnel] = before + n
	if before+n == 0 {
		delete(t.backends, tunnel)
	}
	if before == 0 || before+n == 0 {
		t.sorted = nil
	}
}

func (t *tunnels) list() []netip.Addr {
	if t.sorted == nil {
		t.sorted = slices.SortedFunc(maps.Keys(t.backends), netip.Addr.Compare)
	}
	return t.sorted
}

// Tunnels lists the outer destinations of all live backends and workloads, in order. The list is shared, and
// another one once they change: leave it as it is.
func (d *Datapath) Tunnels() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tunnels.list()
}
