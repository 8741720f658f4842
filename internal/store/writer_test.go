package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
)

// Changes that wait together are written together, each with its own answer.
func TestChangesAreFolded(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	first := mustUpdate(t, s, Change{VIPs: []model.VIP{vip("first", "203.0.113.1")}})
	entered, goOn := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { // holds the writer until all others wait
		_, err := s.Update(t.Context(), func(*State) (Change, error) {
			close(entered)
			<-goOn
			return Change{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-entered
	const n = 50
	wrong := errors.New("wrong")
	generations := make([]model.Generation, n)
	for i := range n {
		group.Go(func() {
			var err error
			generations[i], err = s.Update(t.Context(), func(state *State) (Change, error) {
				switch i {
				case 7:
					return Change{}, wrong
				case 8:
					panic("at the disco")
				}
				name := fmt.Sprintf("vip%d", state.VIPs.Len()) // of what those before it lead to
				return Change{VIPs: []model.VIP{vip(name, "203.0.113.1")}}, nil
			})
			if failed := err != nil; failed != (i == 7 || i == 8) || i == 7 && !errors.Is(err, wrong) {
				t.Errorf("change %d: %v", i, err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return s.Queues()["configuration"].Length == n })
	close(goOn)
	group.Wait()
	if got := s.State().VIPs.Len(); got != 1+n-2 {
		t.Errorf("there are %d VIPs, want %d: one change did not see another", got, 1+n-2)
	}
	for i, generation := range generations {
		if i != 7 && i != 8 && (generation <= first || generation != generations[0]) {
			t.Errorf("change %d is of generation %d, the first of %d", i, generation, generations[0])
		}
	}
}

// When too many of one priority wait, those are refused, and the others are not.
func TestOverloadShedsByPriority(t *testing.T) {
	q := newWrites()
	nothing := func() *write { return &write{done: make(chan struct{})} }
	for range waitMost[Ports] {
		if err := q.add(Ports, nothing()); err != nil {
			t.Fatal(err)
		}
	}
	var overloaded *OverloadedError
	if err := q.add(Ports, nothing()); !errors.As(err, &overloaded) || overloaded.Priority != Ports || overloaded.After <= 0 {
		t.Errorf("one too many: %v", err)
	}
	user := nothing()
	if err := q.add(Configuration, user); err != nil {
		t.Errorf("a user's change: %v", err)
	}
	now := time.Unix(1000, 0)
	batch, _ := q.take(now)
	if batch[0] != user || len(batch) != 1+takeMost[Ports] {
		t.Errorf("the next transaction takes %d changes, the user's first: %v", len(batch), batch[0] == user)
	}
	if q.withdraw(Configuration, user) {
		t.Error("a change was taken back while it is written")
	}
	// Port requests alone wait a moment for more, and for nobody else.
	if batch, wait := q.take(now.Add(time.Millisecond)); len(batch) != 0 || wait != portsPause-time.Millisecond {
		t.Errorf("the next transaction, at once, takes %d changes, in %s", len(batch), wait)
	}
	if err := q.add(Health, nothing()); err != nil {
		t.Fatal(err)
	}
	if batch, _ := q.take(now.Add(time.Millisecond)); len(batch) != 1+takeMost[Ports] {
		t.Errorf("with a change of health it takes %d changes", len(batch))
	}
	if batch, _ := q.take(now.Add(time.Millisecond + portsPause)); len(batch) != takeMost[Ports] {
		t.Errorf("after the pause it takes %d changes", len(batch))
	}
}

// Changes that come one by one do not wait; those that come faster than they are written are put together.
func TestACrowdIsWrittenTogether(t *testing.T) {
	q, now := newWrites(), time.Unix(1000, 0)
	add := func(n int) {
		for range n {
			if err := q.add(Configuration, &write{done: make(chan struct{})}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		add(1)
		if batch, wait := q.take(now); len(batch) != 1 || wait != 0 {
			t.Fatalf("one change is a transaction of %d, after %s", len(batch), wait)
		}
	}
	add(2)
	if batch, _ := q.take(now); len(batch) != 2 {
		t.Errorf("two are a transaction of %d", len(batch))
	}
	add(1)
	if batch, wait := q.take(now.Add(time.Millisecond)); len(batch) != 0 || wait != congestionPause-time.Millisecond {
		t.Errorf("the one behind them is a transaction of %d, in %s", len(batch), wait)
	}
	if batch, _ := q.take(now.Add(congestionPause)); len(batch) != 1 {
		t.Errorf("after the pause there is a transaction of %d", len(batch))
	}
	most := takeMost[Configuration]
	add(most + 1)
	for _, want := range []int{most, 1} {
		if batch, wait := q.take(now.Add(congestionPause)); len(batch) != want || wait != 0 {
			t.Errorf("of more than a transaction holds, %d are in one after %s, want %d at once", len(batch), wait, want)
		}
	}
}

// A version names one state of a VIP: what is written together is of one generation, so a VIP is written once.
func TestAVersionNamesOneState(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	of := func(tenant string, names ...string) *write {
		var c Change
		for i, name := range names {
			v := vip(name, fmt.Sprintf("203.0.113.%d", i+1))
			v.Tenant = tenant
			c.VIPs = append(c.VIPs, v)
		}
		return &write{ctx: t.Context(), decide: change(c)}
	}
	if f, _ := s.fold([]*write{of("a", "shop"), of("a", "blog"), of("b", "shop"), of("c", "mail")}); len(f.writes) != 2 {
		t.Errorf("%d changes are written together, want 2: the third is of a VIP that the first one writes", len(f.writes))
	}
	generations := make(chan model.Generation, 20)
	for i := range cap(generations) {
		go func() {
			generation, err := s.Update(t.Context(), of(fmt.Sprint(i), "shop").decide)
			if err != nil {
				t.Error(err)
			}
			generations <- generation
		}()
	}
	told := map[model.Generation]bool{}
	for range cap(generations) {
		told[<-generations] = true
	}
	if len(told) != cap(generations) {
		t.Errorf("%d changes of a VIP were told %d versions", cap(generations), len(told))
	}
}
