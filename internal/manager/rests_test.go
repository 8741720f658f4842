package manager

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// What rests does so for as long by the clock of whoever leads, whatever the clock of the leader before said.
func TestRestsAreCountedByTheLeader(t *testing.T) {
	const bound = 2 * time.Minute
	now := time.Unix(100000, 0)
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		resting := desired.Resting{Since: now.Add(ahead), Ranges: []model.Range{7}}
		s := &store.State{}
		s.PutHolding(firstLeaver, desired.Holding{Host: "host1", Resting: []desired.Resting{resting}})
		var seen rests
		if seen.longer(firstLeaver, resting, 0, now) {
			t.Error("something rests that was never seen")
		}
		for after := time.Duration(0); after <= bound+time.Minute; after += 5 * time.Second {
			seen = seen.look(s, now.Add(after))
			if over := seen.longer(firstLeaver, resting, bound, now.Add(after)); over != (after >= bound) {
				t.Errorf("the leader before was %s ahead: after %s its rest is over: %t", ahead, after, over)
			}
		}
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
