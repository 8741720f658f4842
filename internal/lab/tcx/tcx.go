// Package tcx attaches programs to interfaces of a lab that lose or change packets. Each is pinned, and ends with its pin. For
// tests and the lab only.
package tcx

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/lab/netns"
)

// Drop makes an interface lose every packet in both directions.
func Drop(ns *netns.NS, port, in, out string) error {
	const drop = 2 // TCX_DROP
	return attach(ns, port, "silence", asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()},
		map[string]ebpf.AttachType{in: ebpf.AttachTCXIngress, out: ebpf.AttachTCXEgress})
}

// attach attaches a program to an interface, once for each pin.
func attach(ns *netns.NS, port, name string, instructions asm.Instructions, pins map[string]ebpf.AttachType) error {
	index, err := ns.Index(port)
	if err != nil {
		return err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: instructions})
	if err != nil {
		return fmt.Errorf("load program %s: %w", name, err)
	}
	defer program.Close()
	for pin, where := range pins {
		err := ns.Do(func() error {
			attached, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: where})
			if err != nil {
				return err
			}
			defer attached.Close()
			return attached.Pin(pin)
		})
		if err != nil {
			return fmt.Errorf("attach program %s to %s in namespace %s: %w", name, port, ns.Name(), err)
		}
	}
	return nil
}
