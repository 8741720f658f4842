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

// What slots of removed backends rest counts by the clock of whoever leads, whatever the clock of the leader before said.
func TestFreeSlotsAreCountedByTheLeader(t *testing.T) {
	now := time.Unix(100000, 0)
	key := model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	for _, ahead := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		row := desired.Row{Slot: 1, Backend: netip.MustParseAddrPort("10.3.1.11:8080"), Freed: now.Add(ahead)}
		s := &store.State{}
		s.PutTable(key, desired.Table{Rows: []desired.Row{row, {Slot: 2}}})
		at, m := now, &Manager{}
		m.now = func() time.Time { return at }
		if m.freeFor(key, row) != 0 {
			t.Error("a slot is free that was never seen")
		}
		var seen freeSlots
		for after := time.Duration(0); after <= 2*desired.RetireTime; after += 10 * time.Minute {
			at = now.Add(after)
			seen = seen.look(s, at)
			m.free.Store(&seen)
			if got := m.freeFor(key, row); got != after || len(seen) != 1 {
				t.Errorf("the leader before was %s ahead: after %s the slot is free for %s", ahead, after, got)
			}
		}
		s.PutTable(key, desired.Table{Rows: []desired.Row{{Slot: 2}}})
		if seen = seen.look(s, at); len(seen) != 0 {
			t.Errorf("%v are remembered of what is no more", seen)
		}
	}
}

// A leader whose clock is hours ahead of the one before gives no slot to another backend that it has just seen free.
func TestASlotRestsAfterAChangeOfTheLeader(t *testing.T) {
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

// News of health is acted on between the pieces of the look at all VIPs that a term begins with.
func TestNewsComeBetweenPieces(t *testing.T) {
	var m *Manager
	url, _ := start(t, Config{}, func(started *Manager) { m = started })
	eventually(t, "it leads", m.leads)
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 2 })
	s := m.store.State()
	all := s.Clone()
	for i := range 2*recomputeMost + 1 {
		all.VIPs.Set(time.Duration(i).String(), model.VIP{})
	}
	var r rounds
	if news := r.news(all); len(news) > 0 || len(r.piece()) != recomputeMost {
		t.Errorf("a term begins with %d news, %d VIPs of all", len(news), len(r.piece()))
	}
	r.did(s) // which knows the steps that follow
	if !r.swept() {
		t.Error("all is done after one piece")
	}
	apply(t, url, shop())
	if news := r.news(m.store.State()); len(news) != 1 || news[0] != "shop" || len(r.piece()) != recomputeMost {
		t.Errorf("then %v are news, beside %d of all", news, len(r.piece()))
	}
	r.did(m.store.State())
	if !r.swept() || len(r.piece()) != 1 || r.swept() {
		t.Error("it does not come to the end")
	}
}
