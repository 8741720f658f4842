package flood

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Link is where a Generator's frames go: from an interface, by its number, to the one at its other end.
type Link struct {
	From, To  net.HardwareAddr
	Interface int
}

// Mix is what they are: datagrams, or SYNs, from sources of chance to port 80 of some addresses of IPv4, one after the other.
type Mix struct {
	SYNs   bool // of Multipath TCP, with a checksum of TCP that is wrong
	First  netip.Addr
	Shares []int // of each in percent, all together 100
	Delay  int   // how often the clock is read for each frame: slows the generator down
	Batch  int   // frames that leave together; 0: 64
}

// Generator makes frames in the kernel and redirects them to a link, at a rate that no socket sends at. They pass no router.
type Generator struct {
	mix     Mix
	program *ebpf.Program
	frame   []byte
	headers int // bytes that each frame has of frame: the rest is anything
	port    int
}

const (
	frameSize   = 60
	burstFrames = 1 << 12
	burstBatch  = 64
	l3, l4      = 14, 34 // offsets
)

// synOptions are those of a SYN of Linux that speaks Multipath TCP: MSS, SACK permitted, timestamps, a padding, window scale,
// MP_CAPABLE (RFC 8684).
var synOptions = []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7, 30, 4, 1, 1}

// synFrameSize has two bytes behind the packet: it is written in words.
const synFrameSize = 80

// xdpContext is struct xdp_md.
type xdpContext struct {
	Data, DataEnd, DataMeta, Ingress, RxQueue, Egress uint32
}

// NewGenerator makes a generator for a link of the network namespace that Burst is called in.
func NewGenerator(link Link, mix Mix) (g *Generator, err error) {
	if !mix.First.Is4() {
		return nil, fmt.Errorf("generate frames to %s: needs an address of IPv4", mix.First)
	}
	g = &Generator{mix: mix, frame: make([]byte, frameSize), headers: l4 + 8, port: link.Interface}
	if mix.SYNs {
		g.frame, g.headers = make([]byte, synFrameSize), synFrameSize
	}
	copy(g.frame, link.To)
	copy(g.frame[6:], link.From)
	binary.BigEndian.PutUint16(g.frame[12:], unix.ETH_P_IP)
	ip := g.frame[l3:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], frameSize-l3)
	if mix.SYNs {
		ip[9] = unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(ip[2:], uint16(l4+20+len(synOptions)-l3))
	}
	source := Sources4.Addr().As4()
	copy(ip[12:], source[:2])
	copy(ip[16:], mix.First.AsSlice())
	sum := 0
	for i := 0; i < l4-l3; i += 2 {
		sum += int(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(g.frame[l4+2:], 80)
	binary.BigEndian.PutUint16(g.frame[l4+4:], frameSize-l4)
	if mix.SYNs {
		copy(g.frame[l4+4:], []byte{1, 2, 3, 4}) // of sequence numbers
		g.frame[l4+12], g.frame[l4+13] = byte(20+len(synOptions))<<2, 0x02
		copy(g.frame[l4+20:], synOptions)
	}
	g.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "generate", Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: g.instructions(int32(sum)),
	})
	if err != nil {
		return nil, fmt.Errorf("load the generator: %w", err)
	}
	return g, nil
}

// Close unloads it.
func (g *Generator) Close() error { return g.program.Close() }

// instructions write the whole frame anew: its memory comes back as the last receiver left it. sum is that of the IP
// header's words, without a checksum.
func (g *Generator) instructions(sum int32) asm.Instructions {
	const context, data, random, tenant, word, carry = asm.R6, asm.R7, asm.R9, asm.R2, asm.R4, asm.R5
	all := asm.Instructions{
		asm.Mov.Reg(context, asm.R1),
		asm.LoadMem(data, context, 0, asm.Word),
		asm.LoadMem(asm.R8, context, 4, asm.Word),
		asm.Mov.Reg(asm.R1, data), asm.Add.Imm(asm.R1, int32(len(g.frame))), asm.JGT.Reg(asm.R1, asm.R8, "short"),
	}
	for range g.mix.Delay {
		all = append(all, asm.FnKtimeGetNs.Call())
	}
	all = append(all, asm.FnGetPrandomU32.Call(), asm.Mov.Reg(random, asm.R0))
	for at := 0; at < g.headers; at += 4 {
		all = append(all, asm.StoreImm(data, int16(at), int64(int32(binary.LittleEndian.Uint32(g.frame[at:]))), asm.Word))
	}
	all = append(all, asm.Mov.Reg(asm.R1, random), asm.Mod.Imm(asm.R1, 100))
	bound := 0
	for n, share := range g.mix.Shares {
		bound += share
		all = append(all, asm.Mov.Imm(tenant, int32(n)), asm.JLT.Imm(asm.R1, int32(bound), "chosen"))
	}
	fold := asm.Instructions{asm.Mov.Reg(carry, word), asm.RSh.Imm(carry, 16), asm.And.Imm(word, 0xffff), asm.Add.Reg(word, carry)}
	all = append(all,
		asm.Mov.Reg(asm.R3, tenant).WithSymbol("chosen"),
		asm.Add.Imm(asm.R3, int32(g.mix.First.As4()[3])), asm.StoreMem(data, l3+19, asm.R3, asm.Byte),
		asm.Mov.Reg(word, random), asm.RSh.Imm(word, 8), asm.And.Imm(word, 0xffff),
		asm.Mov.Reg(carry, word), asm.HostTo(asm.BE, carry, asm.Half), asm.StoreMem(data, l3+14, carry, asm.Half), // of the source
		asm.Add.Reg(word, tenant), asm.Add.Imm(word, sum))
	all = append(append(all, fold...), fold...)
	return append(all,
		asm.Xor.Imm(word, 0xffff), asm.HostTo(asm.BE, word, asm.Half), asm.StoreMem(data, l3+10, word, asm.Half),
		asm.RSh.Imm(random, 16), asm.StoreMem(data, l4, random, asm.Half), // the source's port
		asm.Mov.Imm(asm.R1, int32(g.port)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("short"), asm.Return(), // XDP_DROP
	)
}

// Burst sends some frames, at the generator's speed.
func (g *Generator) Burst() (frames int, err error) { return burstFrames, g.Send(burstFrames) }

// Send sends so many frames, likewise.
func (g *Generator) Send(frames int) error {
	_, err := g.program.Run(&ebpf.RunOptions{
		Data: g.frame, Repeat: uint32(frames), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: uint32(cmp.Or(g.mix.Batch, burstBatch)),
		Context: xdpContext{DataEnd: uint32(len(g.frame)), Ingress: uint32(g.port)},
	})
	if err != nil {
		return fmt.Errorf("generate frames: %w", err)
	}
	return nil
}
