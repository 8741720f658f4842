package cluster

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/truststore"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/trust"
)

// backUp writes a backup of s into a file.
func backUp(t *testing.T, s *Cluster) string {
	t.Helper()
	copied, err := s.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	text, err := io.ReadAll(copied)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A restored store holds what the backup held; its epochs and generations are beyond all that nodes may
// have seen, also when the same backup is restored again.
func TestBackupAndRestore(t *testing.T) {
	s, end := open(t, etcd.Config{Name: "m1", DataDir: t.TempDir()})
	mustUpdate(t, s, store.Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}, Nodes: []model.Node{host}})
	path := backUp(t, s)
	seen := mustUpdate(t, s, store.Change{DeleteVIPs: []string{"shop"}})
	epoch, key := s.Store.State().Epoch, s.Store.State().HashKey
	end()
	for range 2 {
		dir := t.TempDir()
		generation, err := Restore(t.Context(), path, dir, "m9", false, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		s, end := open(t, etcd.Config{Name: "m9", DataDir: dir})
		eventually(t, "it leads", func() bool { mine, _ := s.Store.Election.Epoch(); return mine != 0 && s.Store.State().Leader == "m9" })
		state := s.Store.State()
		if !state.VIPs.Has("shop") || !state.Nodes.Has("host1") || state.HashKey != key {
			t.Errorf("the restored store holds %v, %v", state.VIPs, state.Nodes)
		}
		if generation <= seen || state.Generation != generation || state.Epoch <= epoch {
			t.Errorf("generation %d, epoch %d are restored to generation %d (%d), epoch %d", seen, epoch, state.Generation, generation, state.Epoch)
		}
		if managers := s.Managers(); len(managers) != 1 || managers[0].Name != "m9" {
			t.Errorf("the managers are %v", managers)
		}
		seen, epoch = mustUpdate(t, s, store.Change{DeleteVIPs: []string{"shop"}}), state.Epoch
		end()
	}
}

func TestWhatRestoreRefuses(t *testing.T) {
	s, end := open(t, etcd.Config{DataDir: t.TempDir()})
	path := backUp(t, s)
	end()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Restore(t.Context(), damaged, dir, "m1", false, testLog(t)); err == nil {
		t.Error("a damaged backup was restored")
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
		t.Error("a damaged backup left something behind")
	}
	if _, err := Restore(t.Context(), path, dir, "m1", false, testLog(t)); err != nil {
		t.Errorf("the backup itself: %v", err)
	}
	if _, err := Restore(t.Context(), path, dir, "m1", false, testLog(t)); err == nil {
		t.Error("a store was overwritten")
	}
}

// What was written on managers' leases is gone with them, and the store is marked as restored until all is known.
func TestWhatARestoreForgets(t *testing.T) {
	s, end := open(t, etcd.Config{Name: "m1", DataDir: t.TempDir()})
	mustUpdate(t, s, store.Change{Nodes: []model.Node{host}})
	for key, value := range map[string]any{keyspace.Excluded + "mux1": "silent", keyspace.Ready + "m1": model.Generation(7), keyspace.Streams + "host1": struct{}{}} {
		text, err := codec.Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.etcd.Put(t.Context(), key, text); err != nil {
			t.Fatal(err)
		}
	}
	path := backUp(t, s)
	end()
	dir := t.TempDir()
	generation, err := Restore(t.Context(), path, dir, "m1", false, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	s, end = open(t, etcd.Config{Name: "m1", DataDir: dir})
	eventually(t, "it leads", func() bool { mine, _ := s.Store.Election.Epoch(); return mine != 0 })
	state := s.Store.State()
	if state.Excluded.Len()+state.Ready.Len()+state.Streams.Len() > 0 {
		t.Errorf("fenced %v, ready %v, streams %v are left", state.Excluded, state.Ready, state.Streams)
	}
	if state.Restored != (desired.Restored{At: generation}) || !state.Restored.Pending() {
		t.Errorf("it is restored as of %+v, want generation %d", state.Restored, generation)
	}
	mustUpdate(t, s, store.Change{Restored: &desired.Restored{At: 1, Settled: true}})
	end()
	s, _ = open(t, etcd.Config{Name: "m1", DataDir: dir})
	eventually(t, "it leads again", func() bool { mine, _ := s.Store.Election.Epoch(); return mine != 0 })
	if r := s.Store.State().Restored; !r.Settled || r.At == 0 || r.Pending() {
		t.Errorf("it is settled as %+v", r)
	}
	mustUpdate(t, s, store.Change{Restored: &desired.Restored{}})
	if r := s.Store.State().Restored; r.At != 0 {
		t.Errorf("it is over, and %+v is left", r)
	}
}

// A store that etcd's own tools restored, with a bump of the revision as the runbook says, is known for one.
func TestAStoreThatOthersRestored(t *testing.T) {
	s, end := open(t, etcd.Config{Name: "m1", DataDir: t.TempDir()})
	generation := mustUpdate(t, s, store.Change{Nodes: []model.Node{host}})
	path := backUp(t, s)
	end()
	dir := t.TempDir()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, Name: "m1", OutputDataDir: filepath.Join(dir, "etcd"), PeerURLs: []string{etcd.Lonely},
		InitialCluster: "m1=" + etcd.Lonely, InitialClusterToken: "etcdutl", RevisionBump: leap, MarkCompacted: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start is none
		s, end = open(t, etcd.Config{Name: "m1", DataDir: dir})
		eventually(t, "it knows", func() bool { return s.Store.State().Restored.Pending() })
		first := s.Store.State().Restored.At
		if first < generation+leap {
			t.Errorf("it is restored as of generation %d, which nodes may have seen", first)
		}
		generation = first - leap
		end()
	}
}

// A member of an external etcd that is cut off from the others lags, and is not the one that is copied.
func TestBackupOfAnExternalStoreHoldsWhatWasAcknowledged(t *testing.T) {
	members := etcdtest.StartCluster(t, 3)
	lagging, current := members[0], members[1]
	both, _ := open(t, etcd.Config{Name: "m1", Endpoints: []string{lagging.URL(), current.URL()}})
	old := backUp(t, both)
	lagging.Cut(members[1:]...)
	s, _ := open(t, etcd.Config{Name: "m2", Endpoints: []string{current.URL()}})
	if err := s.Store.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) {
		return truststore.Change{Tokens: []trust.JoinToken{{ID: "t1"}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	now, _ := s.Store.Trust.Watch()
	if err := CheckBackup(backUp(t, both), now.Version()); err != nil {
		t.Error(err)
	}
	err := CheckBackup(old, now.Version())
	if err == nil || !strings.Contains(err.Error(), "etcd's member lags, try again") {
		t.Errorf("a backup from before: %v", err)
	}
}

// What a backup must hold is asked of it: of the newest change of what users have configured, and of who may do what.
func TestBackupsTellWhatTheyHold(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	generation := mustUpdate(t, s, store.Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	for _, want := range []int64{int64(generation), 0} {
		if want == 0 {
			putTenant(t, s)
			now, _ := s.Store.Trust.Watch()
			want = now.Version()
		}
		copied, err := s.Backup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if copied.Close(); copied.Revision != want {
			t.Errorf("the backup must hold revision %d, want %d", copied.Revision, want)
		}
		if err := CheckBackup(backUp(t, s), want); err != nil {
			t.Error(err)
		}
	}
}
