package eventlog_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/store/eventlog"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

// oracle is what is to be stored: the tenant of each event, and when it was written last.
type oracle map[string]struct {
	tenant string
	order  int
}

// prune drops the oldest of whoever has the most.
func (o oracle) prune() {
	names := slices.SortedFunc(maps.Keys(o), func(a, b string) int {
		return cmp.Or(cmp.Compare(o[a].order, o[b].order), cmp.Compare(a, b))
	})
	var owners []string
	for _, name := range names {
		owners = append(owners, o[name].tenant)
	}
	if len(names) > eventlog.MaxEvents {
		for _, i := range eventlog.Excess(owners, eventlog.MaxEvents) {
			delete(o, names[i])
		}
	}
}

// record has a recorder write events, and notes them.
func (o oracle) record(t *testing.T, r *eventlog.Recorder, order int, events ...eventlog.Event) {
	t.Helper()
	if err := r.Record(t.Context(), time.Unix(1_700_000_000, 0), events); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		o[e.Name()] = struct {
			tenant string
			order  int
		}{e.Tenant, order}
	}
}

func (o oracle) check(t *testing.T, log *eventlog.Log) {
	t.Helper()
	events, _, err := log.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Name())
	}
	slices.Sort(got)
	if all := slices.Sorted(maps.Keys(o)); !slices.Equal(got, all) {
		t.Fatalf("%d events are left, want %d others", len(got), len(all))
	}
}

// The oldest events of whoever has the most go, whether they were read or are known from what was written, also in an external
// etcd, which takes few operations at once; what repeats is new again.
func TestOldEventsGo(t *testing.T) {
	s := teststore.Open(t, etcdtest.Start(t))
	r, draw := s.Events.NewRecorder(), rand.New(rand.NewPCG(7, 7))
	const batch = 64
	const batches = (eventlog.MaxEvents + 6*eventlog.PruneAfter) / batch
	want, writes := oracle{}, eventlog.PruneAfter
	for n := range batches {
		var events []eventlog.Event
		for i := range batch {
			e := eventlog.Event{Kind: "VIP", Reason: "Test", Count: 1, Object: fmt.Sprint(n, "-", i), Tenant: []string{"red", "red", "red", "blue"}[i%4]}
			if again := draw.IntN(max(n, 1)); i%8 == 0 && n > 0 { // one that was there before
				e.Object, e.Tenant = fmt.Sprint(again, "-", i+1), "red"
			}
			events = append(events, e)
		}
		want.record(t, r, n, events...)
		if writes += batch; writes >= eventlog.PruneAfter {
			writes = 0
			want.prune()
		}
		if n == batches-6 { // another leader, whose first write has it look
			want.check(t, s.Events)
			if !r.Knows() {
				t.Error("what is stored is read anew each time")
			}
			want.record(t, s.Events.NewRecorder(), n, eventlog.Event{Kind: "VIP", Reason: "Test", Count: 1, Object: "other", Tenant: "blue"})
			want.prune()
		}
	}
	want.check(t, s.Events)
}
