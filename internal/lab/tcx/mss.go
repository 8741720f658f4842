package tcx

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// The largest segments that fit 1500 bytes.
const (
	largestMSS4 = 1460
	largestMSS6 = 1440
)

// RaiseMSS attaches a program that writes the largest MSS into each SYN/ACK that comes to an interface.
func RaiseMSS(ns *netns.NS, port, pin string) error {
	return attach(ns, port, "raise_mss", raiseMSS(), map[string]ebpf.AttachType{pin: ebpf.AttachTCXIngress})
}

// raiseMSS is the program of RaiseMSS: of Ethernet, IP without options or extensions, and TCP whose
// first option is the MSS, as Linux writes it. All else passes.
func raiseMSS() asm.Instructions {
	const etherType = 12
	program := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // where LoadAbs wants it
		asm.LoadAbs(etherType, asm.Half),
		asm.JEq.Imm(asm.R0, unix.ETH_P_IP, "v4"),
		asm.JEq.Imm(asm.R0, unix.ETH_P_IPV6, "v6"),
		asm.Ja.Label("pass"),
	}
	program = append(program, raiseIn("v4", 14+9, 14+20, largestMSS4)...)
	program = append(program, raiseIn("v6", 14+6, 14+40, largestMSS6)...)
	return append(program, asm.Mov.Imm(asm.R0, 0).WithSymbol("pass"), asm.Return()) // TCX_PASS
}

// raiseIn is the part for one family: where the protocol and the TCP header stand, and the MSS.
func raiseIn(label string, protocol, tcp int32, mss int32) asm.Instructions {
	const (
		flags, synAck   = 13, 0x12
		checksum        = 16
		option, kindMSS = 20, 2
		value           = option + 2
	)
	return asm.Instructions{
		asm.LoadAbs(protocol, asm.Byte).WithSymbol(label),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, "pass"),
		asm.LoadAbs(tcp+flags, asm.Byte),
		asm.And.Imm(asm.R0, synAck),
		asm.JNE.Imm(asm.R0, synAck, "pass"),
		asm.LoadAbs(tcp+option, asm.Byte),
		asm.JNE.Imm(asm.R0, kindMSS, "pass"),
		asm.LoadAbs(tcp+value, asm.Half),
		asm.HostTo(asm.BE, asm.R0, asm.Half),
		asm.Mov.Imm(asm.R7, mss),
		asm.HostTo(asm.BE, asm.R7, asm.Half),
		asm.StoreMem(asm.RFP, -8, asm.R7, asm.Half),

		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, tcp+checksum),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.Mov.Imm(asm.R5, 2), // bytes
		asm.FnL4CsumReplace.Call(),

		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, tcp+value),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 2),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.Ja.Label("pass"),
	}
}
