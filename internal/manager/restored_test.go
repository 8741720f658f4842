package manager

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// restoreOf makes a data directory of a backup.
func restoreOf(t *testing.T, backup string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := cluster.Restore(t.Context(), backup, dir, cluster.DefaultName, false, logger(t)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// backUpTo writes a backup of a manager's store to a file.
func backUpTo(t *testing.T, m *Manager) string {
	t.Helper()
	copied, err := m.cluster.Backup(t.Context())
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

// has are the ports that a host has.
func (h *fakeHost) ports() map[model.SNATKey]model.HostSNAT {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.snat)
}

// What a workload was given after the backup is its own after the restore, what it gave back is not any more, and
// nobody else gets what a host may still have.
func TestRestoreGivesNoPortsTwice(t *testing.T) {
	t.Parallel()
	var first *Manager
	url, stop := start(t, Config{}, func(m *Manager) { first, m.allocator.Quarantine = m, 240*time.Millisecond })
	hosts := [2]*fakeHost{startHost(t, url, "host1", "10.2.1.2"), startHost(t, url, "host2", "10.2.2.2")}
	startMux(t, url, "mux1", "10.1.1.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	small := crawler()
	small.Snat.Reserved, small.Snat.MaxPorts = []string{"1-65343"}, 192 // 24 ranges in all
	apply(t, url, small)
	eventually(t, "the hosts have what is preallocated", func() bool {
		return len(hosts[0].holds(firstSNATClient).Ranges) == 1 && len(hosts[1].holds(secondSNATClient).Ranges) == 1
	})
	if _, err := allocate(t, client, "host1", firstSNATClient, 64); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host has them", func() bool { return len(hosts[0].holds(firstSNATClient).Ranges) > 1 })
	backup := backUpTo(t, first)
	// After the backup host1 gives back what it got, and host2 is given as much as there is.
	back := hosts[0].holds(firstSNATClient).Ranges[1:]
	release := &weirv1.ReleasePortsRequest{Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ranges: wire.RangesToProto(back)}
	if _, err := client.ReleasePorts(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	eventually(t, "host2 has all", func() bool {
		allocate(t, client, "host2", secondSNATClient, 192)
		return len(hosts[1].holds(secondSNATClient).Ranges) > 20
	})
	eventually(t, "host1 has one left", func() bool { return len(hosts[0].holds(firstSNATClient).Ranges) == 1 })
	has := [2]map[model.SNATKey]model.HostSNAT{hosts[0].ports(), hosts[1].ports()}
	stop()

	var second *Manager
	url, _ = start(t, Config{DataDir: restoreOf(t, backup)}, func(m *Manager) { second, m.allocator.Quarantine = m, 480*time.Millisecond })
	client = dial(t, url)
	eventually(t, "it leads", second.replica.Leads)
	hosts[0] = startHostWith(t, url, "host1", has[0], "10.2.1.2")
	refusedWhilePending(t, client)
	mux := startMux(t, url, "mux1", "10.1.1.2")
	eventually(t, "the mux is to keep what it has", mux.keepsSNAT)
	hosts[1] = startHostWith(t, url, "host2", has[1], "10.2.2.2")
	eventually(t, "it settles", func() bool { return second.store.State().Restored.Settled })
	eventually(t, "the mux is told what is", func() bool {
		return !mux.keepsSNAT() && mux.had() > 1 && len(mux.owners(firstSNATClient.VIP)) >= len(has[1][secondSNATClient].Ranges)
	})
	eventually(t, "host1 is given what is left", func() bool {
		allocate(t, client, "host1", firstSNATClient, 192)
		return len(hosts[0].holds(firstSNATClient).Ranges)+len(hosts[1].holds(secondSNATClient).Ranges) == 24
	})
	compareRestored(t, hosts, has)
}

// refusedWhilePending wants that nothing is given, nor taken back: the answer to a release would have all ranges of the
// workload, as the backup has them.
func refusedWhilePending(t *testing.T, client *rpc.Client) {
	t.Helper()
	if ranges, err := allocate(t, client, "host1", firstSNATClient, 8); len(ranges) > 0 {
		t.Fatalf("before the hosts told what they have %v was given (%v)", ranges, err)
	} else if reason, _, _ := rpc.PortsRefused(err); reason != rpc.PortsRestored {
		t.Errorf("refused by %v", err)
	}
	answer, err := client.ReleasePorts(t.Context(), &weirv1.ReleasePortsRequest{
		Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ranges: []uint32{8190},
	})
	if reason, _, _ := rpc.PortsRefused(err); reason != rpc.PortsRestored {
		t.Errorf("a release was answered by %v, %v", answer, err)
	}
}

func (m *fakeMux) keepsSNAT() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keeps
}

// had is how many snapshots it was told.
func (m *fakeMux) had() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshots
}

// compareRestored holds what hosts have to what they had before the restore.
func compareRestored(t *testing.T, hosts [2]*fakeHost, has [2]map[model.SNATKey]model.HostSNAT) {
	t.Helper()
	for _, r := range has[1][secondSNATClient].Ranges {
		if !slices.Contains(hosts[1].holds(secondSNATClient).Ranges, r) {
			t.Errorf("range %d was taken from host2, which was given it after the backup", r)
		}
		if slices.Contains(hosts[0].holds(firstSNATClient).Ranges, r) {
			t.Errorf("range %d is of host2, and was given to host1", r)
		}
	}
	if held := hosts[0].holds(firstSNATClient).Ranges; !slices.Contains(held, has[0][firstSNATClient].Ranges[0]) {
		t.Errorf("host1 has %v, not what it kept", held)
	}
}

// A host that is away keeps all others waiting for a while, and not for ever. Pools give no address meanwhile.
func TestRestoreWaitsForNodesThatAreAway(t *testing.T) {
	t.Parallel()
	var first *Manager
	url, stop := start(t, Config{}, func(m *Manager) { first = m })
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 2 })
	apply(t, url, crawler())
	pool := &weirv1.AddressPool{Name: "public", Prefixes: []string{"198.51.100.0/30"}}
	if _, err := client.CreateAddressPool(t.Context(), &weirv1.CreateAddressPoolRequest{Pool: pool}); err != nil {
		t.Fatal(err)
	}
	backup := backUpTo(t, first)
	stop()
	var second *Manager
	url, _ = start(t, Config{DataDir: restoreOf(t, backup)}, func(m *Manager) { second, m.allocator.Quarantine = m, 240*time.Millisecond })
	client = dial(t, url)
	eventually(t, "it leads", second.replica.Leads)
	pooled := shop()
	pooled.Address, pooled.Pool = "", "public"
	write := func() error {
		_, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{pooled}})
		return err
	}
	if err := write(); err == nil {
		t.Error("an address was given while it is not known which are in use")
	}
	if told := fmt.Sprint(second.allocator.UnreportedNodes(second.store.State())); told != "[host1 host2]" {
		t.Errorf("it waits for %s", told)
	}
	eventually(t, "it settles", func() bool { return second.store.State().Restored.Settled })
	if err := write(); err != nil {
		t.Error(err)
	}
	if _, err := allocate(t, client, "host1", firstSNATClient, 8); err != nil {
		t.Error(err)
	}
}
