package manager

import (
	"path/filepath"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// Managers on an etcd of the operator's own, with TLS: one joins, both answer, one leaves, and what was backed up is
// restored into an embedded store.
func TestManagersOnAnExternalEtcd(t *testing.T) {
	t.Parallel()
	by, theirs, ours := etcdtest.NewAuthority(t, "operator"), etcdtest.In(filepath.Join(t.TempDir(), "etcd")), etcdtest.In(filepath.Join(t.TempDir(), "manager"))
	by.Write(t, theirs)
	by.Write(t, ours)
	external := []string{etcdtest.StartTLS(t, theirs).URL()}
	m1, admin, url := secure(t, Config{Name: "m1", EtcdEndpoints: external, EtcdTLS: etcd.TLS(ours)})

	embedded := joinConfig(t, admin, url, "m9", "manager")
	_, err := New(t.Context(), embedded)
	refusedWith(t, "an embedded etcd beside it", err, "start this one with --etcd-endpoints instead of --join")

	cfg := joinConfig(t, admin, url, "m2", "manager")
	cfg.PeerListen, cfg.EtcdEndpoints, cfg.EtcdTLS = "", external, etcd.TLS(ours)
	m2, stop := startUntil(t, cfg)
	access, err := rpc.ReadConfig(pki.AdminFile(m1.cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	access.Managers = "https://" + m2.Address().String()
	other := connected(t, access)
	if _, err := admin.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: loneVIP("one", 1)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other manager has it", func() bool {
		_, err := other.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "one"})
		return err == nil
	})
	managers := listManagers(t, admin)
	if len(managers) != 2 || leaderOf(managers) != "m1" || managers["m2"].GetProblem() != "" {
		t.Errorf("managers are %v", managers)
	}

	_, err = admin.DeleteManager(t.Context(), &weirv1.DeleteManagerRequest{Name: "m2"})
	refusedWith(t, "one that runs", err, "manager m2 runs, and shares an external etcd: stop it first")
	_, err = admin.DeleteManager(t.Context(), &weirv1.DeleteManagerRequest{Name: "m1"})
	refusedWith(t, "the one that is asked", err, "manager m1 runs")
	stop()
	if _, err := admin.DeleteManager(t.Context(), &weirv1.DeleteManagerRequest{Name: "m2"}); err != nil {
		t.Error(err)
	}
	if managers := listManagers(t, admin); len(managers) != 1 {
		t.Errorf("managers are %v", managers)
	}

	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := cluster.Restore(t.Context(), backedUp(t, admin), dir, "m3", false, logger(t)); err != nil {
		t.Fatal(err)
	}
	restored, _ := startUntil(t, Config{Name: "m3", Listen: "127.0.0.1:0", DataDir: dir, Version: "test", Log: logger(t)})
	if restored.store.State().VIPs.Len() != 1 {
		t.Error("the VIP is not in what was restored")
	}
}
