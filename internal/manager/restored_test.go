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

// restoredHosts are two hosts, whose workloads ask for ports themselves, or which have port blocks.
type restoredHosts struct {
	blocks bool
	asks   [2]model.SNATKey // who asks for ports, by host
	hosts  [2]*fakeHost
}

// eachKindOfHosts runs a test with hosts without port blocks, and with ones.
func eachKindOfHosts(t *testing.T, test func(*testing.T, *restoredHosts)) {
	t.Parallel()
	for what, h := range map[string]*restoredHosts{
		"workloads": {asks: [2]model.SNATKey{firstSNATClient, secondSNATClient}},
		"blocks":    {asks: [2]model.SNATKey{model.BlockKey(firstSNATClient.VIP, "host1"), model.BlockKey(firstSNATClient.VIP, "host2")}, blocks: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

// start starts one of the hosts, with the ports that it has already.
func (h *restoredHosts) start(t *testing.T, url string, i int, has map[model.SNATKey]model.HostSNAT) {
	h.hosts[i] = startHostAs(t, url, &weirv1.SyncHostRequest{
		Name: fmt.Sprint("host", i+1), Addresses: []string{fmt.Sprintf("10.2.%d.2", i+1)}, Version: "test", PortBlocks: h.blocks,
	}, has)
}

// holds are the ranges of one who asks.
func (h *restoredHosts) holds(i int) []model.Range { return h.hosts[i].holds(h.asks[i]).Ranges }

// allocate has one ask for ports.
func (h *restoredHosts) allocate(t *testing.T, client *rpc.Client, i int, ports uint32) ([]model.Range, error) {
	t.Helper()
	return allocate(t, client, fmt.Sprint("host", i+1), h.asks[i], ports)
}

// all counts the ranges that both hosts have, preallocated ones included.
func (h *restoredHosts) all() (n int) {
	for _, host := range h.hosts {
		for _, s := range host.ports() {
			n += len(s.Ranges)
		}
	}
	return n
}

// startBefore has both hosts have ports, and returns a backup.
func (h *restoredHosts) startBefore(t *testing.T, url string, client *rpc.Client, first *Manager) (backup string) {
	t.Helper()
	for i := range h.hosts {
		h.start(t, url, i, map[model.SNATKey]model.HostSNAT{})
	}
	startMux(t, url, "mux1", "10.1.1.2")
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	small := crawler()
	small.Snat.Reserved, small.Snat.MaxPorts = []string{"1-65343"}, 192 // 24 ranges in all
	apply(t, url, small)
	eventually(t, "the hosts have what is preallocated", func() bool {
		return len(h.hosts[0].holds(firstSNATClient).Ranges) == 1 && len(h.hosts[1].holds(secondSNATClient).Ranges) == 1
	})
	eventually(t, "host1 has more", func() bool {
		h.allocate(t, client, 0, 64)
		return len(h.holds(0)) > 1
	})
	return backUpTo(t, first)
}

// What a workload or a host was given after the backup is its own after the restore, what it gave back is not any more, and
// nobody else gets what a host may still have.
func TestRestoreGivesNoPortsTwice(t *testing.T) {
	eachKindOfHosts(t, func(t *testing.T, h *restoredHosts) {
		var first *Manager
		url, stop := start(t, Config{}, func(m *Manager) { first, m.allocator.Quarantine = m, time.Second })
		client := dial(t, url)
		backup := h.startBefore(t, url, client, first)
		// After the backup host1 gives back what it got, and host2 is given as much as there is.
		eventually(t, "host1 has one left, and host2 all others", func() bool {
			if more := h.holds(0)[1:]; len(more) > 0 {
				_, err := client.ReleasePorts(t.Context(), &weirv1.ReleasePortsRequest{
					Name: "host1", Vip: h.asks[0].VIP.String(), Address: h.asks[0].Address.String(), Ranges: wire.RangesToProto(more),
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			h.allocate(t, client, 1, 192)
			return len(h.holds(0)) == 1 && h.all() == 24
		})
		has := [2]map[model.SNATKey]model.HostSNAT{h.hosts[0].ports(), h.hosts[1].ports()}
		stop()

		var second *Manager
		url, _ = start(t, Config{DataDir: restoreOf(t, backup)}, func(m *Manager) { second, m.allocator.Quarantine = m, 2*time.Second })
		client = dial(t, url)
		eventually(t, "it leads", second.replica.Leads)
		h.start(t, url, 0, has[0])
		h.refusedWhilePending(t, client)
		mux := startMux(t, url, "mux1", "10.1.1.2")
		eventually(t, "the mux is to keep what it has", mux.keepsSNAT)
		h.start(t, url, 1, has[1])
		eventually(t, "it settles", func() bool { return second.store.State().Restored.Settled })
		eventually(t, "the mux is told what is", func() bool {
			return !mux.keepsSNAT() && mux.had() > 1 && len(mux.owners(firstSNATClient.VIP)) >= len(has[1][h.asks[1]].Ranges)
		})
		eventually(t, "host1 is given what is left", func() bool {
			h.allocate(t, client, 0, 192)
			return h.all() == 24
		})
		h.compare(t, has)
	})
}

// refusedWhilePending wants that nothing is given, nor taken back: the answer to a release would have all ranges of the
// workload, as the backup has them.
func (h *restoredHosts) refusedWhilePending(t *testing.T, client *rpc.Client) {
	t.Helper()
	if ranges, err := h.allocate(t, client, 0, 8); len(ranges) > 0 {
		t.Fatalf("before the hosts told what they have %v was given (%v)", ranges, err)
	} else if reason, _, _ := rpc.PortsRefused(err); reason != rpc.PortsRestored {
		t.Errorf("refused by %v", err)
	}
	answer, err := client.ReleasePorts(t.Context(), &weirv1.ReleasePortsRequest{
		Name: "host1", Vip: h.asks[0].VIP.String(), Address: h.asks[0].Address.String(), Ranges: []uint32{8190},
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

// compare holds what hosts have to what they had before the restore.
func (h *restoredHosts) compare(t *testing.T, has [2]map[model.SNATKey]model.HostSNAT) {
	t.Helper()
	now := [2]map[model.SNATKey]model.HostSNAT{h.hosts[0].ports(), h.hosts[1].ports()}
	for i := range h.hosts {
		for key, had := range has[i] {
			for _, r := range had.Ranges {
				if !slices.Contains(now[i][key].Ranges, r) {
					t.Errorf("range %d was taken from %s, which the host said that it had", r, key)
				}
				for other, s := range now[1-i] {
					if slices.Contains(s.Ranges, r) {
						t.Errorf("range %d is of %s, and was given to %s", r, key, other)
					}
				}
			}
		}
	}
}

// A host that is away keeps all others waiting for a while, and not for ever. Pools give no address meanwhile.
func TestRestoreWaitsForNodesThatAreAway(t *testing.T) {
	eachKindOfHosts(t, restoreWaits)
}

func restoreWaits(t *testing.T, h *restoredHosts) {
	var first *Manager
	url, stop := start(t, Config{}, func(m *Manager) { first = m })
	for i := range h.hosts {
		h.start(t, url, i, map[model.SNATKey]model.HostSNAT{})
	}
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
	url, _ = start(t, Config{DataDir: restoreOf(t, backup)}, func(m *Manager) { second, m.allocator.Quarantine = m, time.Second })
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
	if _, err := h.allocate(t, client, 0, 8); err != nil {
		t.Error(err)
	}
}
