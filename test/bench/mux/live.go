package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/pkt"
)

// liveRate is how many frames a second one core makes, sends through a veth to the program, and takes
// back through the veth.
type liveRate struct {
	Program string  `json:"program"`
	Flows   int     `json:"flows"`
	Mpps    float64 `json:"mpps"`
	Ratio   float64 `json:"ratio"` // of the floor's rate to this
}

const (
	liveFrames = 1 << 18 // of a burst
	liveTurns  = 9
	liveBatch  = 64
)

// lane is one program on the far end of the veth, and the packets that it gets.
type lane struct {
	name    string
	class   string // whose packets it gets
	flows   int
	program func(*harness) *ebpf.Program
	batch   int // frames that the generator makes at once; 0: liveBatch
	bytes   int // of a frame; 0: as the class has it
	rates   []float64
}

func lanes() []lane {
	whole := func(h *harness) *ebpf.Program { return h.Whole }
	return []lane{
		{name: "floor", class: floorClass, flows: 1, program: func(h *harness) *ebpf.Program { return h.Bare }},
		{name: "reflect", class: floorClass, flows: 1, program: func(h *harness) *ebpf.Program { return h.Reflect }},
		{name: "tcp-cookie", class: "tcp-cookie", flows: 1, program: whole},
		{name: "tcp-cookie", class: "tcp-cookie", flows: 1_000_000, program: whole},
		{name: "tcp-syn", class: "tcp-syn", flows: 1, program: whole},
		{name: "udp-known", class: "udp-known", flows: 1_000_000, program: whole},
	}
}

// measureLive measures all lanes.
func (w *world) measureLive(core *core) (rates []liveRate, err error) {
	all := lanes()
	if err := w.runLanes(core, all); err != nil {
		return nil, err
	}
	for i := range all {
		ratios := make([]float64, len(all[i].rates))
		for turn, rate := range all[i].rates {
			ratios[turn] = all[0].rates[turn] / rate
		}
		rates = append(rates, liveRate{
			Program: all[i].name, Flows: all[i].flows, Ratio: median(ratios), Mpps: median(slices.Clone(all[i].rates)),
		})
	}
	return rates, nil
}

// runLanes runs lanes in turns, in the world's namespace.
func (w *world) runLanes(core *core, all []lane) error {
	harnesses := map[int]*harness{}
	for _, l := range all {
		if harnesses[l.flows] != nil {
			continue
		}
		h, err := w.load(v4, l.flows, false)
		if err != nil {
			return err
		}
		defer h.Close()
		harnesses[l.flows] = h
	}
	return w.ns.Do(func() error {
		// On a thread of its own. Were it moved in a burst, the far end would stay behind on the old core.
		if err := core.take(); err != nil {
			return err
		}
		near, far, remove, err := vethPair()
		if err != nil {
			return err
		}
		defer remove()
		for range liveTurns {
			for i := range all {
				if err := all[i].run(harnesses[all[i].flows], near, far); err != nil {
					return fmt.Errorf("run %s with live frames: %w", all[i].name, err)
				}
			}
		}
		return nil
	})
}

// vethPair is quiet: a packet of the kernel's own would wake the far end on another core, and there
// it would stay, for its ring never empties: on a busy core the frames of ours would get lost.
func vethPair() (near, far int, remove func(), err error) {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
		return 0, 0, nil, fmt.Errorf("keep IPv6 quiet: %w", err)
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far"}
	if err := netlink.LinkAdd(pair); err != nil {
		return 0, 0, nil, fmt.Errorf("make veth: %w", err)
	}
	for i, name := range []string{"near", "far"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("find %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return 0, 0, nil, fmt.Errorf("set %s up: %w", name, err)
		}
		if i == 0 {
			near = l.Attrs().Index
		} else {
			far = l.Attrs().Index
		}
	}
	return near, far, func() { _ = netlink.LinkDel(pair) }, nil
}

// run times one burst: from the generator out of near, through the program at far, back into the
// sink at near, all on this core.
func (l *lane) run(h *harness, near, far int) error {
	all := classes(v4)
	k := named(all, l.class)
	if l.bytes > 0 {
		k.packet = k.packet.With(pkt.Payload(nil))
		k.packet = k.packet.With(pkt.Payload(make([]byte, l.bytes-len(k.packet.Frame()))))
	}
	if err := h.CookieAt.Set(cmp.Or(k.cookieAt, bodyAt)); err != nil {
		return err
	}
	for index, program := range map[int]*ebpf.Program{near: h.Sink, far: l.program(h)} {
		attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer attached.Close()
	}
	warmUp := 10_000
	if len(l.rates) == 0 { // every flow twice: they are known from here on
		warmUp += 2 * l.flows
	}
	if _, err := h.generate(k, near, warmUp, l.batch); err != nil {
		return err
	}
	took, err := h.generate(k, near, liveFrames, l.batch)
	if err != nil {
		return err
	}
	l.rates = append(l.rates, liveFrames/took.Seconds()/1e6)
	return nil
}

// context is struct xdp_md.
type context struct {
	Data, DataEnd, DataMeta, Ingress, RxQueue, Egress uint32
}

// generate sends frames out of the interface, and fails unless nearly all of them came back.
func (h *harness) generate(k *class, near, frames, batch int) (time.Duration, error) {
	frame := k.packet.Frame()
	if err := h.Sunk.Set(uint64(0)); err != nil {
		return 0, err
	}
	options := &ebpf.RunOptions{
		Data: frame, Repeat: uint32(frames), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: uint32(cmp.Or(batch, liveBatch)),
		Context: context{DataEnd: uint32(len(frame)), Ingress: uint32(near)},
	}
	start := time.Now()
	if _, err := h.Generate.Run(options); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	took := time.Since(start)
	runtime.KeepAlive(options)
	var sunk uint64
	if err := h.Sunk.Get(&sunk); err != nil {
		return 0, err
	}
	if sunk < uint64(frames)*99/100 {
		return 0, fmt.Errorf("%d of %d frames came back", sunk, frames)
	}
	return took, nil
}
