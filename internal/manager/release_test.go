package manager

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/manager/publish"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// releasedRange is a range that a workload on host1 gave back, and what the manager knows of the two.
type releasedRange struct {
	listed, connected bool
	held              uint32           // ranges that the host still has of the workload, by its last report
	written           model.Generation // of the workload's ranges; muxes have answered generation 0
	rests             time.Duration    // since this leader first saw it; negative: it has not seen it yet
}

// isFree says whether the leader makes the range free.
func (r releasedRange) isFree(t *testing.T, key model.SNATKey) bool {
	t.Helper()
	now := time.Unix(100000, 0)
	m := &Manager{hub: publish.New(nil, nil), reports: newReports(), resting: desired.RestTime, now: func() time.Time { return now }}
	s := &store.State{}
	s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
	if vip := (model.VIP{Name: "crawler", Address: key.VIP, SNAT: &model.SNAT{}}); r.listed {
		vip.SNAT.Workloads = []model.SNATWorkload{{Address: key.Address, Host: "host1"}}
		s.PutVIP(vip)
	}
	if r.connected {
		s.Streams.Set("host1", true)
	}
	m.reports.put("host1", report{detail: &weirv1.NodeStatus{Host: &weirv1.HostStatus{Snat: []*weirv1.SNATUse{
		{Vip: key.VIP.String(), Address: key.Address.String(), Ranges: r.held},
	}}}})
	// The clock of the leader that took it back was days behind: what it wrote says nothing of how long the range rests.
	s.PutHolding(key, desired.Holding{Host: "host1", Resting: []desired.Resting{{Since: now.Add(-48 * time.Hour), Ranges: []model.Range{7}}}})
	s.PortsWritten.Set(key, r.written)
	var seen rests
	if r.rests >= 0 {
		seen = seen.look(s, now.Add(-r.rests))
	}
	h, free := m.rested(s, seen)[key]
	if free && !h.Empty() {
		t.Errorf("%+v: what is left is %+v", r, h)
	}
	return free
}

// A range that was released is free when it has rested, every healthy mux knows that its workload has it no more, and
// the host of a workload that is in no list any more has released it too. A host that does not keeps it for a bounded
// time.
func TestReleasedRangesBecomeFree(t *testing.T) {
	const rest, most = desired.RestTime, clingMost * desired.RestTime
	for what, c := range map[string]struct {
		released releasedRange
		free     bool
	}{
		"never seen":               {releasedRange{listed: true, connected: true, rests: -1}, false},
		"just seen":                {releasedRange{listed: true, connected: true}, false},
		"about to have rested":     {releasedRange{listed: true, connected: true, rests: rest - 1}, false},
		"rested":                   {releasedRange{listed: true, connected: true, rests: rest}, true},
		"rested, of a user":        {releasedRange{listed: true, connected: true, rests: rest, held: 3}, true},
		"before muxes answered":    {releasedRange{listed: true, connected: true, rests: rest, written: 1}, false},
		"long before they did":     {releasedRange{listed: true, connected: true, rests: 100 * most, written: 1}, false},
		"of who left":              {releasedRange{connected: true, rests: rest}, true},
		"of who left, too early":   {releasedRange{connected: true, rests: rest - 1}, false},
		"not let go of":            {releasedRange{connected: true, rests: rest, held: 1}, false},
		"not let go of for long":   {releasedRange{connected: true, rests: most - 1, held: 1}, false},
		"not let go of at all":     {releasedRange{connected: true, rests: most, held: 1}, true},
		"of a host that is away":   {releasedRange{rests: rest, held: 1}, true},
		"of one that just went":    {releasedRange{rests: rest - 1, held: 1}, false},
		"not known to be nobody's": {releasedRange{rests: most, held: 1, written: 1}, false},
	} {
		for _, key := range []model.SNATKey{
			firstSNATClient, {VIP: netip.MustParseAddr("2001:db8::20"), Address: netip.MustParseAddr("fd00::11")},
		} {
			if free := c.released.isFree(t, key); free != c.free {
				t.Errorf("%s, of %s: it is free: %t, want %t", what, key, free, c.free)
			}
		}
	}
}

// Released ranges are not free until the muxes have answered that their workload has them no more, however long they
// rest.
func TestReleasedRangesWaitForMuxes(t *testing.T) {
	var m *Manager
	url, mux, _ := leaving(t, func(started *Manager) { m = started })
	client := dial(t, url)
	given, err := allocate(t, client, "host1", firstSNATClient, 8)
	if err != nil || len(given) == 0 {
		t.Fatalf("given %v, %v", given, err)
	}
	mux.setMute(true)
	released, err := client.ReleasePorts(t.Context(), &weirv1.ReleasePortsRequest{
		Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ranges: rpc.RangesToProto(given),
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mux reads it", func() bool { return mux.has(released.GetGeneration()) })
	free := func() bool {
		s := m.store.State()
		h, free := m.rested(s, rests{}.look(s, m.now().Add(-24*time.Hour)))[firstSNATClient]
		return free && len(h.Resting) == 0 && !slices.ContainsFunc(given, func(r model.Range) bool { return slices.Contains(h.Ranges, r) })
	}
	if free() {
		t.Error("a range is free that a mux may still send to the workload that had it")
	}
	mux.setMute(false)
	eventually(t, "the mux has reported", mux.report)
	eventually(t, "they are free", free)
}
