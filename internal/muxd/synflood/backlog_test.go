package synflood

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	queues "github.com/weirlb/weir/internal/model/backlog"
)

// watched is a watcher of one endpoint, with a clock and the events that it has reported.
type watched struct {
	*Watcher

	d      *oneEndpoint
	now    time.Time
	events []string
}

func newWatched() *watched {
	w := &watched{d: &oneEndpoint{}, now: time.Unix(1_700_000_000, 0)}
	w.Watcher = New(w.d, Limits{}, func(e *weirv1.MuxEvent) { w.events = append(w.events, e.GetReason()+" "+e.GetMessage()) }, slog.New(slog.DiscardHandler))
	return w
}

// passes lets time pass while SYNs come each second, of which none completes its handshake.
func (w *watched) passes(t *testing.T, d time.Duration, rate uint64) {
	t.Helper()
	for range d / sampleInterval {
		w.now = w.now.Add(sampleInterval)
		w.d.counter.SYNs += rate / 5
		if w.d.state.Watches {
			w.d.counter.Tried += rate / 40
		}
		if err := w.sampleEndpoints(w.now); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *watched) expect(t *testing.T, what string, answers bool, causes string, events ...string) {
	t.Helper()
	var said []string
	for _, p := range w.Pressures() {
		said = append(said, p.GetCause())
		if p.GetEndpoint().GetPort() != 80 {
			t.Errorf("%s: pressure %v names no endpoint", what, p)
		}
	}
	if w.d.state.Answers != answers || strings.Join(said, " ") != causes || strings.Join(w.events, "\n") != strings.Join(events, "\n") {
		t.Errorf("%s: answers %t for %v, events:\n%s\nwant %t for %s, events:\n%s", what, w.d.state.Answers, said, strings.Join(w.events, "\n"), answers, causes, strings.Join(events, "\n"))
	}
	w.events = nil
}

var full = []queues.Endpoint{{Key: web, Evidence: "129 wait"}}

// SYNs are answered while a manager says so, and the detector takes that for no flood.
func TestSYNsAreAnsweredForABacklog(t *testing.T) {
	w := newWatched()
	w.passes(t, 2*time.Second, 10)
	w.setBacklogs(full, w.now)
	w.passes(t, sampleInterval, 10)
	w.expect(t, "a full backlog", true, "backlog", "SYNCookiesOn SYN cookies on: 129 wait")
	w.passes(t, 30*time.Second, 10)
	w.expect(t, "for long", true, "backlog")
	w.setBacklogs(nil, w.now)
	w.passes(t, sampleInterval, 10)
	w.expect(t, "over", false, "", "SYNCookiesOff SYN cookies off after 30s: no backlog is full")
	w.passes(t, 10*time.Second, 10)
	w.expect(t, "and long over", false, "")
	if len(w.backlogs) != 0 || w.began.Load() != 0 {
		t.Errorf("%d backlogs are kept, and %d floods were told", len(w.backlogs), w.began.Load())
	}
}

// A flood that comes meanwhile is told, and outlives the backlog; one that ends before it ends nothing.
func TestAFloodAndABacklog(t *testing.T) {
	const flood = "SYNCookiesOn SYN cookies on: 10000 SYN/s, 0.0 % of the handshakes completed; usual 0/s"
	w := newWatched()
	w.passes(t, sampleInterval, 0)
	w.setBacklogs(full, w.now)
	w.passes(t, sampleInterval, 0)
	w.expect(t, "a full backlog", true, "backlog", "SYNCookiesOn SYN cookies on: 129 wait")
	w.passes(t, 2*time.Second, 10_000)
	w.expect(t, "and a flood", true, "syn-flood backlog", flood)
	w.setBacklogs(nil, w.now)
	w.passes(t, 2*time.Second, 10_000)
	w.expect(t, "and no backlog", true, "syn-flood")
	w.setBacklogs(full, w.now)
	w.passes(t, sampleInterval, 10_000)
	w.expect(t, "and again one", true, "syn-flood backlog")
	w.passes(t, 8*time.Second, 0)
	w.expect(t, "and no flood", true, "backlog")
	w.setBacklogs(nil, w.now)
	w.passes(t, sampleInterval, 0)
	w.expect(t, "nor a backlog", false, "", "SYNCookiesOff SYN cookies off after 8s: no backlog is full")
}

// Without a manager a backlog is forgotten, as is one of an endpoint that leaves nothing to the mux.
func TestABacklogIsForgotten(t *testing.T) {
	w := newWatched()
	w.passes(t, sampleInterval, 0)
	other := web
	other.Port = 81
	w.setBacklogs(append(full, queues.Endpoint{Key: other, Evidence: "99 wait"}), w.now)
	w.passes(t, backlogLifetime-time.Second, 0)
	w.expect(t, "for nearly a minute", true, "backlog", "SYNCookiesOn SYN cookies on: 129 wait")
	w.passes(t, 2*time.Second, 0)
	w.expect(t, "for longer", false, "", "SYNCookiesOff SYN cookies off after 1m0s: no backlog is full")
	w.passes(t, sampleInterval, 0)
	if len(w.backlogs) != 0 {
		t.Errorf("%d backlogs are kept", len(w.backlogs))
	}
	w.setBacklogs(full, w.now)
	w.passes(t, sampleInterval, 0)
	w.d.state = endpoint.SYNState{} // another change of the endpoint
	w.passes(t, sampleInterval, 0)
	if !w.d.state.Answers {
		t.Error("a change of the endpoint ends the answers")
	}
}
