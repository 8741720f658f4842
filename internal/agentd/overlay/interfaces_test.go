package overlay_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/wire"
)

func TestInterfacesAreKeptInAFile(t *testing.T) {
	dir := t.TempDir()
	all, err := overlay.ReadInterfaces(dir)
	if err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	web := overlay.WorkloadName{Network: "acme", Workload: "web"}
	for name, err := range map[string]error{
		"an interface":          all.Set(web, "vnet3"),
		"the same once more":    all.Set(web, "vnet4"),
		"written":               overlay.ChangeInterfaces(dir, func(i overlay.Interfaces) error { maps.Copy(i, all); return nil }),
		"another, a name of it": all.Set(overlay.WorkloadName{Network: "bolt", Workload: "web"}, "vnet5"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"another's interface": all.Set(overlay.WorkloadName{Network: "bolt", Workload: "db"}, "vnet4"),
		"no interface":        all.Set(web, "../vnet4"),
		"no name":             all.Set(overlay.WorkloadName{Network: "a/b", Workload: "web"}, "vnet9"),
		"none to remove":      all.Remove("vnet3"),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if again, err := overlay.ReadInterfaces(dir); err != nil || again[web] != "vnet4" {
		t.Errorf("read %v, %v", again, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ports.yaml"), []byte("acme/web: [1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := overlay.ReadInterfaces(dir); err == nil || !strings.Contains(err.Error(), "ports.yaml") {
		t.Errorf("a file of another form: %v", err)
	}
}

// An interface that is said on the host takes the place of the one that the network names, while the daemon runs, and goes
// again.
func TestPortsFollowWhatIsSaidOnTheHost(t *testing.T) {
	m := newMachine(t, "said")
	m.must(m.Close())
	m.config.DataDir = t.TempDir()
	m.start()
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.Networks[0].Ports[0].Interface = "vnet7" }), true))
	ports := func() int { return len(m.view().Ports) }
	if n := ports(); n != 1 {
		t.Fatalf("%d ports while one has another name", n)
	}
	go func() { _ = m.ns.Do(func() error { return m.Controller.Run(t.Context()) }) }()
	wait := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ports() != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d ports, not %d", ports(), want)
			}
		}
	}
	change := func(change func(overlay.Interfaces) error) {
		m.must(overlay.ChangeInterfaces(m.config.DataDir, change))
	}
	change(func(all overlay.Interfaces) error {
		return all.Set(overlay.WorkloadName{Network: "acme", Workload: "web"}, "acme")
	})
	wait(2)
	change(func(all overlay.Interfaces) error { return all.Remove("acme") })
	wait(1)
	status, err := overlay.ReadStatus(m.config.PinPath)
	m.must(err)
	if len(status.Ports) != 1 || len(status.Attachments) != 2 || status.Ports[0].MAC != "02:00:00:00:00:01" {
		t.Errorf("status %+v", status)
	}
}

// Workloads that start at the same time all have their interfaces.
func TestInterfacesAreAddedAtOnce(t *testing.T) {
	const workloads = 50
	dir, group := t.TempDir(), errgroup.Group{}
	for i := range workloads {
		group.Go(func() error {
			return overlay.ChangeInterfaces(dir, func(all overlay.Interfaces) error {
				return all.Set(overlay.WorkloadName{Network: "acme", Workload: fmt.Sprint("web-", i)}, fmt.Sprint("vnet", i))
			})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if all, err := overlay.ReadInterfaces(dir); err != nil || len(all) != workloads {
		t.Errorf("%d are there: %v", len(all), err)
	}
}
