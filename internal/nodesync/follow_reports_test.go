package nodesync

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// teller is a manager with a clock that is ahead of those of others, and reports of hosts.
type teller struct {
	*Reports
	ahead time.Duration
}

func newTeller(ahead time.Duration) teller {
	return teller{NewReports(slog.New(slog.DiscardHandler)), ahead}
}

// says takes a report of a host at a time.
func (t teller) says(host string, sessions uint64, at time.Time) nodestatus.Status {
	detail := &weirv1.NodeStatus{Host: &weirv1.HostStatus{Sessions: sessions}}
	at = at.Add(t.ahead)
	r := report{at: at, detail: detail, bare: withoutCounters(detail), Status: nodestatus.Status{Seen: at, Generation: 7}}
	t.setReport(host, r, true)
	return r.Status
}

// tells tells another manager what is due after a place, and returns the next one.
func (t teller) tells(other teller, s *store.State, place uint64, at time.Time) uint64 {
	due, last, _ := t.after(place)
	for len(due) > 0 {
		var message *weirv1.FollowReportsResponse
		message, due = tell(due, at.Add(t.ahead))
		other.take(s, message.GetReports(), at.Add(other.ahead))
	}
	return last
}

// knows are the sessions of a host that a manager shows, and how long ago it says that the host reported.
func (t teller) knows(s *store.State, host string, at time.Time) (sessions uint64, age time.Duration) {
	said, detail := t.Newest(s, s.Nodes.At(host))
	return detail.GetHost().GetSessions(), at.Add(t.ahead).Sub(said.Seen)
}

// What another manager told of a node counts by when it was taken, whatever the clocks of managers say: a node that moves from
// one to another is shown as it is there, by both of them and by a third.
func TestTheNewestReportWins(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		m1, m2, m3 := newTeller(ahead), newTeller(0), newTeller(0)
		s := &store.State{}
		s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
		holds := func(what string, m teller, sessions uint64, at, taken time.Time) {
			t.Helper()
			if got, age := m.knows(s, "host1", at); got != sessions || age != at.Sub(taken) {
				t.Errorf("%s ahead, %s: %d sessions, reported %s ago; want %d, %s", ahead, what, got, age, sessions, at.Sub(taken))
			}
		}
		at := noon
		s.Status.Set("host1", m1.says("host1", 1, at))
		m1.tells(m2, s, 0, at)
		place := m1.tells(m3, s, 0, at.Add(time.Second))
		holds("another manager is told", m3, 1, at.Add(time.Second), at)
		next := at.Add(10 * time.Second)
		m1.says("host1", 2, next)
		m1.tells(m3, s, place, next)
		holds("it is told again, and the store is not", m3, 2, next, next)
		if more := m1.tells(m3, s, m1.tells(m3, s, 0, next), next); more != 2 {
			t.Errorf("%d reports became due, want 2", more)
		}

		moved := next.Add(3 * time.Second)
		s.Status.Set("host1", m2.says("host1", 3, moved))
		m2.tells(m1, s, 0, moved)
		m2.tells(m3, s, 0, moved)
		m1.tells(m3, s, 0, moved) // the stream is another one, and begins with all that is known
		for what, m := range map[string]teller{"where it was": m1, "where it is": m2, "elsewhere": m3} {
			holds("it reports to another manager, "+what, m, 3, moved, moved)
		}
		if _, _, here := m1.LatestHere("host1", s.Status.At("host1")); here {
			t.Errorf("%s ahead: the manager that it left takes it for its own", ahead)
		}
		late := moved.Add(time.Minute)
		if due, _, _ := m1.after(0); len(due) == 1 {
			if message, left := tell(due, late.Add(ahead)); len(message.GetReports())+len(left) > 0 {
				t.Errorf("%s ahead: the manager that it left tells %v", ahead, message)
			}
		}

		s.RemoveNode("host1")
		s.Status.Delete("host1")
		s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
		if got, _ := m3.knows(s, "host1", late); got != 0 {
			t.Errorf("a node of the same name has the %d sessions of one that was deleted", got)
		}
	}
}

// What a manager is told is bounded, and of nodes that are registered alone.
func TestWhatManagersTellIsBounded(t *testing.T) {
	m1, m2, s := newTeller(0), newTeller(0), &store.State{}
	for i := range 2*maxTold + 1 {
		name := fmt.Sprint("host", i)
		s.PutNode(model.Node{Name: name, Role: model.RoleHost})
		s.Status.Set(name, m1.says(name, 1, noon))
	}
	detail := &weirv1.NodeStatus{Mux: &weirv1.MuxStatus{XdpMode: "native"}}
	for i := range 16_384 {
		detail.Mux.Endpoints = append(detail.Mux.Endpoints, &weirv1.EndpointCounter{
			Endpoint: &weirv1.EndpointKey{Vip: fmt.Sprintf("203.0.113.%d", i%256), Protocol: "TCP", Port: 80}, Packets: 1 << 40,
		})
	}
	s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux})
	s.Status.Set("mux1", nodestatus.Status{Seen: noon})
	m1.setReport("mux1", report{at: noon, Status: nodestatus.Status{Seen: noon}, detail: detail, bare: withoutCounters(detail)}, true)
	m1.says("stranger", 1, noon)
	m1.says("mux2", 1, noon)
	s.PutNode(model.Node{Name: "mux2", Role: model.RoleMux})
	messages := 0
	for due, _, _ := m1.after(0); len(due) > 0; messages++ {
		var message *weirv1.FollowReportsResponse
		message, due = tell(due, noon)
		if n := len(message.GetReports()); n > maxTold || proto.Size(message) > maxToldBytes+maxDetail {
			t.Errorf("a message has %d reports in %d bytes", n, proto.Size(message))
		}
		m2.take(s, message.GetReports(), noon)
	}
	if want := 2*maxTold + 2; messages != 3 || len(m2.others) != want {
		t.Errorf("%d messages told of %d nodes, want 3 of %d: a mux without counters, neither strangers nor what is of another role", messages, len(m2.others), want)
	}
	if _, told := m2.Newest(s, s.Nodes.At("mux1")); told.GetMux().GetXdpMode() != "native" || len(told.GetMux().GetEndpoints()) > 0 {
		t.Errorf("of a large report another manager has %d counters", len(told.GetMux().GetEndpoints()))
	}
	for i := range 2 * maxTold {
		s.RemoveNode(fmt.Sprint("host", i))
	}
	if m2.take(s, nil, noon); len(m2.others) != 2 {
		t.Errorf("reports of %d nodes are kept, 2 are registered", len(m2.others))
	}
}
