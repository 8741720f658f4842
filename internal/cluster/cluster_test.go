package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/truststore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// open opens and runs a replica until the test ends or the function returned is called.
func open(t *testing.T, cfg etcd.Config) (*Cluster, func()) {
	t.Helper()
	cfg.Log = testLog(t)
	c, err := Open(t.Context(), Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return c.Run(ctx) })
	var once sync.Once
	end := func() {
		once.Do(func() {
			cancel()
			if err := running.Wait(); err != nil {
				t.Error(err)
			}
			c.Close()
		})
	}
	t.Cleanup(end)
	return c, end
}

// eventually polls until done says so.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited in vain until %s", what)
}

var host = model.Node{Name: "host1", Role: model.RoleHost, Addresses: []netip.Addr{netip.MustParseAddr("10.2.1.2")}, Version: "1"}

func vip(name, address string) model.VIP {
	return model.VIP{
		Name: name, Tenant: "acme", Address: netip.MustParseAddr(address),
		Endpoints: []model.Endpoint{{Protocol: model.UDP, Port: 53}},
	}
}

// change is an Update that does not look at the State.
func change(c store.Change) func(*store.State) (store.Change, error) {
	return func(*store.State) (store.Change, error) { return c, nil }
}

func mustUpdate(t *testing.T, c *Cluster, by store.Change) model.Generation {
	t.Helper()
	generation, err := c.Store.Update(t.Context(), change(by))
	if err != nil {
		t.Fatal(err)
	}
	return generation
}

func putTenant(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Store.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) {
		return truststore.Change{Tenants: []model.Tenant{{Name: "acme"}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A document in a form that a manager does not know is not written while that one is a manager: it would stop.
func TestFormsWaitForAllManagers(t *testing.T) {
	s, _ := open(t, etcd.Config{Name: "m1", DataDir: t.TempDir()})
	guarded := vip("guarded", "203.0.113.2")
	guarded.Endpoints[0].DenyLists = []string{"blocked"}
	eventually(t, "it tells what it knows", func() bool { return s.Store.State().Managers["m1"].Schema == codec.NewestSchema })
	old := `{"schema":1,"value":{"name":"m2","address":"192.0.2.2:7400"}}`
	for _, who := range []string{old, strings.Replace(old, `:7400"`, `:7400","schema":1`, 1)} {
		if _, err := s.etcd.Put(t.Context(), keyspace.Managers+"m2", who); err != nil {
			t.Fatal(err)
		}
		eventually(t, "m2 is known", func() bool { return s.Store.State().Managers["m2"].Name == "m2" })
		_, err := s.Store.Update(t.Context(), change(store.Change{VIPs: []model.VIP{guarded}}))
		var unknown *store.UnknownFormError
		if !errors.As(err, &unknown) || *unknown != (store.UnknownFormError{Manager: "m2", Knows: 1, Needs: 2}) {
			t.Errorf("a form that m2 does not know: %v", err)
		}
		mustUpdate(t, s, store.Change{VIPs: []model.VIP{vip("open", "203.0.113.1")}})
		if _, err := s.etcd.Delete(t.Context(), keyspace.Managers+"m2"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "m2 is gone", func() bool { return len(s.Store.State().Managers) == 1 })
	}
	mustUpdate(t, s, store.Change{VIPs: []model.VIP{guarded}})
}
