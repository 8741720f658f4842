package manager

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// A leader whose clock is hours ahead of the one before gives no slot to another backend that it has just seen free.
func TestASlotIsReservedAfterAChangeOfTheLeader(t *testing.T) {
	var m *Manager
	url, _ := start(t, Config{}, func(started *Manager) { m = started })
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 2 })
	apply(t, url, shop())
	key := slices.Collect(m.store.State().Tables.Keys())[0]
	gone := desired.Row{Slot: 77, Backend: netip.MustParseAddrPort("10.3.1.99:8080"), Tunnel: netip.MustParseAddr("10.3.1.99"), Down: true}
	gone.Freed = time.Now().Add(-24 * desired.RetireTime) // by the clock of the leader before
	if _, err := m.store.Update(t.Context(), func(s *store.State) (store.Change, error) {
		table := s.Tables.At(key)
		table.Rows = append(slices.Clone(table.Rows), gone)
		return store.Change{Tables: map[model.EndpointKey]desired.Table{key: table}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	changed := shop()
	weight := uint32(7)
	changed.Endpoints[0].Backends[0].Weight = &weight
	apply(t, url, changed)
	if row, there := m.store.State().Tables.At(key).Row(gone.Slot); !there || !row.Retired() {
		t.Errorf("slot %d is nobody's: %+v", gone.Slot, m.store.State().Tables.At(key).Rows)
	}
}
