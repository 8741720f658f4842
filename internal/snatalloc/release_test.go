package snatalloc

import (
	"net/netip"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

var (
	firstSNATClient  = model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.3.1.11")}
	secondSNATClient = model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.3.2.11")}
)

// releasedRange is a range that a workload on host1 gave back, and what the manager knows of the two.
type releasedRange struct {
	listed, connected bool
	held              uint32           // ranges that the host still has of the workload, by its last report
	written           model.Generation // of the workload's ranges; muxes have answered generation 0
	quarantined       time.Duration    // since this leader first saw it; negative: it has not seen it yet
	heard             time.Duration    // since the host's last report
}

// silentMuxes have answered no generation.
type silentMuxes struct{ Hub }

func (silentMuxes) AcknowledgedByMuxes() model.Generation { return 0 }

// isFree says whether the leader makes the range free.
func (r releasedRange) isFree(t *testing.T, key model.SNATKey) bool {
	t.Helper()
	now := time.Unix(100000, 0)
	detail := &weirv1.NodeStatus{Host: &weirv1.HostStatus{Snat: []*weirv1.SNATUse{
		{Vip: key.VIP.String(), Address: key.Address.String(), Ranges: r.held},
	}}}
	a := New(Config{
		Hub: silentMuxes{}, Now: func() time.Time { return now },
		Reported: func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
			return nodestatus.Status{Seen: now.Add(-r.heard)}, detail
		},
	}, NewMetrics())
	s := &store.State{}
	s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
	if vip := (model.VIP{Name: "crawler", Address: key.VIP, SNAT: &model.SNAT{}}); r.listed {
		vip.SNAT.Workloads = []model.SNATWorkload{{Address: key.Address, Host: "host1"}}
		s.PutVIP(vip)
	}
	if r.connected {
		s.Streams.Set("host1", true)
	}
	// The clock of the leader that took it back was days behind: what it wrote does not count for the quarantine.
	s.Ports.Set(key, snatport.Allocation{Host: "host1", Quarantined: []snatport.Quarantined{{Since: now.Add(-48 * time.Hour), Ranges: []model.Range{7}}}})
	s.PortsWritten.Set(key, r.written)
	q := newQuarantines(a)
	if r.quarantined >= 0 {
		q.observe(s, now.Add(-r.quarantined))
	}
	change := q.free(s, q.expired(s, now), now)
	if h, left := change.Ports[key]; left && !h.Empty() {
		t.Errorf("%+v: what is left is %+v", r, h)
	}
	return len(change.Ports)+len(change.DeletePorts) > 0
}

// A range that was released is free when its quarantine is over, every healthy mux knows that its workload has it no
// more, and the host of a workload that is in no list any more has released it too. A host that does not keeps it for a
// bounded time.
func TestReleasedRangesBecomeFree(t *testing.T) {
	const quarantine, most = snatport.QuarantineTime, heldQuarantines * snatport.QuarantineTime
	for what, c := range map[string]struct {
		released releasedRange
		free     bool
	}{
		"never seen":               {releasedRange{listed: true, connected: true, quarantined: -1}, false},
		"just seen":                {releasedRange{listed: true, connected: true}, false},
		"about to have rested":     {releasedRange{listed: true, connected: true, quarantined: quarantine - 1}, false},
		"over":                     {releasedRange{listed: true, connected: true, quarantined: quarantine}, true},
		"over, of a user":          {releasedRange{listed: true, connected: true, quarantined: quarantine, held: 3}, true},
		"before muxes answered":    {releasedRange{listed: true, connected: true, quarantined: quarantine, written: 1}, false},
		"long before they did":     {releasedRange{listed: true, connected: true, quarantined: 100 * most, written: 1}, false},
		"of who left":              {releasedRange{connected: true, quarantined: quarantine}, true},
		"of who left, too early":   {releasedRange{connected: true, quarantined: quarantine - 1}, false},
		"not let go of":            {releasedRange{connected: true, quarantined: quarantine, held: 1}, false},
		"not let go of for long":   {releasedRange{connected: true, quarantined: most - 1, held: 1}, false},
		"not let go of at all":     {releasedRange{connected: true, quarantined: most, held: 1}, true},
		"heard of before it left":  {releasedRange{connected: true, quarantined: quarantine, heard: 5 * time.Minute}, false},
		"never heard of since":     {releasedRange{connected: true, quarantined: most, heard: time.Hour}, true},
		"of a host that is away":   {releasedRange{quarantined: quarantine, held: 1}, true},
		"of one that just went":    {releasedRange{quarantined: quarantine - 1, held: 1}, false},
		"not known to be nobody's": {releasedRange{quarantined: most, held: 1, written: 1}, false},
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

// The quarantine is counted by the clock of whoever leads, whatever the clock of the leader before said.
func TestQuarantinesAreCountedByTheLeader(t *testing.T) {
	const bound = 2 * time.Minute
	now := time.Unix(100000, 0)
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		quarantined := snatport.Quarantined{Since: now.Add(ahead), Ranges: []model.Range{7}}
		s := &store.State{}
		s.Ports.Set(firstSNATClient, snatport.Allocation{Host: "host1", Quarantined: []snatport.Quarantined{quarantined}})
		q := newQuarantines(nil)
		if q.longer(firstSNATClient, quarantined, 0, now) {
			t.Error("something is in quarantine that was never seen")
		}
		for after := time.Duration(0); after <= bound+time.Minute; after += 5 * time.Second {
			q.observe(s, now.Add(after))
			if over := q.longer(firstSNATClient, quarantined, bound, now.Add(after)); over != (after >= bound) {
				t.Errorf("the leader before was %s ahead: after %s its rest is over: %t", ahead, after, over)
			}
		}
	}
}
