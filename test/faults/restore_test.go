package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// restoring is the lab of managers that are restored from a backup.
func restoring() string { return *labName + "r" }

// All managers are lost, and a backup is restored that knows nothing of the ranges that were given out since. A host that has such ranges
// is cut off from the managers for longer than ranges rest. Its connections go on, and its ranges are given to nobody else.
func TestRestore(t *testing.T) {
	if *seeds == 0 {
		t.Skip("one of the scenarios that make faults runs")
	}
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			lab := newLab(t, netlab.Plan{Name: restoring(), Clients: 3, Managers: 3, Muxes: 2, Hosts: 2, Workloads: 2, Outside: 1})
			w := &world{
				Lab: lab, random: rand.New(rand.NewPCG(seed, 9)), full: true, history: newHistory(), ports: prepare(t, lab),
			}
			w.cluster = newCluster(t, lab, operator)
			w.restoreUnderWay(t)
		})
	}
}

func (w *world) restoreUnderWay(t *testing.T) {
	traffic := w.startTraffic(t)
	w.hold(t, w.between(2*time.Second, 6*time.Second))
	backup := filepath.Join(w.Dir(), "weir.backup")
	out, err := w.Weir("backup", backup)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.log(t, "a backup is made")
	host := one(w, w.names(netlab.Host))
	late, fresh := w.holdMore(t, host)
	w.cutBoth(t, []string{host}, w.others())
	w.kill(t, w.others()...)
	w.hold(t, w.between(2*time.Second, 6*time.Second))
	w.restoreFrom(t, backup)
	w.hold(t, snatport.QuarantineTime+w.between(5*time.Second, 15*time.Second))
	if w.settled() {
		t.Error("the restore is settled, and a host has not told what it has")
	}
	w.heal(t)
	w.eventually(t, func(context.Context) error {
		if !w.settled() {
			return errors.New("the restore is not settled")
		}
		return nil
	})
	w.log(t, "the restore is settled")
	w.hold(t, w.between(20*time.Second, 30*time.Second)) // all ask for ports again
	w.well(t)
	held, err := late.Stop()
	must(t, err)
	if held.Broken > 0 || held.Opened == 0 {
		t.Errorf("%d of %d connections by ports that the backup does not know broke: %+v", held.Broken, held.Opened, held.Breaks)
	}
	t.Logf("%d connections by ports that the backup does not know, in %d ranges", held.Opened, fresh)
	traffic.unbroken(t)
	w.portsAgree(t)
}

// holdMore has a workload of a host hold so many connections that it needs more ports than it had, and returns how many
// ranges it got.
func (w *world) holdMore(t *testing.T, host string) (held *netload.Streams, ranges int) {
	t.Helper()
	server, err := w.Node(outside)
	must(t, err)
	workloads := w.Of(netlab.Workload)
	n := workloads[slices.IndexFunc(workloads, func(n netlab.Node) bool { return n.Host == host })]
	key := model.SNATKey{VIP: netip.MustParseAddr(addresses[families[0].vip]), Address: n.IPv4}
	before, _ := w.ports.all()
	held, err = netload.StartStreams(t.Context(), w, n.Name, stream.Config{
		Network: stream.TCP, Target: netip.AddrPortFrom(server.IPv4, netlab.EchoPort), Source: n.IPv4, Streams: 160,
		Interval: time.Second, Size: 256, Patience: 15 * time.Second,
	})
	must(t, err)
	must(t, held.WaitOpened(t.Context(), bound))
	w.eventually(t, func(context.Context) error {
		now, _ := w.ports.all()
		ranges = 0
		for _, r := range now[key] {
			if !slices.Contains(before[key], r) {
				ranges++
			}
		}
		if ranges == 0 {
			return fmt.Errorf("%s has no range that it had not before", key)
		}
		return nil
	})
	w.log(t, "%s has %d ranges more", key, ranges)
	return held, ranges
}

// restoreFrom founds the cluster anew by its first manager, from a backup. The others join it with empty directories.
func (w *world) restoreFrom(t *testing.T, backup string) {
	t.Helper()
	managers := w.others()
	for _, name := range managers {
		must(t, os.Rename(w.DataDir(name), w.DataDir(name)+".lost"))
	}
	first := managers[0]
	out, err := w.Run(first, w.Find("weir"), "restore", backup, "--data-dir", w.DataDir(first), "--name", first)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	access, err := os.ReadFile(filepath.Join(w.DataDir(first)+".lost", "admin.yaml")) // an administrator has one elsewhere
	must(t, err)
	must(t, os.WriteFile(w.AdminFile(), access, 0o600))
	w.restart(t, first)
	for _, name := range managers[1:] {
		var flags []string
		must(t, netlab.Poll(t.Context(), bound, func() (err error) { // the first one leads before it makes tokens
			flags, err = w.Token(name)
			return err
		}))
		_, err := w.Restart(name, "weir-manager", flags...)
		must(t, err)
		w.log(t, "%s joins", name)
		w.eventually(t, func(context.Context) error {
			out, err := w.Weir("get", "managers")
			if err == nil && !strings.Contains(out, name) {
				err = fmt.Errorf("%s is no manager: %s", name, out)
			}
			return err
		})
	}
}

// settled says whether a manager has ended what a restore begins.
func (w *world) settled() bool {
	return slices.ContainsFunc(w.others(), func(name string) bool {
		return strings.Contains(w.Log(name, "weir-manager"), "the restore is settled")
	})
}
