package netlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Silence makes a machine's link lose every packet in both directions, without taking it down: what
// the router sees when a machine loses its power behind a switch. It holds until Restore.
func (l *network) Silence(node string) error {
	router, err := l.NS(string(Router))
	if err != nil {
		return err
	}
	index, err := router.Index(node)
	if err != nil {
		return err
	}
	const drop = 2 // TCX_DROP
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "silence", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("silence %s: %w", node, err)
	}
	defer program.Close()
	for pin, attach := range map[string]ebpf.AttachType{
		l.silencePin(node, "in"): ebpf.AttachTCXIngress, l.silencePin(node, "out"): ebpf.AttachTCXEgress,
	} {
		err := router.Do(func() error {
			return attachPinned(link.TCXOptions{Interface: index, Program: program, Attach: attach}, pin)
		})
		if err != nil {
			return fmt.Errorf("silence %s: %w", node, err)
		}
	}
	return nil
}

func attachPinned(options link.TCXOptions, pin string) error {
	attached, err := link.AttachTCX(options)
	if err != nil {
		return err
	}
	defer attached.Close()
	return attached.Pin(pin)
}

func (l *network) silencePin(node, direction string) string {
	return filepath.Join(l.dir, "bpf", "silence-"+node+"-"+direction)
}

// Restore ends what Silence began. It is no error if the link is not silent.
func (l *network) Restore(node string) error {
	for _, direction := range []string{"in", "out"} {
		err := os.Remove(l.silencePin(node, direction))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("restore %s: %w", node, err)
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
	if err := first(
		func() error { return l.Restore(node) },
		func() error { return ns.SetUp(Uplink) },
		func() error { return ns.ReplaceRoute(all4, gateway4) },
		func() error { return ns.ReplaceRoute(all6, gateway6) },
	); err != nil {
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
