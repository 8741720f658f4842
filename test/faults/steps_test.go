package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// leader is the name of the manager that leads, as most say.
func (w *world) leader(t *testing.T) (name string) {
	t.Helper()
	w.eventually(t, func(ctx context.Context) error {
		told := map[string]int{}
		for _, r := range w.cluster.replicas {
			response, err := r.GetReplica(ctx, &weirv1.GetReplicaRequest{})
			if err != nil {
				continue
			}
			leader := response.GetReplica().GetLeader()
			if told[leader]++; leader != "" && told[leader] > len(w.cluster.replicas)/2 {
				name = leader
				return nil
			}
		}
		return fmt.Errorf("most managers do not agree on who leads: %v", told)
	})
	return name
}

// others are the managers but for some.
func (w *world) others(but ...string) []string {
	var names []string
	for _, r := range w.cluster.replicas {
		if !slices.Contains(but, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

// names are those of the nodes of a kind.
func (w *world) names(kind netlab.Kind) []string {
	var names []string
	for _, n := range w.Of(kind) {
		names = append(names, n.Name)
	}
	return names
}

// program is what a manager's node, or one of an external etcd, runs.
func program(node string) string {
	if slices.Contains(members, node) {
		return memberProgram
	}
	return "weir-manager"
}

func (w *world) kill(t *testing.T, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		p, err := w.Process(name, program(name))
		must(t, err)
		must(t, p.Stop(unix.SIGKILL, bound))
		w.log(t, "%s is killed", name)
	}
}

func (w *world) restart(t *testing.T, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		_, err := w.Restart(name, program(name))
		must(t, err)
		w.log(t, "%s is started again", name)
	}
}

// freeze stops programs as a hanging disk or hypervisor does, until thaw.
func (w *world) freeze(t *testing.T, nodes ...string) {
	t.Helper()
	w.signal(t, unix.SIGSTOP, nodes...)
	w.log(t, "%v is frozen", nodes)
}

func (w *world) thaw(t *testing.T, nodes ...string) {
	t.Helper()
	w.signal(t, unix.SIGCONT, nodes...)
	w.log(t, "%v wakes up", nodes)
}

func (w *world) signal(t *testing.T, signal unix.Signal, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		p, err := w.Process(name, program(name))
		must(t, err)
		must(t, p.Signal(signal))
	}
}

// cut has packets between some nodes and others lost: both ways, or, by the seed, one way.
func (w *world) cut(t *testing.T, from, to []string) {
	t.Helper()
	way := one(w, []string{"both ways", "both ways", "to", "from"})
	for _, a := range from {
		for _, b := range to {
			if way != "from" {
				must(t, w.Block(a, b))
			}
			if way != "to" {
				must(t, w.Block(b, a))
			}
		}
	}
	w.log(t, "%v is cut off from %v (%s)", from, to, way)
}

func (w *world) heal(t *testing.T) {
	t.Helper()
	must(t, w.Unblock())
	w.log(t, "all can reach each other again")
}

// disk gives a manager a disk of its own with so many bytes to spare, with what it has on it.
func (w *world) disk(t *testing.T, manager string, spare int64) {
	t.Helper()
	w.kill(t, manager)
	dir := w.DataDir(manager)
	var used int64
	must(t, filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			used += info.Size()
		}
		return err
	}))
	away := dir + ".away"
	must(t, os.Rename(dir, away))
	must(t, os.Mkdir(dir, 0o700))
	must(t, unix.Mount("disk", dir, "tmpfs", 0, fmt.Sprintf("mode=700,size=%d", used+spare)))
	must(t, os.CopyFS(dir, os.DirFS(away)))
	must(t, os.RemoveAll(away))
	w.restart(t, manager)
}

// undisk gives the manager its place on the machine's own disk back.
func (w *world) undisk(t *testing.T, manager string) {
	t.Helper()
	w.kill(t, manager)
	dir := w.DataDir(manager)
	away := dir + ".away"
	must(t, os.Mkdir(away, 0o700))
	must(t, os.CopyFS(away, os.DirFS(dir)))
	must(t, unmount(dir))
	must(t, os.Remove(dir))
	must(t, os.Rename(away, dir))
	w.restart(t, manager)
}

// filler is the file that fills a disk.
const filler = "filler"

func (w *world) fill(t *testing.T, manager string) {
	t.Helper()
	file, err := os.Create(filepath.Join(w.DataDir(manager), filler))
	must(t, err)
	defer file.Close()
	for block := make([]byte, 1<<16); err == nil; {
		_, err = file.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	w.log(t, "the disk of %s is full", manager)
}

func (w *world) empty(t *testing.T, manager string) {
	t.Helper()
	must(t, os.Remove(filepath.Join(w.DataDir(manager), filler)))
	w.log(t, "the disk of %s has room again", manager)
}

func unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // nothing is mounted there
	}
	return err
}

// step steps the time of day of all that runs on some nodes.
func (w *world) step(t *testing.T, by time.Duration, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		must(t, w.StepClock(name, by))
	}
	w.log(t, "the clock of %v is stepped by %v", nodes, by)
}
