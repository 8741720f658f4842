package agent

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// probeChecksumHelper says whether bpf_l4_csum_replace knows BPF_F_IPV6. On a kernel without it
// every IPv6 packet would be dropped, one by one and without a word.
func probeChecksumHelper() error {
	const (
		pseudoHeader, ipv6 = 16, 128 // BPF_F_PSEUDO_HDR, BPF_F_IPV6
		frame, checksum    = 62, 60
	)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, checksum), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 1),
			asm.Mov.Imm(asm.R5, pseudoHeader|ipv6),
			asm.FnL4CsumReplace.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return fmt.Errorf("probe kernel: %w", err)
	}
	defer program.Close()
	result, err := program.Run(&ebpf.RunOptions{Data: make([]byte, frame)})
	if err != nil {
		return fmt.Errorf("probe kernel: %w", err)
	}
	if result != 0 {
		return fmt.Errorf("kernel is too old: needs BPF_F_IPV6, as Linux 6.16 and later stable releases have it")
	}
	return nil
}
