package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// openOnly opens the store, which does not run.
func openOnly(t *testing.T, cfg etcd.Config) (*Store, error) {
	t.Helper()
	cfg.Log = testLog(t)
	client, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		return nil, err
	}
	s, err := Open(t.Context(), client, Config{Name: cmp.Or(cfg.Name, "manager"), Log: cfg.Log})
	if err != nil {
		client.Close()
		return nil, err
	}
	return s, nil
}

// open opens and runs the store until the test ends or the function returned is called.
func open(t *testing.T, cfg etcd.Config) (*Store, func()) {
	t.Helper()
	s, err := openOnly(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return s.etcd.Run(ctx) })
	running.Go(func() error { return s.Run(ctx) })
	var once sync.Once
	end := func() {
		once.Do(func() {
			cancel()
			if err := running.Wait(); err != nil {
				t.Error(err)
			}
			s.etcd.Close()
		})
	}
	t.Cleanup(end)
	return s, end
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

var (
	host  = model.Node{Name: "host1", Role: model.RoleHost, Addresses: []netip.Addr{netip.MustParseAddr("10.2.1.2")}, Version: "1"}
	key   = model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.1"), Protocol: model.UDP, Port: 53}
	table = desired.Table{
		Rows: []desired.Row{
			{Slot: 1, Backend: netip.MustParseAddrPort("10.3.1.11:8080"), Tunnel: netip.MustParseAddr("2001:db8::1")},
			{
				Slot: 8191, Backend: netip.MustParseAddrPort("10.3.1.12:8080"), Tunnel: netip.MustParseAddr("10.3.1.12"),
				Down: true, Freed: time.Date(2026, 11, 21, 8, 0, 0, 1, time.UTC),
			},
		},
		Buckets: []model.Slot{1, 8191, 1, 1},
		Moves: []desired.Move{
			{Bucket: 0, From: 8191, Since: time.Date(2026, 11, 21, 9, 0, 0, 1, time.UTC)},
			{Bucket: 1, From: 1, Since: time.Date(2026, 11, 21, 9, 0, 0, 1, time.UTC)},
			{Bucket: 3, From: 8191, Since: time.Date(2026, 11, 21, 9, 0, 0, 1, time.UTC)},
		},
		Cookies: model.CookiesSettling,
		Settles: time.Date(2026, 11, 21, 9, 0, 0, 2, time.UTC),
	}
)

func vip(name, address string) model.VIP {
	return model.VIP{
		Name: name, Tenant: "acme", Labels: map[string]string{"tier": "web"}, Address: netip.MustParseAddr(address),
		Consistency: model.ConsistencyFlowTable, Ping: model.PingIgnore, FlowLimit: 7, Limits: &model.Limits{Packets: 1, Bytes: 2, Connections: 3},
		Overload: &model.Overload{Triggers: []model.OverloadCause{model.CauseOverload}, HoldDown: time.Minute, MaxHoldDown: time.Hour, Steps: []model.OverloadStep{
			{Action: model.ActionLimit, After: time.Second, Limits: &model.Limits{Bytes: 7}}, {Action: model.ActionScrub, After: time.Minute, Scrubber: "east"},
		}},
		Fastpath: &model.Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.16/28")}, UDPPackets: 9},
		Endpoints: []model.Endpoint{{
			Protocol: model.UDP, Port: 53, AllUnhealthy: model.Refuse, Affinity: model.AffinityClient, IdleTimeout: time.Minute,
			Allow: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Deny: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32")},
			Backends: []model.Backend{
				{Address: netip.MustParseAddr("10.3.1.11"), Port: 8080, Host: "host1", Weight: 0, Tunnel: netip.MustParseAddr("2001:db8::1")},
				{Address: netip.MustParseAddr("10.3.1.12"), Port: 8080, Host: "host1", Weight: 3},
			},
			HealthCheck: &model.HealthCheck{
				Type: model.CheckHTTP, Port: 81, Path: "/healthz", Host: "a", Interval: time.Second, Timeout: time.Millisecond, Rise: 1, Fall: 2,
			},
		}},
	}
}

// change is an Update that does not look at the State.
func change(c Change) func(*State) (Change, error) {
	return func(*State) (Change, error) { return c, nil }
}

func mustUpdate(t *testing.T, s *Store, c Change) model.Generation {
	t.Helper()
	generation, err := s.Update(t.Context(), change(c))
	if err != nil {
		t.Fatal(err)
	}
	return generation
}

func TestEverythingSurvivesARestart(t *testing.T) {
	cfg := etcd.Config{DataDir: t.TempDir()}
	s, end := open(t, cfg)
	shop := vip("shop", "203.0.113.1")
	generation := mustUpdate(t, s, Change{
		VIPs: []model.VIP{shop}, Tables: map[model.EndpointKey]desired.Table{key: table}, Nodes: []model.Node{host},
	})
	said := model.BackendHealth{Endpoint: key, Backend: table.Rows[0].Backend, Health: model.HealthUnhealthy, Reason: "refused"}
	health := desired.HostHealth{{Endpoint: key, Backend: said.Backend}: said}
	if err := s.Health.Update(t.Context(), "host1", func(*State) desired.HostHealth { return health }); err != nil {
		t.Fatal(err)
	}
	status := nodestatus.Status{Seen: table.Rows[1].Freed, Generation: generation, Rejected: 3, Reason: "full", Detail: []byte(`{"a":1}`)}
	putStatus(t, s, "host1", status)
	before := s.State()
	end()
	s, _ = open(t, cfg)
	after := s.State()
	if !reflect.DeepEqual(dump(before), dump(after)) {
		t.Errorf("before the restart\n%+v\nafter\n%+v", dump(before), dump(after))
	}
	if !reflect.DeepEqual(after.VIPs.At("shop"), shop) || !after.Tables.At(key).Equal(table) || after.Generation != generation ||
		!maps.Equal(after.Health.At("host1"), health) {
		t.Errorf("what was written is not what was read: %+v", after)
	}
	if after.HashKey == (flowhash.Key{}) {
		t.Error("there is no hash key")
	}
}

func TestGenerationsGrowByChangesOfTheDesiredStateOnly(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	first := mustUpdate(t, s, Change{Nodes: []model.Node{host}})
	putStatus(t, s, "host1", nodestatus.Status{Generation: first})
	if got := mustUpdate(t, s, Change{}); got != first {
		t.Errorf("an empty change, after a status, led from generation %d to %d", first, got)
	}
	created := mustUpdate(t, s, Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	deleted := mustUpdate(t, s, Change{DeleteVIPs: []string{"shop"}})
	if created <= first || deleted <= created || s.State().Generation != deleted {
		t.Errorf("generations are %d, %d, %d, then %+v", first, created, deleted, s.State())
	}
}

// Many writers at once: each of them saw the one before, so none is lost.
func TestUpdatesDoNotOverwriteEachOther(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, etcd.Config{DataDir: dir})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 10 {
				_, err := s.Update(t.Context(), func(state *State) (Change, error) {
					next := vip("counter", "203.0.113.1")
					next.Endpoints[0].Port = 1
					if old, ok := state.VIPs.Get("counter"); ok {
						next.Endpoints[0].Port = old.Endpoints[0].Port + 1
					}
					return Change{VIPs: []model.VIP{next}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got := s.State().VIPs.At("counter").Endpoints[0].Port; got != 80 {
		t.Errorf("counted to %d, want 80", got)
	}
}

func TestStatesDoNotChange(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	mustUpdate(t, s, Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	old := s.State()
	mustUpdate(t, s, Change{VIPs: []model.VIP{vip("blog", "203.0.113.2")}, DeleteVIPs: []string{"shop"}})
	if old.VIPs.Len() != 1 || old.VIPs.At("shop").Name != "shop" {
		t.Errorf("a State that was read changed: %v", old.VIPs)
	}
}

func TestAnErrorOfDecideWritesNothing(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	before, why := s.State().Generation, errors.New("no")
	if _, err := s.Update(t.Context(), func(*State) (Change, error) { return Change{DeleteVIPs: []string{"a"}}, why }); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if s.State().Generation != before {
		t.Error("something was written")
	}
}

func TestOneTransactionHoldsManyVIPsAndHasABound(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	var many Change
	for i := range etcd.MaxOperations - 1 {
		many.VIPs = append(many.VIPs, model.VIP{Name: fmt.Sprintf("vip%d", i), Address: netip.MustParseAddr("203.0.113.1")})
	}
	if _, err := s.Update(t.Context(), change(many)); err != nil {
		t.Log(err) // on a machine that is busy, etcd waits for its answer no longer; it is written nevertheless
	}
	eventually(t, "the store holds all", func() bool { return s.State().VIPs.Len() == etcd.MaxOperations-1 })
	many.VIPs = append(many.VIPs, vip("another", "203.0.113.1"))
	_, err := s.Update(t.Context(), change(many))
	if fields := model.FieldErrors(err); len(fields) != 1 || !strings.Contains(err.Error(), "apply fewer VIPs at a time") {
		t.Errorf("one too many: %v", err)
	}
}

func TestDeletedNodesStaySo(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	mustUpdate(t, s, Change{Nodes: []model.Node{host}})
	mustUpdate(t, s, Change{DeleteNodes: []string{"host1"}})
	other := host
	other.Name, other.Addresses = "host2", nil
	mustUpdate(t, s, Change{Nodes: []model.Node{other}})
	putStatus(t, s, "host1", nodestatus.Status{Generation: 1})
	putStatus(t, s, "host2", nodestatus.Status{Generation: 2}) // when it is there, so would be the first
	said := desired.HostHealth{{Endpoint: key}: {Endpoint: key, Health: model.HealthHealthy}}
	if err := s.Health.Update(t.Context(), "host1", func(*State) desired.HostHealth { return said }); err != nil {
		t.Error(err)
	}
	if state := s.State(); state.Status.Len() != 1 || state.Health.Len() != 0 {
		t.Errorf("a deleted node left %v and %v", state.Status, state.Health)
	}
}

func TestOpenStreamsAreSeen(t *testing.T) {
	cfg := etcd.Config{DataDir: t.TempDir()}
	s, end := open(t, cfg)
	closeFirst, closeSecond := s.Presence.Open("host1"), s.Presence.Open("host1")
	eventually(t, "the stream is seen", func() bool { return s.State().Streams.At("host1") })
	closeFirst()
	s.Presence.Open("mux1")
	eventually(t, "the other stream is seen", func() bool { return s.State().Streams.At("mux1") })
	if !s.State().Streams.At("host1") {
		t.Error("one of two streams of a node was closed, and it counts as gone")
	}
	closeSecond()
	eventually(t, "the stream is gone", func() bool { return !s.State().Streams.At("host1") })
	end()
	s, _ = open(t, cfg)
	if n := s.State().Streams.Len(); n != 0 {
		t.Errorf("%d streams outlived their manager's orderly end", n)
	}
}

// What a watch missed because it was compacted away is read anew.
func TestCompactedWatch(t *testing.T) {
	dir := t.TempDir()
	s, err := openOnly(t, etcd.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.etcd.Close()
	ops, err := Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}}.operations(s.State())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.etcd.Txn(t.Context()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
	response, err := s.etcd.Put(t.Context(), "/elsewhere", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.etcd.Compact(t.Context(), response.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually(t, "the VIP is seen", func() bool { return s.State().VIPs.Len() == 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNewerSchemasAreRefused(t *testing.T) {
	dir := t.TempDir()
	s, end := open(t, etcd.Config{DataDir: dir})
	if _, err := s.etcd.Put(t.Context(), keyspace.Nodes+"host1", `{"schema": 1, "value": {"name": "host1"}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is seen", func() bool { return s.State().Nodes.Len() == 1 })
	end()
	s, err := openOnly(t, etcd.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.etcd.Put(t.Context(), keyspace.Nodes+"host2", `{"schema": 2, "value": {"moniker": "host2"}}`); err != nil {
		t.Fatal(err)
	}
	want := "read /weir/v1/nodes/host2 of the store: its schema is 2, this weir-manager knows 1: run a newer one"
	if err := s.Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("a running manager says %v", err)
	}
	s.etcd.Close()
	if _, err := openOnly(t, etcd.Config{DataDir: dir}); err == nil || err.Error() != want {
		t.Errorf("a starting manager says %v", err)
	}
}

func TestWhatOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	open(t, etcd.Config{DataDir: dir})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  etcd.Config
		want string
	}{
		{etcd.Config{DataDir: dir}, "another weir-manager uses it: stop that one, or name another with --data-dir"},
		{etcd.Config{DataDir: filepath.Join(file, "data")}, "not a directory: name one that weir-manager may write, with --data-dir"},
		{etcd.Config{Endpoints: []string{"http://127.0.0.1:1"}}, "reach etcd at http://127.0.0.1:1: "},
	} {
		_, err := openOnly(t, c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, c.want)
		}
	}
}

// dump is all that a State holds.
func dump(s *State) []any {
	return []any{
		s.Generation, s.HashKey, maps.Collect(s.VIPs.All()), maps.Collect(s.Tables.All()), maps.Collect(s.Nodes.All()),
		maps.Collect(s.Health.All()), maps.Collect(s.Written.All()), maps.Collect(s.Computed.All()), maps.Collect(s.Status.All()),
		maps.Collect(s.Streams.All()), maps.Collect(s.Reported.All()),
	}
}

// putStatus writes a status, and waits until the State shows it if the node is there.
func putStatus(t *testing.T, s *Store, node string, status nodestatus.Status) {
	t.Helper()
	s.Status.Put(node, nodestatus.Write{
		Status: status, Detail: func() ([]byte, error) { return status.Detail, nil }, Failed: func(err error) { t.Error(err) },
		News: status.Generation%2 == 0, // or not: it is written all the same
	})
	eventually(t, "the status is seen", func() bool {
		state := s.State()
		return state.Status.At(node).Generation == status.Generation || !state.Nodes.Has(node)
	})
}
