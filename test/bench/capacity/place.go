package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/turns"
)

// The box that is measured has one of two CPUs, and all else the other one: load, clients, network and host.
const (
	boxCPU  = 1
	restCPU = 0
)

// place gives the boxes their CPU: a thread of the kernel takes what comes, as if it came from a NIC, and what it has no room for
// is lost.
func (w *world) place() error {
	if err := w.network.PassXDP(w.mux.port); err != nil { // until the sink is there: a thread is for programs alone
		return err
	}
	if err := w.network.PassXDP(w.sw.port); err != nil {
		return err
	}
	for _, b := range []*box{&w.mux, &w.sw} {
		var err error
		if b.threads, err = b.ns.ThreadXDP(b.port, boxCPU); err != nil {
			return err
		}
		if len(b.threads) == 0 {
			return fmt.Errorf("no thread takes what comes to the %s", b.name)
		}
		network, err := w.network.ThreadXDP(b.port, restCPU)
		if err != nil {
			return err
		}
		for _, thread := range append(network, b.threads...) {
			if err := benchlab.PutFirst(thread); err != nil {
				return err
			}
		}
	}
	undo, err := benchlab.KeepAwake()
	if err == nil {
		w.onClose(undo)
	}
	return err
}

func threadTime(threads []int) (sum time.Duration, err error) {
	for _, thread := range threads {
		took, err := benchlab.ThreadTime(thread)
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum, nil
}

// sink is a program of the network's interfaces that counts and drops what is for the sink.
type sink struct {
	counts  *ebpf.Map
	program *ebpf.Program
}

func (w *world) openSink() (err error) {
	w.sink = &sink{}
	w.onClose(w.sink.close)
	w.sink.counts, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("make the sink's table: %w", err)
	}
	w.sink.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sink", Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: w.sink.instructions(),
	})
	if err != nil {
		return fmt.Errorf("load the sink: %w", err)
	}
	for _, b := range []*box{&w.mux, &w.sw} {
		err := w.network.Do(func() error {
			link, err := netlink.LinkByName(b.port)
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFd(link, w.sink.program.FD())
		})
		if err != nil {
			return fmt.Errorf("attach the sink to %s: %w", b.port, err)
		}
	}
	return nil
}

func (s *sink) instructions() asm.Instructions {
	const destination = 14 + 16 // of IPv4 behind Ethernet
	const drop, pass = 1, 2     // of XDP
	to := sinkDIP.As4()
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, destination+4), asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, destination, asm.Half), asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.JNE.Imm(asm.R5, int32(to[0])<<8|int32(to[1]), "pass"),
		asm.LoadMem(asm.R5, asm.R2, destination+2, asm.Half), asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.JNE.Imm(asm.R5, int32(to[2])<<8|int32(to[3]), "pass"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, s.counts.FD()), asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, drop), asm.Return(),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"), asm.Return(),
	}
}

func (s *sink) count() (packets uint64, err error) {
	err = s.counts.Lookup(uint32(0), &packets)
	return packets, err
}

func (s *sink) close() error {
	if s.counts == nil {
		return nil
	}
	return errors.Join(s.counts.Close(), s.program.Close())
}

// pace is how long a frame takes the generator, and each look at the clock beside it.
type pace struct{ frame, look time.Duration }

// looks are how often the generator looks at the clock for a frame, to send so many a second.
func (p pace) looks(perSecond float64) int {
	left := float64(time.Second)/perSecond - float64(p.frame)
	return min(max(0, int(left/float64(p.look))), mostLooks)
}

const (
	// batch is small: what the generator is at can't be interrupted, and pings would wait.
	batch     = 4
	mostLooks = 4000

	calibrationFrames = 100_000
	trials            = 3 // of which the best counts: others of this machine only slow it down
)

// calibrate finds the generator's pace, beside a mux that works.
func (w *world) calibrate() error {
	took := map[int]time.Duration{}
	for range trials {
		for _, looks := range []int{0, 40} {
			load, err := w.load(&w.mux, looks)
			if err != nil {
				return err
			}
			began := time.Now()
			err = load.send(calibrationFrames)
			frame := time.Since(began) / calibrationFrames
			if took[looks] == 0 || frame < took[looks] {
				took[looks] = frame
			}
			if err := errors.Join(err, load.close()); err != nil {
				return err
			}
		}
	}
	w.pace = pace{frame: took[0], look: max((took[40]-took[0])/40, 1)}
	fmt.Printf("a frame takes the generator %s, and each look at the clock %s\n", w.pace.frame, w.pace.look)
	return nil
}

// load is what sends to a box, all VIPs alike but the one that is pinged.
type load struct {
	w         *world
	generator *flood.Generator
}

func (w *world) load(b *box, looks int) (*load, error) {
	to, err := b.ns.MAC(b.port)
	if err != nil {
		return nil, err
	}
	mix := flood.Mix{SYNs: w.syns, First: firstVIP, Delay: looks, Batch: batch}
	for range loadedVIPs {
		mix.Shares = append(mix.Shares, 100/loadedVIPs)
	}
	g, err := flood.NewGenerator(flood.Link{From: b.link.HardwareAddr, To: to, Interface: b.link.Index}, mix)
	return &load{w, g}, err
}

// send sends so many frames, at its pace.
func (l *load) send(frames int) error {
	return l.w.network.Do(func() error { // on a thread that ends
		if err := turns.Pin(restCPU); err != nil {
			return err
		}
		// Before other programs, that it does not send in bursts, and behind pings.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
			return fmt.Errorf("put the load before other programs: %w", err)
		}
		return l.generator.Send(frames)
	})
}

func (l *load) close() error { return l.generator.Close() }

// under has a box get so many packets a second for a time, and does something meanwhile; 0: none.
func (w *world) under(ctx context.Context, b *box, perSecond float64, lasts time.Duration, do func() error) (r rate, err error) {
	sent := make(chan error, 1)
	if perSecond > 0 {
		load, failed := w.load(b, w.pace.looks(perSecond))
		if failed != nil {
			return r, failed
		}
		defer func() { err = errors.Join(err, load.close()) }()
		go func() { sent <- load.send(int(perSecond * (lasts + 2*edge).Seconds())) }()
	} else {
		sent <- nil
	}
	time.Sleep(edge) // until it has begun
	before, err := w.count(b)
	if err != nil {
		return r, errors.Join(err, <-sent)
	}
	err = do()
	after, err2 := w.count(b)
	return after.since(before), errors.Join(err, err2, <-sent, ctx.Err())
}

// edge is how long a load lasts before and after what is measured.
const edge = 200 * time.Millisecond

// most is what a box forwards of more than it takes, in packets a second, or, if it forwards all that can be sent, that.
func (w *world) most(ctx context.Context, b *box) (found float64, full bool, err error) {
	const lasts = time.Second / 2
	for range trials {
		r, err := w.under(ctx, b, float64(time.Second/w.pace.frame), lasts, func() error { time.Sleep(lasts); return nil })
		if err != nil {
			return 0, false, err
		}
		found, full = max(found, r.Forwarded), full || r.Sent >= 1.05*r.Forwarded
	}
	return found, full, nil
}
