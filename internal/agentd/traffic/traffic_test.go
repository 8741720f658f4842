package traffic

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/sample"
)

type samples []sample.Packet

func (s *samples) EachSample(take func(sample.Packet)) error {
	for _, p := range *s {
		take(p)
	}
	*s = nil
	return nil
}

// What was counted is told every ten seconds, again until it is answered, and from then on by the racks that the manager
// names.
func TestReports(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(slog.New(slog.DiscardHandler), now)
	packet := sample.Packet{VIP: netip.MustParseAddr("203.0.113.1"), Client: netip.MustParseAddr("10.1.2.3"), Bytes: 100}
	count := func() {
		t.Helper()
		if err := m.read(&samples{packet, packet}); err != nil {
			t.Fatal(err)
		}
	}
	report := func() *weirv1.ReportHostRequest {
		r := &weirv1.ReportHostRequest{}
		m.Add(r, now)
		return r
	}
	count()
	if r := report(); len(r.GetTraffic()) != 0 {
		t.Errorf("told at once: %v", r)
	}
	now = now.Add(ReportInterval)
	first := report()
	count()
	if len(first.GetTraffic()) != 1 || first.GetTraffic()[0].GetBytes() != 200 || first.GetTraffic()[0].GetFrom() != "" || first.GetRacks() != 0 {
		t.Fatalf("told %v", first)
	}
	if again := report(); len(again.GetTraffic()) != 1 || again.GetTraffic()[0].GetBytes() != 200 {
		t.Errorf("unanswered, told %v", again)
	}
	if m.Answered(&weirv1.ReportHostResponse{Racks: &weirv1.RackPrefixes{Prefixes: []string{"rack"}}}) == nil {
		t.Error("a prefix that is none is taken")
	}
	if err := m.Answered(&weirv1.ReportHostResponse{Racks: &weirv1.RackPrefixes{Prefixes: []string{"10.1.0.0/16"}}}); err != nil {
		t.Fatal(err)
	}
	if r := report(); len(r.GetTraffic()) != 0 || r.GetRacks() == 0 {
		t.Errorf("answered, told %v", r)
	}
	count()
	now = now.Add(ReportInterval)
	if r := report(); len(r.GetTraffic()) != 2 || r.GetTraffic()[0].GetFrom() != "" || r.GetTraffic()[1].GetFrom() != "10.1.0.0/16" {
		t.Errorf("by racks, told %v", r)
	}
}
