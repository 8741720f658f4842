package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// Changes that wait together are written together, each with its own answer.
func TestChangesAreFolded(t *testing.T) {
	s, _ := open(t, Config{DataDir: t.TempDir()})
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
	eventually(t, "all wait", func() bool { return s.Waiting()["configuration"] == n })
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
	batch := q.take()
	if batch[0] != user || len(batch) != 1+takeMost[Ports] {
		t.Errorf("the next transaction takes %d changes, the user's first: %v", len(batch), batch[0] == user)
	}
	if q.withdraw(Configuration, user) {
		t.Error("a change was taken back while it is written")
	}
}
