package manager

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/trust"
)

// backedUp is the file of a backup.
func backedUp(t *testing.T, client *rpc.Client) string {
	t.Helper()
	var backup bytes.Buffer
	if err := client.EachBackup(t.Context(), func(part *weirv1.BackupResponse) error { backup.Write(part.GetChunk()); return nil }); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, backup.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The CA is replaced by a backup and a restore: what was configured stays, nothing that the old one signed is good,
// and a node joins anew when it is told of the new one, though it has a certificate.
func TestTheCAIsReplaced(t *testing.T) {
	t.Parallel()
	first := Config{Name: "m1", Listen: "127.0.0.1:0", DataDir: t.TempDir(), Version: "test", Log: logger(t)}
	m, stop := startUntil(t, first)
	access, err := rpc.ReadConfig(pki.AdminFile(first.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	admin := connected(t, access)
	mux := member(t, admin, access.Managers, &weirv1.CreateTokenRequest{Role: "mux"}, trust.Mux, "mux1")
	if err := mux.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: &weirv1.VIP{
		Name: "kept", Address: "203.0.113.7", Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}},
	}}); err != nil {
		t.Fatal(err)
	}
	old, file := m.identity.Authority().Certificate, backedUp(t, admin)
	stop()
	second := first
	second.DataDir = filepath.Join(t.TempDir(), "new")
	if _, err := cluster.Restore(t.Context(), file, second.DataDir, "m1", true, logger(t)); err != nil {
		t.Fatal(err)
	}

	m, _ = startUntil(t, second)
	if m.identity.Authority().Certificate.Equal(old) {
		t.Fatal("the CA is the same")
	}
	url := "https://" + m.Address().String()
	access.Managers = url
	_, err = connected(t, access).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	refusedWith(t, "who knows the old CA", err, "another CA")
	if access, err = rpc.ReadConfig(pki.AdminFile(second.DataDir)); err != nil {
		t.Fatal(err)
	}
	admin = connected(t, access)
	if _, err := admin.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "kept"}); err != nil {
		t.Error(err)
	}
	again := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "mux"}, trust.Mux, "mux1")
	again.DataDir = mux.DataDir
	if err := again.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := again.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if who, err := client.WhoAmI(t.Context(), &weirv1.WhoAmIRequest{}); err != nil || who.GetIdentity() != "mux/mux1" {
		t.Errorf("the mux is %v, %v", who, err)
	}
}

// On an external etcd the CA is replaced in place, while no manager runs.
func TestTheCAOfAnExternalEtcdIsReplaced(t *testing.T) {
	t.Parallel()
	external := etcd.Config{Endpoints: []string{etcdtest.Start(t)}, Log: logger(t)}
	first := Config{Name: "m1", Listen: "127.0.0.1:0", DataDir: t.TempDir(), Version: "test", Log: logger(t), EtcdEndpoints: external.Endpoints}
	refusedWith(t, "a store without a CA", cluster.ForgetCA(t.Context(), external), "the store has none")
	m, stop := startUntil(t, first)
	access, err := rpc.ReadConfig(pki.AdminFile(first.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	admin := connected(t, access)
	if _, err := admin.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: loneVIP("kept", 1)}); err != nil {
		t.Fatal(err)
	}
	old := joinConfig(t, admin, "https://"+m.Address().String(), "m2", "manager")
	refusedWith(t, "while one runs", cluster.ForgetCA(t.Context(), external), "manager m1 runs: stop all managers")
	was := m.identity.Authority().Certificate
	stop()
	if err := cluster.ForgetCA(t.Context(), external); err != nil {
		t.Fatal(err)
	}

	second := first
	second.DataDir = t.TempDir()
	m, _ = startUntil(t, second)
	if m.identity.Authority().Certificate.Equal(was) {
		t.Fatal("the CA is the same")
	}
	if access, err = rpc.ReadConfig(pki.AdminFile(second.DataDir)); err != nil {
		t.Fatal(err)
	}
	admin = connected(t, access)
	if _, err := admin.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "kept"}); err != nil {
		t.Error(err)
	}
	old.PeerListen, old.EtcdEndpoints, old.Join = "", external.Endpoints, "https://"+m.Address().String()
	_, err = New(t.Context(), old)
	if err == nil {
		t.Error("a token from before is good")
	}
	fresh := joinConfig(t, admin, "https://"+m.Address().String(), "m2", "manager")
	fresh.PeerListen, fresh.EtcdEndpoints = "", external.Endpoints
	startUntil(t, fresh)
	eventually(t, "both managers are known", func() bool { return len(listManagers(t, admin)) == 2 })
}

// Others join a manager that was restored from a backup into an empty data directory, while it runs: it has a certificate of
// the cluster's CA, and asks its peers for one.
func TestOthersJoinARestoredManager(t *testing.T) {
	t.Parallel()
	first := Config{Name: "m1", Listen: "127.0.0.1:0", PeerListen: freeAddress(t), DataDir: t.TempDir(), Version: "test", Log: logger(t)}
	m, stop := startUntil(t, first)
	access, err := rpc.ReadConfig(pki.AdminFile(first.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	access.Managers = "https://" + m.Address().String()
	backup := backedUp(t, connected(t, access))
	stop()

	second := first
	second.DataDir, second.PeerListen = filepath.Join(t.TempDir(), "restored"), freeAddress(t)
	if _, err := cluster.Restore(t.Context(), backup, second.DataDir, second.Name, false, logger(t)); err != nil {
		t.Fatal(err)
	}
	m, _ = startUntil(t, second)
	url := "https://" + m.Address().String()
	access.Managers = url
	admin := connected(t, access)
	if _, _ = startUntil(t, joinConfig(t, admin, url, "m2", "manager")); len(listManagers(t, admin)) != 2 {
		t.Errorf("the managers are %v", listManagers(t, admin))
	}
}
