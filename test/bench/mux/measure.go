package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/testkit/pkt"
)

const (
	burst      = 50_021 // packets; odd, so that bursts begin at all flows in turn
	wantBursts = 41
	noisyPairs = 11
)

// XDP's actions.
const (
	xdpPass = 2
	xdpTX   = 3
)

// class is a kind of packets and what must become of them. The first byte of the source tells
// the classes' flows apart.
type class struct {
	name    string
	packet  pkt.Packet
	floor   bool // run the floor instead of the mux
	action  uint32
	nanos   []float64 // of bursts on a quiet core
	noisy   *noisy    // instead of nanos, when the core was never quiet
	program *ebpf.Program
}

// noisy is what bursts on a busy core tell, in turns with the floor's.
type noisy struct {
	ns    float64
	ratio float64
}

func classes(of family) []class {
	from := func(n int, port string) string {
		if of == v6 {
			return fmt.Sprintf("[2001:db8::%x00:0]%s", n, port)
		}
		return fmt.Sprintf("%d.0.0.0%s", n, port)
	}
	vip, own := "203.0.113.0", "192.0.2.1:179"
	endpoint := vip + ":80"
	if of == v6 {
		vip, own = "2001:db8:1::", "[2001:db8::1]:179"
		endpoint = "[" + vip + "]:80"
	}
	source := func(n int) string { return from(n, ":40000") }
	address := from(14, "")
	if of == v6 {
		address = address[1 : len(address)-1]
	}
	return []class{
		{name: "floor", packet: pkt.TCP(source(10), endpoint, pkt.ACK), floor: true, action: xdpTX},
		{name: "tcp-established", packet: pkt.TCP(source(11), endpoint, pkt.ACK), action: xdpTX},
		{name: "tcp-cookie", packet: pkt.TCP(source(16), endpoint, pkt.ACK, pkt.NOP(2), pkt.Timestamps(7, 5)), action: xdpTX},
		{name: "tcp-syn", packet: pkt.TCP(source(12), endpoint, pkt.SYN), action: xdpTX},
		{name: "udp", packet: pkt.UDP(source(13), endpoint), action: xdpTX},
		{name: "icmp", packet: pkt.ICMP(address, vip), action: xdpPass},
		{name: "not-for-us", packet: pkt.TCP(source(15), own, pkt.ACK), action: xdpPass},
	}
}

// measure times all classes for one family and number of flows, the floor among them.
func (w *world) measure(c *core, of family, flows int, budget time.Duration) ([]result, error) {
	if err := w.verify(of); err != nil {
		return nil, err
	}
	h, err := w.load(of, flows, false)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	deadline := time.Now().Add(budget)
	all := classes(of)
	for i := range all {
		all[i].program = h.Mux
		if all[i].floor {
			all[i].program = h.Floor
		}
		// Every flow twice: from here on the flow table remembers those that it should.
		if _, err := all[i].burst(2*flows + 1000); err != nil {
			return nil, err
		}
	}
	for turn := 0; turn < wantBursts && time.Now().Before(deadline); turn++ {
		for i := range all {
			if err := all[i].measureOnce(c, deadline); err != nil {
				return nil, err
			}
		}
	}
	for i := range all {
		if len(all[0].nanos) == 0 || len(all[i].nanos) == 0 {
			if err := all[i].measureNoisy(&all[0]); err != nil {
				return nil, err
			}
		}
	}
	return summarise(all, of, flows), nil
}

// measureOnce takes one burst that ran on a quiet core, or none when the time is over.
func (k *class) measureOnce(c *core, deadline time.Time) error {
	for c.waitQuiet(deadline) {
		took, err := k.burst(burst)
		if err != nil {
			return err
		}
		if c.quiet() {
			k.nanos = append(k.nanos, float64(took.Nanoseconds()))
			return nil
		}
	}
	return nil
}

// measureNoisy times pairs of bursts, the floor's and its own, on a core that is not quiet. What slows
// one slows the other, so the median of their ratios still tells something.
func (k *class) measureNoisy(floor *class) error {
	var own, ratios []float64
	for range noisyPairs {
		beside, err := floor.burst(burst)
		if err != nil {
			return err
		}
		took, err := k.burst(burst)
		if err != nil {
			return err
		}
		own = append(own, float64(took.Nanoseconds()))
		ratios = append(ratios, float64(took.Nanoseconds())/float64(beside.Nanoseconds()))
	}
	k.noisy = &noisy{ns: median(own), ratio: median(ratios)}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func (k *class) burst(packets int) (time.Duration, error) {
	action, took, err := k.program.Benchmark(k.packet.Frame(), packets, nil)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", k.name, err)
	}
	if action != k.action {
		return 0, fmt.Errorf("run %s: action %d, want %d", k.name, action, k.action)
	}
	return took, nil
}

// verify looks at what each class's packet becomes before anything is timed.
func (w *world) verify(of family) error {
	h, err := w.load(of, 1, true)
	if err != nil {
		return err
	}
	defer h.Close()
	for _, k := range classes(of) {
		program := h.Mux
		if k.floor {
			program = h.Floor
		}
		frame := k.packet.Frame()
		options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
		action, err := program.Run(options)
		if err != nil {
			return fmt.Errorf("run %s: %w", k.name, err)
		}
		got, err := pkt.Decode(options.DataOut)
		if err != nil {
			return fmt.Errorf("verify %s: %w", k.name, err)
		}
		if action != k.action || (action == xdpTX) != (got.Outer != nil) || got.IP.Destination != k.packet.IP.Destination {
			return fmt.Errorf("verify %s: action %d, packet %+v", k.name, action, got)
		}
	}
	return nil
}

func summarise(all []class, of family, flows int) []result {
	var results []result
	for _, k := range all {
		r := result{Class: k.name, Family: of, Flows: flows}
		switch {
		case k.noisy != nil:
			r.NS, r.Ratio, r.noisy = k.noisy.ns, k.noisy.ratio, true
		default:
			r.NS = median(k.nanos)
			r.Ratio = r.NS / median(all[0].nanos)
		}
		results = append(results, r)
	}
	return results
}
