package store

import (
	"errors"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/truststore"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// putTenant lets the tenant have as many VIPs.
func putTenant(t *testing.T, s *Store, vips uint32) {
	t.Helper()
	if err := s.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) {
		return truststore.Change{Tenants: []model.Tenant{{Name: "acme", Limits: model.Quotas{VIPs: &vips}}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// What another manager makes of a tenant between the decision on a VIP and its transaction has that decided again: a
// quota that was lowered is held to, one that was raised is no reason to refuse.
func TestVIPsAreDecidedByTenantsAsTheyAre(t *testing.T) {
	endpoints := []string{etcdtest.Start(t)}
	leader, _ := open(t, etcd.Config{Name: "m1", Endpoints: endpoints})
	eventually(t, "m1 leads", func() bool { epoch, _ := leader.Election.Epoch(); return epoch != 0 })
	other, _ := open(t, etcd.Config{Name: "m2", Endpoints: endpoints})
	full := errors.New("the tenant is full")
	for _, c := range []struct {
		what          string
		before, after uint32
		want          error
	}{
		{"lowered", 1, 0, full},
		{"raised", 0, 1, nil},
	} {
		putTenant(t, leader, c.before)
		calls := 0
		_, err := leader.Update(t.Context(), func(s *State) (Change, error) {
			now, _ := leader.Trust.Watch()
			if calls++; calls == 1 {
				putTenant(t, other, c.after)
			}
			if s.Usage("acme").VIPs >= *now.Tenants.At("acme").Limits.VIPs {
				return Change{}, full
			}
			return Change{VIPs: []model.VIP{vip(c.what, "203.0.113.1")}}, nil
		})
		if !errors.Is(err, c.want) || leader.State().VIPs.Has(c.what) != (c.want == nil) {
			t.Errorf("a quota that was %s: %v after %d decisions, want %v", c.what, err, calls, c.want)
		}
	}
}

// Changes of health do not wait for tenants.
func TestHealthIsNotDecidedByTenants(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	eventually(t, "it leads", func() bool { epoch, _ := s.Election.Epoch(); return epoch != 0 })
	calls := 0
	if _, err := s.UpdateAs(t.Context(), Health, func(*State) (Change, error) {
		calls++
		putTenant(t, s, uint32(calls))
		return Change{Nodes: []model.Node{host}}, nil
	}); err != nil || calls != 1 {
		t.Errorf("got %v after %d decisions", err, calls)
	}
}

// A tenant is deleted in the order of the changes: what came before is seen, what comes behind sees that it is gone,
// though both may be taken together; and no user comes to it meanwhile.
func TestTenantsAreDeletedInOrder(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	eventually(t, "it leads", func() bool { epoch, _ := s.Election.Epoch(); return epoch != 0 })
	putTenant(t, s, 1)
	first := &write{ctx: t.Context(), done: make(chan struct{}), decide: func(*State) (Change, error) {
		return Change{DeleteTenants: []string{"acme"}}, nil
	}}
	there := false
	second := &write{ctx: t.Context(), done: make(chan struct{}), decide: func(*State) (Change, error) {
		now, _ := s.Trust.Watch()
		there = now.Tenants.Has("acme")
		return Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}}, nil
	}}
	f, left := s.fold([]*write{first, second})
	if len(f.writes) != 1 || len(left) != 1 || there {
		t.Errorf("%d changes are written with the deletion, %d wait", len(f.writes), len(left))
	}

	calls := 0
	if _, err := s.Update(t.Context(), func(*State) (Change, error) {
		if calls++; calls == 1 {
			putTenant(t, s, 2)
		}
		return Change{DeleteTenants: []string{"acme"}}, nil
	}); err != nil || calls != 2 {
		t.Errorf("got %v after %d decisions", err, calls)
	}
	if now, _ := s.Trust.Watch(); now.Tenants.Len() != 0 {
		t.Errorf("there is %v", slices.Collect(now.Tenants.Keys()))
	}
}
