package netns

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
)

// PassXDP attaches an XDP program to an interface that passes everything to the kernel. What a
// program at the other end of a veth sends back by XDP_TX waits for ever in the ring between them
// unless this end has a program too: the kernel wakes no other (veth_xdp_flush in drivers/net/veth.c).
// It stays until the interface goes.
func (ns *NS) PassXDP(name string) error {
	const pass = 2 // XDP_PASS
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load the program for %s in namespace %s: %w", name, ns.name, err)
	}
	defer program.Close()
	return ns.change(name, "attach a program to", func(link netlink.Link) error {
		return ns.Do(func() error { return netlink.LinkSetXdpFd(link, program.FD()) })
	})
}
