package netlab

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// path is what lies between a client and the router, where Narrow puts something.
const path Kind = "path"

// Narrow puts a router of another network between a client and the lab's router; the link from there
// on has this MTU. The client's own link keeps the MTU that it has, so only ICMP tells it.
//
//	client 10.0.i.2 ── 10.0.i.1  path  10.5.i.2 ══ MTU ══ 10.5.i.1 router
func (l *network) Narrow(client string, mtu int) error {
	n, err := l.Node(client)
	if err != nil {
		return err
	}
	if n.Kind != Client {
		return fmt.Errorf("narrow the path of %s: it is no client", client)
	}
	ns, err := l.NS(client)
	if err != nil {
		return err
	}
	router, err := l.NS(string(Router))
	if err != nil {
		return err
	}
	between, err := l.create(client+string(path), "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
	if err != nil {
		return err
	}
	gateway4, gateway6 := n.gateway()
	near4, near6 := address4(path, n.Number, 1), address6(path, n.Number, 1)
	far4, far6 := address4(path, n.Number, 2), address6(path, n.Number, 2)
	const port = "client"
	return first(
		func() error { return router.DeleteLink(client) }, // and the client's end with it
		func() error { return netns.Veth(between, port, ns, Uplink) },
		func() error { return addresses(between, port, 24, 64, gateway4, gateway6) },
		func() error { return addresses(ns, Uplink, 24, 64, n.IPv4, n.IPv6) },
		func() error { return defaultRoutes(ns, gateway4, gateway6) },
		func() error { return netns.Veth(router, client, between, Uplink) },
		func() error { return router.SetMTU(client, mtu) },
		func() error { return between.SetMTU(Uplink, mtu) },
		func() error { return addresses(router, client, 24, 64, near4, near6) },
		func() error { return addresses(between, Uplink, 24, 64, far4, far6) },
		func() error { return defaultRoutes(between, near4, near6) },
		func() error { return router.AddRoute(netip.PrefixFrom(n.IPv4, 24).Masked(), far4) },
		func() error { return router.AddRoute(netip.PrefixFrom(n.IPv6, 64).Masked(), far6) },
	)
}

func defaultRoutes(ns *netns.NS, gateway4, gateway6 netip.Addr) error {
	return first(
		func() error { return ns.AddRoute(all4, gateway4) },
		func() error { return ns.AddRoute(all6, gateway6) },
	)
}

// The largest segments that fit 1500 bytes.
const (
	largestMSS4 = 1460
	largestMSS6 = 1440
)

// IgnoreMSS makes a client send segments of 1500 bytes whatever the servers ask for, as some do: a
// program at its interface writes the largest MSS into each SYN/ACK on its way in. It stays with the
// interface.
func (l *network) IgnoreMSS(client string) error {
	ns, err := l.NS(client)
	if err != nil {
		return err
	}
	index, err := ns.Index(Uplink)
	if err != nil {
		return err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "raise_mss", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: raiseMSS(),
	})
	if err != nil {
		return fmt.Errorf("make %s ignore the MSS: %w", client, err)
	}
	defer program.Close()
	err = ns.Do(func() error {
		return attachPinned(link.TCXOptions{Interface: index, Program: program, Attach: ebpf.AttachTCXIngress},
			l.silencePin(client, "mss"))
	})
	if err != nil {
		return fmt.Errorf("make %s ignore the MSS: %w", client, err)
	}
	return nil
}

// raiseMSS is the program of IgnoreMSS: of Ethernet, IP without options or extensions, and TCP whose
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
