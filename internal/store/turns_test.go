package store

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// by is a context of a user of a tenant.
func by(t *testing.T, tenant string) context.Context {
	return trust.WithIdentity(t.Context(), trust.Identity{
		Kind: trust.User, Name: "of-" + tenant, Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: tenant, Role: trust.Operator}},
	})
}

// A tenant that changes one VIP over and over, each time in a transaction of its own, does not hold another one up: what
// came while a transaction was written is in the next.
func TestTenantsWriteByTurns(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	const n = 64
	var group sync.WaitGroup
	first, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	update := func(tenant, name string) model.Generation {
		generation, err := s.Update(by(t, tenant), func(*State) (Change, error) {
			once.Do(func() {
				close(first)
				<-goOn
			})
			v := vip(name, "203.0.113.1")
			v.Tenant = tenant
			return Change{VIPs: []model.VIP{v}}, nil
		})
		if err != nil {
			t.Error(err)
		}
		return generation
	}
	generations := make(chan model.Generation, n)
	for range n {
		group.Go(func() { generations <- update("red", "rose") })
	}
	<-first
	waiting := make(chan model.Generation, 1)
	group.Go(func() { waiting <- update("blue", "sea") })
	eventually(t, "blue waits", func() bool {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return s.queue.queues[Configuration].LenOf("tenant/blue") == 1
	})
	close(goOn)
	group.Wait()
	close(generations)
	before, blue := 0, <-waiting
	for red := range generations {
		if red < blue {
			before++
		}
	}
	if before > 2 {
		t.Errorf("%d changes of red were written before that of blue", before)
	}
}

// One tenant does not fill the queue.
func TestATenantHasAPartOfTheQueue(t *testing.T) {
	q := newWrites()
	add := func(who string) error {
		return q.add(Configuration, &write{who: who, done: make(chan struct{})})
	}
	for i := range eachMost(Configuration) {
		if err := add("tenant/red"); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	if err := add("tenant/red"); !errors.As(err, new(*OverloadedError)) {
		t.Errorf("one too many of red: %v", err)
	}
	if err := add("tenant/blue"); err != nil {
		t.Errorf("the first of blue: %v", err)
	}
}
