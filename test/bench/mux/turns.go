package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/turns"
)

const (
	turnPackets = 10_007 // odd, as burst is
	turnListed  = 10_000
	manyFlows   = 1_000_000
)

// player measures classes of packets when its turn comes. The harness of one family and number of flows is loaded at a time.
type player struct {
	world   *world
	harness *harness
	loaded  string
	now     *class
}

// takeTurns serves test/bench/compare. What each class becomes is not compared with the oracle's, as a run of the bench itself
// does; each turn checks the action.
func takeTurns(cpu int) (err error) {
	w, err := newWorld(turnListed)
	if err != nil {
		return err
	}
	p := &player{world: w}
	defer func() { err = errors.Join(err, p.unload(), w.Close()) }()
	return turns.Serve(cpu, turnNames(), p.measure)
}

// turnNames are those of the mux's classes, and of the floor, which no change of the mux moves.
func turnNames() (names []string) {
	for _, load := range []string{"v4/1", "v4/1000000", "v6/1", "v6/1000000"} {
		for _, k := range classes(v4) {
			if slices.Contains([]string{"", benchProgBenchTagged, benchProgBenchSyn, benchProgBenchFloor}, k.program) {
				names = append(names, load+"/"+k.name)
			}
		}
	}
	return names
}

func (p *player) measure(name string) (float64, error) {
	at := strings.LastIndexByte(name, '/')
	if p.now == nil || p.loaded != name[:at] || p.now.name != name[at+1:] {
		if err := p.turnTo(name[:at], name[at+1:]); err != nil {
			return 0, err
		}
	}
	start := time.Now() // the kernel rounds its own to a nanosecond a packet, which is 1 or 2 % of it
	_, err := p.now.time(turnPackets)
	return float64(time.Since(start).Nanoseconds()) / turnPackets, err
}

// turnTo has mux and harness be ready and warm for a class.
func (p *player) turnTo(load, name string) error {
	if p.now != nil {
		if err := p.now.set(false); err != nil {
			return err
		}
		p.now = nil
	}
	of, flows, _ := strings.Cut(load, "/")
	count := 1
	if flows != "1" {
		count = manyFlows
	}
	if load != p.loaded {
		if err := p.load(family(of), count); err != nil {
			return err
		}
		p.loaded = load
	}
	for _, k := range classes(family(of)) {
		if k.name != name {
			continue
		}
		if err := errors.Join(p.harness.prepare(&k, p.world.datapath), setNATAddresses(p.world.datapath, false), k.begin()); err != nil {
			return err
		}
		p.now = &k
		return k.warm(count)
	}
	return fmt.Errorf("there is no class %s", name)
}

func (p *player) load(of family, flows int) (err error) {
	if err := p.unload(); err != nil {
		return err
	}
	if p.harness, err = p.world.load(of, flows, false); err != nil {
		return err
	}
	return p.world.enlist(p.harness.Mux, p.harness.Tagged, p.harness.SYN, p.harness.Floor)
}

func (p *player) unload() error {
	if p.harness == nil {
		return nil
	}
	p.harness.Close()
	p.harness = nil
	return p.world.dismiss()
}

// enlist attaches programs to interfaces that no packet comes to. So they stay in the kernel's XDP dispatcher, which a test
// run puts them into for its time otherwise: it waits twice for all CPUs to notice, 20 ms in all.
func (w *world) enlist(programs ...*ebpf.Program) error {
	return w.ns.Do(func() error {
		for i, program := range programs {
			name := fmt.Sprintf("program%d", i)
			if err := netns.Veth(w.ns, name, w.ns, "peer-"+name); err != nil {
				return err
			}
			index, err := w.ns.Index(name)
			if err != nil {
				return err
			}
			attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: link.XDPGenericMode})
			if err != nil {
				return err
			}
			w.enlisted = append(w.enlisted, attached)
		}
		return nil
	})
}

// dismiss undoes enlist.
func (w *world) dismiss() (err error) {
	for i, attached := range w.enlisted {
		err = errors.Join(err, attached.Close(), w.ns.DeleteLink(fmt.Sprintf("program%d", i)))
	}
	w.enlisted = nil
	return err
}
