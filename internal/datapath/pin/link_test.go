package pin_test

import (
	"net"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// A program that was detached is attached again at once, though the kernel releases links later.
func TestAttachAfterDetach(t *testing.T) {
	f := open(t)
	if err := f.Publish(func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	const pass = -1 // TCX_NEXT
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	at := link.TCXOptions{Interface: loopback.Index, Program: program, Attach: ebpf.AttachTCXIngress}
	for i := range 20 {
		if err := f.Attach("link", at); err != nil {
			t.Fatalf("time %d: %v", i, err)
		}
		if err := f.Detach("link"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(f.Live("link")); !os.IsNotExist(err) {
		t.Errorf("the link is pinned still: %v", err)
	}
}
