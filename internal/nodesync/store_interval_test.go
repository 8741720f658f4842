package nodesync

import (
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// reporting is a host that reports every 2 seconds, by a clock of its own.
type reporting struct {
	*Service
	now      time.Time
	sessions uint64
	warning  string
}

func startReporting(t *testing.T) *reporting {
	n, _ := newService(t)
	h := &reporting{Service: n, now: noon}
	n.Name, n.Reports, n.TellInterval, n.Now = n.Store.Name(), NewReports(n.Log), DefaultTellInterval, func() time.Time { return h.now }
	n.acks = acknowledged{func(string) {}}
	return h
}

// over lets time pass, and returns how often the store was given a report, and other managers were told of one.
func (h *reporting) over(t *testing.T, d time.Duration) (stored, told int) {
	t.Helper()
	for end := h.now.Add(d); h.now.Before(end); h.now = h.now.Add(2 * time.Second) {
		before := h.Reports.newest["host1"]
		h.sessions++
		detail := &weirv1.NodeStatus{Host: &weirv1.HostStatus{Sessions: h.sessions}}
		if h.warning != "" {
			detail.Host.Warnings = []string{h.warning}
		}
		count := nodestatus.SessionCount{At: h.now, Generation: 1}
		if err := h.takeReport(model.RoleHost, "host1", 1, nil, detail, count); err != nil {
			t.Fatal(err)
		}
		after := h.Reports.newest["host1"]
		if !after.stored.Equal(before.stored) {
			stored++
		}
		if !after.told.Equal(before.told) {
			told++
		}
	}
	return stored, told
}

// The store is given what is news at once, and else little: all managers tell each other. It gets more while one of them does
// not follow, or the leader waits for what the host counted.
func TestWhatTheStoreIsGiven(t *testing.T) {
	h := startReporting(t)
	if stored, told := h.over(t, 2*time.Second); stored != 1 || told != 1 {
		t.Fatalf("of the first report the store was given %d, others were told %d", stored, told)
	}
	if stored, told := h.over(t, 20*time.Minute); stored != 4 || told != 120 {
		t.Errorf("in 20 minutes the store was given %d reports, others were told %d; want 4, 120", stored, told)
	}
	h.warning = "no route to 10.1.1.2"
	if stored, told := h.over(t, 2*time.Second); stored != 1 || told != 1 {
		t.Errorf("of news the store was given %d, others were told %d", stored, told)
	}

	if _, err := h.Store.Update(t.Context(), func(s *store.State) (store.Change, error) {
		key := model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
		backend := netip.MustParseAddrPort("10.3.1.11:8080")
		return store.Change{Tables: map[model.EndpointKey]desired.Table{key: {
			Rows: []desired.Row{{Slot: 1, Backend: backend, Tunnel: backend.Addr()}}, Buckets: []model.Slot{2, 2},
			Moves: []desired.Move{{Bucket: 0, From: 1, Since: noon}},
		}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	h.now = h.now.Add(drainingPause)
	h.over(t, 12*time.Second)
	if stored, _ := h.over(t, 2*time.Minute); stored != 12 {
		t.Errorf("while buckets move away from the host the store was given %d reports in 2 minutes, want 12", stored)
	}

	h = startReporting(t)
	h.Name = "m9" // so that the store's manager is another one, which does not follow
	h.over(t, 12*time.Second)
	if stored, _ := h.over(t, 2*time.Minute); stored != 12 {
		t.Errorf("for a manager that does not follow the store was given %d reports in 2 minutes, want 12", stored)
	}
	ended := h.Reports.follow(h.Store.Name())
	if stored, _ := h.over(t, 4*time.Minute); stored > 1 {
		t.Errorf("when it follows the store was given %d reports in 4 minutes", stored)
	}
	ended()
	if stored, _ := h.over(t, 2*time.Minute); stored < 12 {
		t.Errorf("when it follows no more the store was given %d reports in 2 minutes", stored)
	}
}

// A count that the store was not given is not written later: the leader would take it for a new one.
func TestOldCountsAreNotStored(t *testing.T) {
	h := startReporting(t)
	h.over(t, 2*time.Second)
	given := h.Reports.newest["host1"].SessionCount
	h.over(t, 30*time.Second)
	h.now = h.now.Add(2 * time.Second)
	detail := &weirv1.NodeStatus{Host: &weirv1.HostStatus{Warnings: []string{"news"}}}
	if err := h.takeReport(model.RoleHost, "host1", 1, nil, detail, nodestatus.SessionCount{}); err != nil {
		t.Fatal(err)
	}
	if got := h.Reports.newest["host1"]; !got.stored.Equal(h.now) || !got.SessionCount.Equal(given) {
		t.Errorf("with news the store is given the count of %s, want that of %s", got.SessionCount.At, given.At)
	}
}

// The store is refreshed of all nodes in turn.
func TestNodesAreRefreshedInTurn(t *testing.T) {
	const nodes, steps = 3000, 30
	for i := range steps {
		at := noon.Add(time.Duration(i) * RefreshInterval / steps)
		due := 0
		for n := range nodes {
			name := "host" + time.Duration(n).String()
			if refreshes(name, at, RefreshInterval) != refreshes(name, at.Add(RefreshInterval/steps), RefreshInterval) {
				due++
			}
		}
		if due < nodes/steps/2 || due > 2*nodes/steps {
			t.Errorf("in turn %d %d nodes of %d are due, want about %d", i, due, nodes, nodes/steps)
		}
	}
}

// What the store did not take is given to it again with the next report, and stays known meanwhile.
func TestWhatTheStoreDidNotTakeIsNews(t *testing.T) {
	h := startReporting(t)
	h.over(t, 2*time.Second)
	h.Reports.setUnstored("host1")
	if _, _, here := h.Reports.LatestHere("host1", h.Store.State().Status.At("host1")); !here {
		t.Error("the report is not known any more")
	}
	if stored, _ := h.over(t, 2*time.Second); stored != 1 {
		t.Errorf("the store was given %d reports, want 1", stored)
	}
}

// What the store got after another manager told a report counts, whatever the clocks of both managers say.
func TestTheStoreIsNewerThanWhatWasToldBefore(t *testing.T) {
	h := startReporting(t)
	s, stored := *h.Store.State(), nodestatus.Status{Seen: noon}
	s.Status = s.Status.Clone()
	s.Status.Set("host1", stored)
	ahead := &weirv1.NodeReport{Node: "host1", Status: &weirv1.NodeStatus{
		LastSeen: timestamppb.New(stored.Seen.Add(time.Hour)), Host: &weirv1.HostStatus{},
	}}
	r := NewReports(h.Log)
	r.take(&s, []*weirv1.NodeReport{ahead}, h.now)
	if _, _, known := r.Latest("host1", stored); !known {
		t.Fatal("what was told last does not count")
	}
	stored.Seen = stored.Seen.Add(time.Minute)
	if _, _, known := r.Latest("host1", stored); known {
		t.Error("what was told before the store got something newer counts")
	}
}
