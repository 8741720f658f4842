package manager

import (
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// Managers tell each other by streams: muxes of all get what hosts of all have, and the leader knows when.
func TestManagersFollowEachOther(t *testing.T) {
	t.Parallel()
	var all []*Manager
	r := startReplicas(t, 3, func(m *Manager) { all = append(all, m) })
	startHost(t, r.urls[1], "host1", "10.2.1.2")
	startHost(t, r.urls[2], "host2", "10.2.2.2")
	muxes := []*fakeMux{startMux(t, r.urls[1], "mux1", "10.1.1.2"), startMux(t, r.urls[2], "mux2", "10.1.2.2")}
	eventually(t, "all are connected", func() bool { return nodes(t, dial(t, r.urls[0])) == 4 })
	eventually(t, "each is told by both others", func() bool {
		for _, m := range all {
			if !m.hub.ReportsToAllManagers(m.store.State()) {
				return false
			}
		}
		return true
	})
	for _, mux := range muxes {
		eventually(t, mux.name+" is in the pool", func() bool {
			_, there := all[0].hub.StreamOwner(mux.name)
			return there && all[0].view().Status.At(mux.name).Generation > 0
		})
	}
	first := model.Generation(apply(t, r.urls[0], shop()))
	for range 20 {
		generation := model.Generation(apply(t, r.urls[0], shop()))
		if err := all[0].hub.Await(t.Context(), generation); err != nil {
			t.Fatal(err)
		}
		for _, mux := range muxes {
			if !mux.has(uint64(generation)) {
				t.Fatalf("%s lacks generation %d", mux.name, generation)
			}
		}
		change := shop()
		change.Endpoints[0].Backends = change.Endpoints[0].Backends[:1]
		apply(t, r.urls[0], change)
	}
	for manager, ready := range all[0].store.State().Ready.All() {
		if ready > first {
			t.Errorf("%s wrote to the store what it tells by its streams: %d after %d", manager, ready, first)
		}
	}
}
