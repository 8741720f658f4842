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

// The oldest events of whoever has the most go, whether they were read or are known from what was written, also in an external
// etcd, which takes few operations at once; what repeats is new again.
func TestOldEventsGo(t *testing.T) {
	s := teststore.Open(t, etcdtest.Start(t))
	r, draw := s.Events.NewRecorder(), rand.New(rand.NewPCG(7, 7))
	type event struct {
		tenant string
		order  int
	}
	want, writes := map[string]event{}, eventlog.PruneAfter
	prune := func() {
		names := slices.SortedFunc(maps.Keys(want), func(a, b string) int {
			return cmp.Or(cmp.Compare(want[a].order, want[b].order), cmp.Compare(a, b))
		})
		var owners []string
		for _, name := range names {
			owners = append(owners, want[name].tenant)
		}
		if len(names) > eventlog.MaxEvents {
			for _, i := range eventlog.Excess(owners, eventlog.MaxEvents) {
				delete(want, names[i])
			}
		}
	}
	record := func(r *eventlog.Recorder, n int, events ...eventlog.Event) {
		t.Helper()
		if err := r.Record(t.Context(), time.Unix(1_700_000_000, 0), events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			want[e.Name()] = event{e.Tenant, n}
		}
	}
	check := func() {
		t.Helper()
		events, _, err := s.Events.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			got = append(got, e.Name())
		}
		slices.Sort(got)
		if all := slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
			t.Fatalf("%d events are left, want %d others", len(got), len(all))
		}
	}
	const batch = 64
	const batches = (eventlog.MaxEvents + 4*eventlog.PruneAfter) / batch
	for n := range batches {
		var events []eventlog.Event
		for i := range batch {
			e := eventlog.Event{Kind: "VIP", Reason: "Test", Count: 1, Object: fmt.Sprint(n, "-", i), Tenant: []string{"red", "red", "red", "blue"}[i%4]}
			if again := draw.IntN(max(n, 1)); i%8 == 0 && n > 0 { // one that was there before
				e.Object, e.Tenant = fmt.Sprint(again, "-", i+1), "red"
			}
			events = append(events, e)
		}
		record(r, n, events...)
		if writes += batch; writes >= eventlog.PruneAfter {
			writes = 0
			prune()
		}
		if n == batches-6 { // another leader, whose first write has it look
			check()
			if !r.Knows() {
				t.Error("what is stored is read anew each time")
			}
			record(s.Events.NewRecorder(), n, eventlog.Event{Kind: "VIP", Reason: "Test", Count: 1, Object: "other", Tenant: "blue"})
			prune()
		}
	}
	check()
}
