package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/tcx"
)

// Silence makes a machine's link lose every packet in both directions, without taking it down: what
// the router sees when a machine loses its power behind a switch. It holds until Restore.
func (l *network) Silence(node string) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	return silencePort(l, l.Above(n), node)
}

// silencePort makes an interface lose every packet in both directions.
func silencePort(l *network, node, port string) error {
	ns, err := l.NS(node)
	if err != nil {
		return err
	}
	return tcx.Drop(ns, port, l.silencePin(node, port+"-in"), l.silencePin(node, port+"-out"))
}

func (l *network) silencePin(node, what string) string {
	return filepath.Join(l.dir, "bpf", "silence-"+node+"-"+what)
}

// Restore ends what Silence began. It is no error if the link is not silent.
func (l *network) Restore(node string) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	return restorePort(l, l.Above(n), node)
}

func restorePort(l *network, node, port string) error {
	for _, direction := range []string{"in", "out"} {
		err := os.Remove(l.silencePin(node, port+"-"+direction))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("restore %s of %s: %w", port, node, err)
		}
	}
	return nil
}

// CutPower makes a machine's link silent and kills its processes. Nothing is said good-bye to: only
// silence tells the others.
func (l *programs) CutPower(node string) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	if n.Kind == Router || n.Kind == Workload || n.Kind == Tenant {
		return fmt.Errorf("cut the power of %s: only clients, muxes, hosts and the manager have their own", node)
	}
	if l.inFabric(n) {
		return errors.Join(l.stopSwitch(n, true), l.Forget(node))
	}
	if err := l.Silence(node); err != nil {
		return err
	}
	nodes := []Node{n}
	if n.Kind == Host {
		nodes = append(nodes, l.workloadsOf(n)...)
	}
	var errs []error
	for _, n := range nodes {
		for _, p := range l.Processes(n.Name) {
			errs = append(errs, p.Signal(unix.SIGKILL))
		}
	}
	return errors.Join(errs...)
}

// Crash kills a machine's programs and takes its uplink down. Unlike CutPower, the router sees at once
// that the link is gone. Revive ends it.
func (l *programs) Crash(node string) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	if l.inFabric(n) {
		return l.stopSwitch(n, false)
	}
	ns, err := l.NS(node)
	if err != nil {
		return err
	}
	errs := []error{ns.SetDown(Uplink)}
	for _, p := range l.Processes(node) {
		errs = append(errs, p.Stop(unix.SIGKILL, crashTime))
	}
	return errors.Join(errs...)
}

// Bound on how long a killed program takes to be gone.
const crashTime = 5 * time.Second

// Revive gives a machine that crashed, or whose power was cut, its uplink back, with its routes, and
// starts its programs again.
func (l *programs) Revive(node string) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	ns, err := l.NS(node)
	if err != nil {
		return err
	}
	gateway4, gateway6 := n.gateway()
	links := []func() error{
		func() error { return l.Restore(node) },
		func() error { return ns.SetUp(Uplink) },
		func() error { return ns.ReplaceRoute(all4, gateway4) },
		func() error { return ns.ReplaceRoute(all6, gateway6) },
	}
	if l.inFabric(n) {
		links = []func() error{func() error { return l.startSwitchAgain(n) }}
	}
	if err := first(links...); err != nil {
		return fmt.Errorf("revive %s: %w", node, err)
	}
	l.processesMu.Lock()
	processes := slices.Clone(l.processes)
	l.processesMu.Unlock()
	for _, p := range processes {
		if p.Node != node || p.Running() {
			continue
		}
		if _, err := l.start(node, p.Args); err != nil {
			return fmt.Errorf("revive %s: %w", node, err)
		}
	}
	return nil
}
